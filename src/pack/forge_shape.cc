#include "pack/forge_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/limits.h"

namespace sluice {
namespace {

// Every vocabulary holds the 256 bytes and these many special tokens at least (forge_text.cc).
constexpr uint32_t kSpecialTokens = 32;
constexpr uint32_t kVocabMin = 256 + kSpecialTokens;

// A router is filled as a whole; the largest real one is an eighth of this.
constexpr uint64_t kRouterElementsMax = 1 << 23;

// Sizes: the published configurations (docs/forge.md).
std::vector<ForgeShape> AllShapes() {
  ForgeShape qwen3;
  qwen3.name = "qwen3-30b-a3b";
  qwen3.arch = "qwen3moe";
  qwen3.recipe = "q4_k";
  qwen3.layers = 48, qwen3.hidden = 2048, qwen3.context = 40960;
  qwen3.heads = 32, qwen3.kv_heads = 4, qwen3.head_dim = qwen3.rope_dims = 128;
  qwen3.experts = 128, qwen3.used = 8, qwen3.expert_ff = 768, qwen3.dense_ff = 6144;
  qwen3.vocab = 151936, qwen3.text_tokens = 151643;

  ForgeShape qwen36;
  qwen36.name = "qwen3.6-35b-a3b";
  qwen36.arch = "qwen35moe";
  qwen36.recipe = "q4_k";
  qwen36.kind = ForgeArch::kQwen35Moe;
  qwen36.layers = 40, qwen36.hidden = 2048, qwen36.context = 262144;
  qwen36.heads = 16, qwen36.kv_heads = 2, qwen36.head_dim = 256, qwen36.rope_dims = 64;
  qwen36.experts = 256, qwen36.used = 8, qwen36.expert_ff = qwen36.shared_ff = 512;
  qwen36.vocab = 248320, qwen36.text_tokens = 248044;
  qwen36.rope_theta = 1e7f;
  qwen36.full_interval = 4, qwen36.key_heads = 16, qwen36.value_heads = 32;
  qwen36.delta_dim = 128, qwen36.conv_kernel = 4;

  ForgeShape oss20;
  oss20.name = "gpt-oss-20b";
  oss20.arch = "gpt-oss";
  oss20.recipe = "mxfp4";
  oss20.kind = ForgeArch::kGptOss;
  oss20.layers = 24, oss20.hidden = 2880, oss20.context = 131072;
  oss20.heads = 64, oss20.kv_heads = 8, oss20.head_dim = oss20.rope_dims = 64;
  oss20.experts = 32, oss20.used = 4, oss20.expert_ff = 2880;
  oss20.vocab = 201088, oss20.text_tokens = 199998;
  oss20.rms_eps = 1e-5f, oss20.rope_theta = 150000, oss20.sliding_window = 128;

  ForgeShape oss120 = oss20;
  oss120.name = "gpt-oss-120b";
  oss120.layers = 36, oss120.experts = 128;

  ForgeShape olmoe;
  olmoe.name = "olmoe-7b";
  olmoe.arch = "olmoe";
  olmoe.recipe = "q4_k";
  olmoe.kind = ForgeArch::kOlmoe;
  olmoe.layers = 16, olmoe.hidden = 2048, olmoe.context = 4096;
  olmoe.heads = olmoe.kv_heads = 16, olmoe.head_dim = olmoe.rope_dims = 128;
  olmoe.experts = 64, olmoe.used = 8, olmoe.expert_ff = 1024;
  olmoe.vocab = 50304, olmoe.text_tokens = 50254;
  olmoe.rms_eps = 1e-5f, olmoe.rope_theta = 10000;
  return {qwen3, qwen36, oss20, oss120, olmoe};
}

constexpr ForgeRecipe kRecipes[] = {
    {"q4_k", WeightType::kQ4_K, WeightType::kQ6_K, WeightType::kQ6_K, WeightType::kQ8_0},
    {"mxfp4", WeightType::kMXFP4, WeightType::kQ8_0, WeightType::kQ8_0, WeightType::kQ8_0},
    {"q8_0", WeightType::kQ8_0, WeightType::kQ8_0, WeightType::kQ8_0, WeightType::kQ8_0},
    {"f32", WeightType::kF32, WeightType::kF32, WeightType::kF32, WeightType::kF32},
};

void Override(ForgeShape* s, const ForgeOverrides& o) {
  const auto set = [](uint32_t* field, const std::optional<uint32_t>& value) {
    if (value) *field = *value;
  };
  set(&s->layers, o.layers), set(&s->hidden, o.hidden), set(&s->context, o.context);
  set(&s->experts, o.experts), set(&s->used, o.used), set(&s->expert_ff, o.expert_ff);
  set(&s->shared_ff, o.shared_ff), set(&s->heads, o.heads), set(&s->kv_heads, o.kv_heads);
  set(&s->head_dim, o.head_dim), set(&s->vocab, o.vocab), set(&s->key_heads, o.key_heads);
  set(&s->value_heads, o.value_heads), set(&s->delta_dim, o.delta_dim);
  // Its heads are cut from the hidden size.
  if (s->kind == ForgeArch::kOlmoe) {
    if (!o.kv_heads) s->kv_heads = s->heads;
    if (!o.head_dim && s->heads > 0) s->head_dim = s->hidden / s->heads;
  }
  s->rope_dims = s->kind == ForgeArch::kQwen35Moe ? s->head_dim / 4 : s->head_dim;
  if (o.vocab)
    s->text_tokens = std::min(s->text_tokens, s->vocab - std::min(s->vocab, kSpecialTokens));
}

Status Bad(const ForgeShape& s, std::string what, std::string hint = {}) {
  return Status(Code::kUsage, std::move(what), "shape " + s.name, std::move(hint));
}

Status CheckShape(const ForgeShape& s) {
  const struct {
    const char* name;
    uint32_t value, low, high;
  } ranges[] = {
      {"layers", s.layers, 1, limits::kLayersMax},
      {"hidden", s.hidden, 32, 1 << 16},
      {"experts", s.experts, 2, 4096},
      {"used", s.used, 1, std::min(s.experts, limits::kExpertsUsedMax)},
      {"ff", s.expert_ff, 32, 1 << 16},
      {"heads", s.heads, 1, limits::kHeadsMax},
      {"kv-heads", s.kv_heads, 1, s.heads},
      {"head-dim", s.head_dim, 8, 1024},
      {"vocab", s.vocab, kVocabMin, 1 << 20},
      {"context", s.context, 1, limits::kContextMax},
  };
  for (const auto& r : ranges) {
    if (r.value >= r.low && r.value <= r.high) continue;
    return Bad(s, fmt::format("{} is {}", r.name, r.value),
               fmt::format("it must be from {} to {}", r.low, r.high));
  }
  if (s.heads % s.kv_heads != 0) {
    return Bad(s, fmt::format("{} heads do not divide over {} kv heads", s.heads, s.kv_heads));
  }
  if (s.rope_dims % 2 != 0 || s.rope_dims == 0) {
    return Bad(s, fmt::format("head-dim {} leaves {} rotated dimensions", s.head_dim, s.rope_dims),
               "they must be even");
  }
  if (uint64_t{s.experts} * s.hidden > kRouterElementsMax) {
    return Bad(s, fmt::format("a router of {} experts by {} is too large", s.experts, s.hidden),
               fmt::format("at most {} elements are held in memory", kRouterElementsMax));
  }
  if (s.kind == ForgeArch::kOlmoe && s.heads * s.head_dim != s.hidden) {
    return Bad(s, fmt::format("{} heads of {} are not hidden {}", s.heads, s.head_dim, s.hidden));
  }
  if (s.kind != ForgeArch::kQwen35Moe) return Status();
  if (s.key_heads == 0 || s.value_heads == 0 || s.value_heads % s.key_heads != 0 ||
      s.value_heads > 256 || s.delta_dim < 8 || s.delta_dim > 1024) {
    return Bad(s, fmt::format("{} value heads of {} do not fit {} key heads", s.value_heads,
                              s.delta_dim, s.key_heads));
  }
  return s.shared_ff >= 32 && s.shared_ff <= 1 << 16
             ? Status()
             : Bad(s, fmt::format("shared-ff is {}", s.shared_ff), "it must be from 32 to 65536");
}

// Lists the tensors of a shape; the first that does not fit its blocks is kept as the error.
class Lister {
 public:
  Lister(const ForgeShape& shape, const ForgeRecipe& recipe) : s_(shape), r_(recipe) {}

