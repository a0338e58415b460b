// ConfigFromGguf: metadata keys to a ModelConfig. Keys and defaults: docs/architectures.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/limits.h"
#include "formats/gguf.h"
#include "formats/printable.h"
#include "model/config_common.h"

namespace sluice {
namespace {

// Reads `arch.` keys. The first failure is kept and later reads return their defaults, so that a
// run of reads is checked once.
class Keys {
 public:
  Keys(const GgufMetadata& metadata, std::string_view arch, const std::string& where)
      : metadata_(metadata), prefix_(std::string(arch) + "."), where_(where) {}

  const Status& status() const { return status_; }
  bool Has(const char* key) const { return Find(key) != nullptr; }

  uint32_t Count(const char* key, uint32_t fallback) {
    const GgufValue* value = Find(key);
    return value == nullptr ? fallback : Whole(key, value->AsU64());
  }
  uint32_t Required(const char* key) {
    if (!Has(key)) Fail(fmt::format("key '{}{}' is missing", prefix_, key));
    return Count(key, 0);
  }
  float Real(const char* key, float fallback) {
    const GgufValue* value = Find(key);
    if (value == nullptr) return fallback;
    const std::optional<double> real = value->AsF64();
    if (!real || !std::isfinite(*real)) {
      Fail(fmt::format("key '{}{}' is not a finite number", prefix_, key));
      return fallback;
    }
    return static_cast<float>(*real);
  }
  std::string_view Text(const char* key, std::string_view fallback) {
    const GgufValue* value = Find(key);
    if (value == nullptr) return fallback;
    const std::optional<std::string_view> text = value->AsString();
    if (!text) Fail(fmt::format("key '{}{}' is not a string", prefix_, key));
    return text.value_or(fallback);
  }
  bool Flag(const char* key, bool fallback) {
    const GgufValue* value = Find(key);
    if (value == nullptr) return fallback;
    const std::optional<bool> flag = value->AsBool();
    if (!flag) Fail(fmt::format("key '{}{}' is not a bool", prefix_, key));
    return flag.value_or(fallback);
  }
  // One number for all of n layers, or a list with one per layer.
  std::vector<uint32_t> PerLayer(const char* key, uint32_t n, uint32_t fallback) {
    const GgufValue* value = Find(key);
    if (value == nullptr || value->type != GgufValueType::kArray) {
      return std::vector<uint32_t>(n, Count(key, fallback));
    }
    const auto list = value->AsU64List(limits::kLayersMax);
    if (!list || list->size() < n) {
      Fail(fmt::format("key '{}{}' is not a list of {} numbers", prefix_, key, n));
      return std::vector<uint32_t>(n, fallback);
    }
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < n; ++i) out.push_back(Whole(key, (*list)[i]));
    return out;
  }
  bool IsList(const char* key) const {
    const GgufValue* value = Find(key);
    return value != nullptr && value->type == GgufValueType::kArray;
  }
  void Fail(std::string what) {
    if (status_.ok()) status_ = Status(Code::kBadModel, std::move(what), where_);
  }

 private:
  const GgufValue* Find(const char* key) const { return metadata_.Find(prefix_ + key); }
  uint32_t Whole(const char* key, std::optional<uint64_t> value) {
    if (value && *value <= UINT32_MAX) return static_cast<uint32_t>(*value);
    Fail(fmt::format("key '{}{}' is not a whole number below 2^32", prefix_, key));
    return 0;
  }

  const GgufMetadata& metadata_;
  const std::string prefix_;
  const std::string& where_;
  Status status_;
};

class Builder {
 public:
  Builder(const GgufMetadata& metadata, const Catalog& catalog, std::string_view arch,
          const std::string& where, const RopeOverride& rope)
      : metadata_(metadata),
        catalog_(catalog),
        where_(where),
        override_(rope),
        k_(metadata, arch, where) {
    c_.arch_name = std::string(arch);
  }