  Result<std::vector<ForgeTensor>> List() {
    Add("token_embd.weight", {s_.hidden, s_.vocab}, r_.embedding, ForgeFill::kEmbedding);
    for (layer_ = 0; layer_ < s_.layers; ++layer_) {
      prefix_ = fmt::format("blk.{}.", layer_);
      Vector("attn_norm.weight", s_.hidden, ForgeFill::kOnes);
      s_.IsDelta(layer_) ? Delta() : Attention();
      const bool after = s_.kind == ForgeArch::kQwen35Moe || s_.kind == ForgeArch::kGptOss;
      Vector(after ? "post_attention_norm.weight" : "ffn_norm.weight", s_.hidden, ForgeFill::kOnes);
      Experts();
    }
    prefix_.clear();
    layer_ = 0;
    Vector("output_norm.weight", s_.hidden, ForgeFill::kOnes);
    Add("output.weight", {s_.hidden, s_.vocab}, r_.head, ForgeFill::kHead);
    if (!status_.ok()) return status_;
    return std::move(out_);
  }

 private:
  void Add(const char* name, std::vector<uint64_t> dims, WeightType type, ForgeFill fill) {
    if (!status_.ok()) return;
    const std::optional<uint64_t> row = RowBytes(type, dims[0]);
    const WeightTypeInfo& info = InfoOf(type);
    if (!row) {
      status_ = Status(
          Code::kUsage,
          fmt::format("rows of {} are no whole number of {} blocks of {}", dims[0], info.name,
                      info.block_elems),
          fmt::format("shape {}, tensor {}{}", s_.name, prefix_, name),
          fmt::format("use sizes that are multiples of {} or another --recipe", info.block_elems));
      return;
    }
    uint64_t bytes = *row;
    for (size_t i = 1; i < dims.size(); ++i) bytes *= dims[i];  // < 2^64: CheckShape caps them all
    out_.push_back({prefix_ + name, std::move(dims), type, fill, layer_, bytes});
  }
  void Matrix(const char* name, uint64_t cols, uint64_t rows) {
    Add(name, {cols, rows}, r_.matrices, ForgeFill::kBulk);
  }
  void Vector(const char* name, uint64_t n, ForgeFill fill) {
    Add(name, {n}, WeightType::kF32, fill);
  }