  Result<ModelConfig> Build(Arch arch) {
    c_.arch = arch;
    traits_ = TraitsOf(arch);
    Sizes();
    SLUICE_TRY(k_.status());
    SLUICE_TRY(Heads());
    Kinds();
    Moe();
    if (traits_.delta_net) Delta();
    if (traits_.mla) Mla();
    SLUICE_TRY(k_.status());
    SLUICE_TRY(Rope());
    Scales();
    SLUICE_TRY(k_.status());
    SLUICE_TRY(CheckConfig(c_, where_));
    return std::move(c_);
  }

 private:
  // Rows of a tensor (dims[1]) when the file has it, else the fallback.
  uint32_t RowsOf(const std::string& tensor, uint32_t fallback) const {
    const TensorInfo* info = catalog_.Find(tensor);
    return info == nullptr || info->dims[1] > UINT32_MAX ? fallback
                                                         : static_cast<uint32_t>(info->dims[1]);
  }

  void Sizes() {
    const auto name = metadata_.String("general.name");
    c_.name = name ? Printable(*name) : std::string();
    c_.layers = k_.Required("block_count");
    c_.mtp_layers = k_.Count("nextn_predict_layers", 0);
    if (c_.mtp_layers >= c_.layers && c_.mtp_layers > 0) {
      k_.Fail("nextn_predict_layers is not below block_count");
    } else {
      c_.layers -= c_.mtp_layers;
    }
    if (c_.layers == 0 || c_.layers > limits::kLayersMax) {
      k_.Fail(
          fmt::format("block_count is {}, it must be from 1 to {}", c_.layers, limits::kLayersMax));
    }
    c_.hidden = k_.Required("embedding_length");
    // A file without the embedding still gets a config (the missing tensor is named when binding).
    c_.vocab = RowsOf("token_embd.weight", k_.Count("vocab_size", 1));
    c_.context = std::min(k_.Required("context_length"), limits::kContextMax);
    if (!k_.Has("attention.layer_norm_rms_epsilon")) {
      k_.Fail(c_.arch_name + ".attention.layer_norm_rms_epsilon is missing");
    }
    c_.rms_eps = k_.Real("attention.layer_norm_rms_epsilon", 0);
    c_.tied_head = catalog_.Find("output.weight") == nullptr;
  }

  Status Heads() {
    if (!k_.Has("attention.head_count")) k_.Required("attention.head_count");
    SLUICE_TRY(k_.status());
    c_.heads = k_.PerLayer("attention.head_count", c_.layers, 0);
    c_.kv_heads = k_.Has("attention.head_count_kv")
                      ? k_.PerLayer("attention.head_count_kv", c_.layers, 0)
                      : c_.heads;
    if (traits_.delta_net) {  // lists may hold 0 for layers without attention
      FillZeros(&c_.heads);
      FillZeros(&c_.kv_heads);
    }
    const uint32_t most = *std::max_element(c_.heads.begin(), c_.heads.end());
    if (most == 0) {
      return Status(Code::kBadModel, c_.arch_name + ".attention.head_count is 0", where_);
    }
    c_.head_dim = k_.Count("attention.key_length", c_.hidden / most);
    c_.head_dim_v = k_.Count("attention.value_length", c_.hidden / most);
    c_.layer_ff = k_.PerLayer("feed_forward_length", c_.layers, 0);
    c_.ff = *std::max_element(c_.layer_ff.begin(), c_.layer_ff.end());
    return k_.status();
  }
  static void FillZeros(std::vector<uint32_t>* counts) {
    const uint32_t most = *std::max_element(counts->begin(), counts->end());
    std::replace(counts->begin(), counts->end(), 0u, most);
  }

  // kinds[i] = special except in every n-th layer, or as a list of bools says.
  void Pattern(const char* key, uint32_t fallback, LayerKind special) {
    if (k_.IsList(key)) {
      const std::vector<uint32_t> flags = k_.PerLayer(key, c_.layers, 0);
      for (uint32_t i = 0; i < c_.layers; ++i) {
        if (flags[i] != 0) c_.kinds[i] = special;
      }
      return;
    }
    const uint32_t every = k_.Count(key, fallback);
    if (every == 0) return k_.Fail(fmt::format("{}.{} is 0", c_.arch_name, key));
    for (uint32_t i = 0; i < c_.layers; ++i) {
      if ((i + 1) % every != 0) c_.kinds[i] = special;
    }
  }

  void Kinds() {
    c_.kinds.assign(c_.layers, LayerKind::kFull);
    if (traits_.delta_net) {
      const bool list = k_.Has("attention.recurrent_layers");
      Pattern(list ? "attention.recurrent_layers" : "full_attention_interval", 4,
              LayerKind::kDeltaNet);
      return;
    }
    if (c_.arch != Arch::kGemma3 && c_.arch != Arch::kGptOss) return;
    c_.sliding_window = k_.Count("attention.sliding_window", 0);
    if (c_.sliding_window == 0) {
      if (c_.arch == Arch::kGptOss) k_.Required("attention.sliding_window");
      return;
    }
    Pattern("attention.sliding_window_pattern", c_.arch == Arch::kGemma3 ? 6 : 2,
            LayerKind::kSliding);
  }

  void Moe() {
    MoeConfig& moe = c_.moe;
    moe.experts = k_.Count("expert_count", 0);
    if (moe.experts == 0) {
      const bool must = c_.arch == Arch::kQwen3Moe || c_.arch == Arch::kOlmoe ||
                        c_.arch == Arch::kGraniteMoe || c_.arch == Arch::kGptOss ||
                        c_.arch == Arch::kQwen3Next || c_.arch == Arch::kQwen35Moe;
      if (must) k_.Required("expert_count");
      if (must) k_.Fail(c_.arch_name + ".expert_count is 0");
      return;
    }
    moe.used = k_.Required("expert_used_count");
    moe.expert_ff = k_.Count("expert_feed_forward_length", c_.ff);
    moe.shared_ff = k_.Count("expert_shared_feed_forward_length", 0);
    if (moe.shared_ff == 0 && c_.arch == Arch::kDeepseek2) {
      const uint64_t width = uint64_t{k_.Count("expert_shared_count", 0)} * moe.expert_ff;
      moe.shared_ff = static_cast<uint32_t>(std::min<uint64_t>(width, UINT32_MAX));
    } else if (moe.shared_ff == 0) {
      moe.shared_ff = RowsOf("blk.0.ffn_up_shexp.weight", 0);
    }
    moe.weights_scale = k_.Real("expert_weights_scale", 1);
    if (moe.weights_scale == 0) moe.weights_scale = 1;  // some converters write 0 for "none"
    moe.leading_dense_layers = std::min(k_.Count("leading_dense_block_count", 0), c_.layers);
    if (moe.leading_dense_layers > 0) {
      moe.dense_layer.assign(c_.layers, 0);
      std::fill_n(moe.dense_layer.begin(), moe.leading_dense_layers, uint8_t{1});
    }
    Router();
  }

  void Router() {
    MoeConfig& moe = c_.moe;
    switch (c_.arch) {
      case Arch::kOlmoe:
        break;
      case Arch::kGraniteMoe:
        moe.scores = RouterScores::kSoftmaxChosen;
        break;
      case Arch::kGptOss:
        moe.scores = RouterScores::kSoftmaxChosen;
        moe.router_bias = true;
        break;
      case Arch::kQwen3Next:
      case Arch::kQwen35Moe:
        moe.normalise = true;
        moe.shared_gated = moe.shared_ff > 0;
        break;
      case Arch::kDeepseek2:
        return DeepseekRouter();
      default:  // qwen3moe, and llama with experts
        moe.normalise = k_.Flag("expert_weights_norm", true);
        break;
    }
  }

  void DeepseekRouter() {
    MoeConfig& moe = c_.moe;
    const uint32_t gating = k_.Count("expert_gating_func", 0);
    if (gating > 3) k_.Fail(fmt::format("expert_gating_func {} is not known", gating));
    if (gating == 2) moe.scores = RouterScores::kSigmoid;
    if (gating == 3) moe.scores = RouterScores::kSoftmaxChosen;
    moe.normalise = k_.Flag("expert_weights_norm", false);
    moe.groups = k_.Count("expert_group_count", 0);
    moe.groups_used = k_.Count("expert_group_used_count", 0);
    moe.groups_by_top2 = moe.groups > 1 && gating == 2;
    const std::string bias = fmt::format("blk.{}.exp_probs_b.bias", moe.leading_dense_layers);
    moe.router_bias = catalog_.Find(bias) != nullptr;
  }