  void Attention() {
    const bool oss = s_.kind == ForgeArch::kGptOss, olmoe = s_.kind == ForgeArch::kOlmoe;
    const uint64_t q = uint64_t{s_.heads} * s_.head_dim, kv = uint64_t{s_.kv_heads} * s_.head_dim;
    // qwen35moe: each head's query is followed by its gate.
    Matrix("attn_q.weight", s_.hidden, s_.kind == ForgeArch::kQwen35Moe ? 2 * q : q);
    Matrix("attn_k.weight", s_.hidden, kv);
    Matrix("attn_v.weight", s_.hidden, kv);
    Matrix("attn_output.weight", q, s_.hidden);
    if (oss) {
      Vector("attn_q.bias", q, ForgeFill::kBias);
      Vector("attn_k.bias", kv, ForgeFill::kBias);
      Vector("attn_v.bias", kv, ForgeFill::kBias);
      Vector("attn_output.bias", s_.hidden, ForgeFill::kBias);
      Vector("attn_sinks.weight", s_.heads, ForgeFill::kSinks);
    } else {
      Vector("attn_q_norm.weight", olmoe ? q : s_.head_dim, ForgeFill::kOnes);
      Vector("attn_k_norm.weight", olmoe ? kv : s_.head_dim, ForgeFill::kOnes);
    }
  }