  void Delta() {
    DeltaNetConfig& d = c_.delta;
    d.conv_kernel = k_.Required("ssm.conv_kernel");
    d.key_dim = k_.Required("ssm.state_size");
    d.key_heads = k_.Required("ssm.group_count");
    d.value_heads = k_.Required("ssm.time_step_rank");
    const uint32_t inner = k_.Required("ssm.inner_size");
    if (d.value_heads == 0 || inner % d.value_heads != 0) {
      return k_.Fail("ssm.inner_size is not a multiple of ssm.time_step_rank");
    }
    d.value_dim = inner / d.value_heads;
    d.tiled_heads = c_.arch != Arch::kQwen3Next;
    const auto first = std::find(c_.kinds.begin(), c_.kinds.end(), LayerKind::kDeltaNet);
    if (first == c_.kinds.end()) return;
    const std::string prefix = fmt::format("blk.{}.", first - c_.kinds.begin());
    d.grouped_qkvz = catalog_.Find(prefix + "ssm_in.weight") != nullptr;
    d.grouped_ba = catalog_.Find(prefix + "ssm_ba.weight") != nullptr;
  }

  void Mla() {
    MlaConfig& mla = c_.mla;
    mla.kv_rank = k_.Required("attention.kv_lora_rank");
    mla.q_rank = k_.Count("attention.q_lora_rank", 0);
    mla.rope_dim = k_.Required("rope.dimension_count");
    // Files from before the absorbed form give the plain head sizes under the plain keys.
    const uint32_t key = k_.Count("attention.key_length_mla", c_.head_dim);
    mla.value_dim = k_.Count("attention.value_length_mla", c_.head_dim_v);
    if (key <= mla.rope_dim) return k_.Fail("key_length is not above rope.dimension_count");
    mla.nope_dim = key - mla.rope_dim;
    c_.head_dim = key;
    c_.head_dim_v = mla.value_dim;
    c_.kv_heads.assign(c_.layers, 1);
  }

  Status Rope() {
    RopeConfig& rope = c_.rope;
    rope.dims = k_.Count("rope.dimension_count", c_.head_dim);
    rope.adjacent = traits_.adjacent_gguf;
    rope.theta = override_.theta != 0 ? override_.theta : k_.Real("rope.freq_base", 10000);
    rope.factor = override_.factor != 0
                      ? override_.factor
                      : k_.Real("rope.scaling.factor", k_.Real("rope.scale_linear", 0));
    SLUICE_TRY(CheckOverride(override_, rope.factor, where_));
    const bool scaled = rope.factor != 0 && rope.factor != 1;
    if (!scaled) rope.factor = 1;
    std::string_view type = k_.Text("rope.scaling.type", "linear");
    if (override_.scaling) type = RopeScalingName(*override_.scaling);
    if (type == "linear") {
      rope.scaling = scaled ? RopeScaling::kLinear : RopeScaling::kNone;
    } else if (type == "yarn") {
      SLUICE_TRY(Yarn());
    } else if (type != "none") {
      return Status(Code::kBadModel,
                    fmt::format("rope.scaling.type '{}' is not supported", Printable(type)),
                    where_);
    }
    if (rope.scaling == RopeScaling::kNone) rope.factor = 1;
    SLUICE_TRY(WidenContext(override_, &c_));
    c_.rope_sliding = rope;
    if (c_.arch == Arch::kGemma3) {  // sliding layers: their own base, no scaling
      c_.rope_sliding.theta = k_.Real("rope.freq_base_swa", 10000);
      c_.rope_sliding.scaling = RopeScaling::kNone;
      c_.rope_sliding.factor = 1;
      c_.rope_sliding.attn_factor = 1;
    }
    return k_.status();
  }