  void Delta() {
    const uint64_t keys = uint64_t{s_.key_heads} * s_.delta_dim;
    const uint64_t values = uint64_t{s_.value_heads} * s_.delta_dim;
    const uint64_t channels = 2 * keys + values;
    Matrix("attn_qkv.weight", s_.hidden, channels);
    Matrix("attn_gate.weight", s_.hidden, values);
    Matrix("ssm_beta.weight", s_.hidden, s_.value_heads);
    Matrix("ssm_alpha.weight", s_.hidden, s_.value_heads);
    Add("ssm_conv1d.weight", {s_.conv_kernel, channels}, WeightType::kF32, ForgeFill::kConv);
    Vector("ssm_dt.bias", s_.value_heads, ForgeFill::kTimeStep);
    Vector("ssm_a", s_.value_heads, ForgeFill::kDecay);
    Vector("ssm_norm.weight", s_.delta_dim, ForgeFill::kOnes);
    Matrix("ssm_out.weight", values, s_.hidden);
  }

  void Experts() {
    const uint64_t h = s_.hidden, ff = s_.expert_ff, n = s_.experts;
    Add("ffn_gate_inp.weight", {h, n}, WeightType::kF32, ForgeFill::kRouter);
    Add("ffn_gate_exps.weight", {h, ff, n}, r_.experts, ForgeFill::kBulk);
    Add("ffn_up_exps.weight", {h, ff, n}, r_.experts, ForgeFill::kBulk);
    Add("ffn_down_exps.weight", {ff, h, n}, r_.experts, ForgeFill::kBulk);
    if (s_.kind == ForgeArch::kGptOss) {
      Vector("ffn_gate_inp.bias", n, ForgeFill::kZeros);
      Add("ffn_gate_exps.bias", {ff, n}, WeightType::kF32, ForgeFill::kBias);
      Add("ffn_up_exps.bias", {ff, n}, WeightType::kF32, ForgeFill::kBias);
      Add("ffn_down_exps.bias", {h, n}, WeightType::kF32, ForgeFill::kBias);
    }
    if (s_.kind != ForgeArch::kQwen35Moe) return;
    Vector("ffn_gate_inp_shexp.weight", h, ForgeFill::kBias);
    Add("ffn_gate_shexp.weight", {h, s_.shared_ff}, r_.experts, ForgeFill::kBulk);
    Add("ffn_up_shexp.weight", {h, s_.shared_ff}, r_.experts, ForgeFill::kBulk);
    Add("ffn_down_shexp.weight", {s_.shared_ff, h}, r_.experts, ForgeFill::kBulk);
  }

  const ForgeShape& s_;
  const ForgeRecipe& r_;
  std::string prefix_;
  uint32_t layer_ = 0;
  std::vector<ForgeTensor> out_;
  Status status_;
};

template <typename List, typename Name>
std::string Joined(const List& list, Name name) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + std::string(name(item));
  return text;
}

}  // namespace

std::vector<std::string> ForgeShapeNames() {
  std::vector<std::string> names;
  for (const ForgeShape& shape : AllShapes()) names.push_back(shape.name);
  return names;
}

Result<ForgeShape> FindForgeShape(const std::string& name, const ForgeOverrides& overrides) {
  for (ForgeShape& shape : AllShapes()) {
    if (shape.name != name) continue;
    Override(&shape, overrides);
    SLUICE_TRY(CheckShape(shape));
    return shape;
  }
  return Status(Code::kUsage, fmt::format("unknown shape '{}'", name.substr(0, 60)), "",
                "the shapes are " + Joined(ForgeShapeNames(), [](const auto& s) { return s; }));
}

Result<ForgeRecipe> FindForgeRecipe(const std::string& name) {
  for (const ForgeRecipe& recipe : kRecipes) {
    if (recipe.name == name) return recipe;
  }
  return Status(Code::kUsage, fmt::format("unknown recipe '{}'", name.substr(0, 60)), "",
                "the recipes are " + Joined(kRecipes, [](const auto& r) { return r.name; }));
}

Result<std::vector<ForgeTensor>> ForgeTensors(const ForgeShape& shape, const ForgeRecipe& recipe) {
  return Lister(shape, recipe).List();
}

}  // namespace sluice