  Status Yarn() {
    RopeConfig& rope = c_.rope;
    rope.scaling = RopeScaling::kYarn;
    rope.original_context = override_.original_context != 0
                                ? override_.original_context
                                : k_.Count("rope.scaling.original_context_length", c_.context);
    rope.beta_fast = k_.Real("rope.scaling.yarn_beta_fast", 32);
    rope.beta_slow = k_.Real("rope.scaling.yarn_beta_slow", 1);
    rope.truncate = c_.arch != Arch::kGptOss;  // the file does not say; gpt-oss is untruncated
    const float ext = k_.Real("rope.scaling.yarn_ext_factor", 1);
    if (ext != 1 && ext >= 0) {
      return Status(Code::kBadModel,
                    fmt::format("rope.scaling.yarn_ext_factor {} is not supported", ext), where_);
    }
    double attn = YarnMscale(1, rope.factor);
    // deepseek2 keeps 0.1 * mscale_all_dim; its mscale is the same number, so cos and sin keep
    // their size and only the attention scale grows (Scales).
    if (traits_.mla && k_.Real("rope.scaling.yarn_log_multiplier", 0) != 0) attn = 1;
    // The converter's name for the config's attention_factor, which replaces the computed one.
    attn = k_.Real("rope.scaling.yarn_attn_factor", static_cast<float>(attn));
    rope.attn_factor = static_cast<float>(attn * k_.Real("rope.scaling.attn_factor", 1));
    return k_.status();
  }

  void Scales() {
    double scale = 1 / std::sqrt(static_cast<double>(c_.head_dim));
    const uint32_t gemma_27b_layers =
        62;  // its query scale is hidden/heads, which the file does not hold
    if (c_.arch == Arch::kGemma3 && c_.layers == gemma_27b_layers) {
      scale = 1 / std::sqrt(static_cast<double>(c_.hidden) / c_.heads[0]);
    }
    if (traits_.mla && c_.rope.scaling == RopeScaling::kYarn && c_.rope.factor > 1) {
      const double m = 1 + static_cast<double>(k_.Real("rope.scaling.yarn_log_multiplier", 0)) *
                               std::log(static_cast<double>(c_.rope.factor));
      scale *= m * m;
    }
    const float given = k_.Real("attention.scale", 0);
    c_.attention_scale = given != 0 ? given : static_cast<float>(scale);
    c_.final_softcap = k_.Real("final_logit_softcapping", 0);
    if (c_.arch == Arch::kGemma3) {
      c_.embedding_scale = std::sqrt(static_cast<float>(c_.hidden));
    }
    if (c_.arch == Arch::kOlmoe) c_.clamp_qkv = k_.Real("attention.clamp_kqv", 0);
    if (c_.arch == Arch::kGranite || c_.arch == Arch::kGraniteMoe || c_.arch == Arch::kLlama) {
      const auto scale_or_one = [&](const char* key) {
        const float value = k_.Real(key, 1);
        return value == 0 ? 1.0f : value;
      };
      c_.embedding_scale = scale_or_one("embedding_scale");
      c_.residual_scale = scale_or_one("residual_scale");
      c_.logit_scale = scale_or_one("logit_scale");
    }
  }

  const GgufMetadata& metadata_;
  const Catalog& catalog_;
  const std::string& where_;
  const RopeOverride& override_;
  Keys k_;
  ArchTraits traits_;
  ModelConfig c_;
};

}  // namespace

Result<ModelConfig> ConfigFromGguf(const GgufMetadata& metadata, const Catalog& catalog,
                                   const std::string& name, const RopeOverride& rope) {
  const std::optional<std::string_view> arch_name = metadata.String("general.architecture");
  if (!arch_name) {
    return Status(Code::kBadModel, "key 'general.architecture' is missing or not a string", name);
  }
  const std::optional<Arch> arch = ArchFromGguf(*arch_name);
  if (!arch) return UnsupportedArchitecture(*arch_name, name);
  return Builder(metadata, catalog, *arch_name, name, rope).Build(*arch);
}

}  // namespace sluice
