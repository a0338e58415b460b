#include "model/config_common.h"

#include <fmt/format.h>

#include <cmath>

#include "base/limits.h"
#include "formats/gguf.h"
#include "formats/printable.h"

namespace sluice {
namespace {

struct ArchRow {
  Arch arch;
  const char* gguf;
  const char* hf_type;
  const char* hf_class;  // without ForCausalLM, ForConditionalGeneration
};

// The first row of an architecture gives its GGUF name; rows with an empty one are further HF
// spellings.
constexpr ArchRow kArchs[] = {
    {Arch::kLlama, "llama", "llama", "Llama"},
    {Arch::kLlama, "", "mistral", "Mistral"},
    {Arch::kLlama, "", "mixtral", "Mixtral"},
    {Arch::kQwen2, "qwen2", "qwen2", "Qwen2"},
    {Arch::kQwen3, "qwen3", "qwen3", "Qwen3"},
    {Arch::kGemma3, "gemma3", "gemma3", "Gemma3"},
    {Arch::kQwen3Moe, "qwen3moe", "qwen3_moe", "Qwen3Moe"},
    {Arch::kOlmoe, "olmoe", "olmoe", "Olmoe"},
    {Arch::kGraniteMoe, "granitemoe", "granitemoe", "GraniteMoe"},
    {Arch::kGraniteMoe, "", "granitemoeshared", "GraniteMoeShared"},
    {Arch::kGranite, "granite", "granite", "Granite"},
    {Arch::kGptOss, "gpt-oss", "gpt_oss", "GptOss"},
    {Arch::kQwen3Next, "qwen3next", "qwen3_next", "Qwen3Next"},
    {Arch::kQwen35Moe, "qwen35moe", "qwen3_5_moe", "Qwen3_5Moe"},
    {Arch::kQwen35, "qwen35", "qwen3_5", "Qwen3_5"},
    {Arch::kDeepseek2, "deepseek2", "deepseek_v2", "DeepseekV2"},
    {Arch::kDeepseek2, "", "deepseek_v3", "DeepseekV3"},
};

std::string_view WithoutSuffix(std::string_view text, std::string_view suffix) {
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return text;
}

Status Bad(std::string what, const std::string& where) {
  return Status(Code::kBadModel, std::move(what), where);
}

Status InRange(const char* what, uint64_t value, uint64_t low, uint64_t high,
               const std::string& where) {
  if (value >= low && value <= high) return Status();
  return Bad(fmt::format("{} is {}, it must be from {} to {}", what, value, low, high), where);
}

Status Finite(const char* what, double value, const std::string& where) {
  if (std::isfinite(value)) return Status();
  return Bad(fmt::format("{} is not a finite number", what), where);
}

Status CheckRope(const RopeConfig& rope, uint32_t width, const std::string& where) {
  if (rope.dims == 0 || rope.dims % 2 != 0 || rope.dims > width) {
    return Bad(fmt::format("{} rotated dimensions (rope.dimension_count) do not fit a head of {}",
                           rope.dims, width),
               where);
  }
  SLUICE_TRY(Finite("the RoPE base", rope.theta, where));
  SLUICE_TRY(Finite("the RoPE attention factor", rope.attn_factor, where));
  if (rope.theta <= 1) return Bad("the RoPE base must be above 1", where);
  if (!std::isfinite(rope.factor) || rope.factor <= 0) {
    return Bad("the RoPE scaling factor must be above 0", where);
  }
  const bool needs_original =
      rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLlama3;
  if (needs_original && rope.original_context == 0) {
    return Bad("RoPE scaling needs the original context length", where);
  }
  if (rope.scaling == RopeScaling::kYarn) {
    if (!(rope.beta_fast > 0) || !(rope.beta_slow > 0) || !std::isfinite(rope.beta_fast) ||
        !std::isfinite(rope.beta_slow)) {
      return Bad("yarn's beta_fast and beta_slow must be above 0", where);
    }
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    const float low = rope.low_freq_factor, high = rope.high_freq_factor;
    if (!(low > 0) || !(high > low) || !std::isfinite(high)) {
      return Bad("llama3 RoPE scaling needs 0 < low_freq_factor < high_freq_factor", where);
    }
  }
  return Status();
}

Status CheckMoe(const ModelConfig& c, const std::string& where) {
  const MoeConfig& moe = c.moe;
  if (moe.experts == 0) return Status();
  SLUICE_TRY(InRange("expert_count", moe.experts, 1, limits::kExpertsMax, where));
  SLUICE_TRY(InRange("expert_used_count", moe.used, 1,
                     std::min(moe.experts, limits::kExpertsUsedMax), where));
  SLUICE_TRY(InRange("the expert width", moe.expert_ff, 1, limits::kHiddenMax, where));
  SLUICE_TRY(InRange("the shared expert width", moe.shared_ff, 0, limits::kHiddenMax, where));
  SLUICE_TRY(Finite("expert_weights_scale", moe.weights_scale, where));
  if (moe.groups <= 1) return Status();
  if (moe.experts % moe.groups != 0) {
    return Bad(fmt::format("{} experts do not divide into {} groups", moe.experts, moe.groups),
               where);
  }
  SLUICE_TRY(InRange("expert_group_used_count", moe.groups_used, 1, moe.groups, where));
  if (moe.used > uint64_t{moe.experts / moe.groups} * moe.groups_used) {
    return Bad("the groups used hold fewer experts than are used per token", where);
  }
  if (moe.groups_by_top2 && moe.experts / moe.groups < 2) {
    return Bad("expert groups of one cannot be scored by their best two", where);
  }
  return Status();
}

Status CheckDelta(const DeltaNetConfig& d, const std::string& where) {
  SLUICE_TRY(InRange("the DeltaNet key head count", d.key_heads, 1, limits::kHeadsMax, where));
  SLUICE_TRY(InRange("the DeltaNet value head count", d.value_heads, 1, limits::kHeadsMax, where));
  SLUICE_TRY(InRange("the DeltaNet key head size", d.key_dim, 1, limits::kHeadDimMax, where));
  SLUICE_TRY(InRange("the DeltaNet value head size", d.value_dim, 1, limits::kHeadDimMax, where));
  SLUICE_TRY(InRange("the DeltaNet conv kernel", d.conv_kernel, 1, 64, where));
  if (d.value_heads % d.key_heads == 0) return Status();
  return Bad(fmt::format("{} DeltaNet value heads do not divide over {} key heads", d.value_heads,
                         d.key_heads),
             where);
}

Status CheckMla(const ModelConfig& c, const std::string& where) {
  const MlaConfig& mla = c.mla;
  SLUICE_TRY(InRange("kv_lora_rank", mla.kv_rank, 1, limits::kHiddenMax, where));
  SLUICE_TRY(InRange("q_lora_rank", mla.q_rank, 0, limits::kHiddenMax, where));
  SLUICE_TRY(InRange("the MLA part without RoPE", mla.nope_dim, 1, limits::kHeadDimMax, where));
  SLUICE_TRY(InRange("the MLA part with RoPE", mla.rope_dim, 2, limits::kHeadDimMax, where));
  return InRange("the MLA value head size", mla.value_dim, 1, limits::kHeadDimMax, where);
}

Status CheckLayers(const ModelConfig& c, const std::string& where) {
  if (c.heads.size() != c.layers || c.kv_heads.size() != c.layers || c.kinds.size() != c.layers ||
      c.layer_ff.size() != c.layers) {
    return Bad("per-layer settings do not cover all layers", where);
  }
  bool delta = false, sliding = false;
  for (uint32_t i = 0; i < c.layers; ++i) {
    SLUICE_TRY(InRange("head_count", c.heads[i], 1, limits::kHeadsMax, where));
    SLUICE_TRY(InRange("head_count_kv", c.kv_heads[i], 1, limits::kHeadsMax, where));
    if (c.heads[i] % c.kv_heads[i] != 0) {
      return Bad(fmt::format("head_count {} is not a multiple of head_count_kv {} (layer {})",
                             c.heads[i], c.kv_heads[i], i),
                 where);
    }
    if (!c.IsMoeLayer(i)) {
      SLUICE_TRY(InRange("feed_forward_length", c.layer_ff[i], 1, limits::kHiddenMax, where));
    }
    delta |= c.kinds[i] == LayerKind::kDeltaNet;
    sliding |= c.kinds[i] == LayerKind::kSliding;
  }
  if (delta) SLUICE_TRY(CheckDelta(c.delta, where));
  if (sliding) {
    SLUICE_TRY(InRange("the sliding window", c.sliding_window, 1, limits::kContextMax, where));
    SLUICE_TRY(CheckRope(c.rope_sliding, c.head_dim, where));
  }
  return Status();
}

}  // namespace

const char* ArchName(Arch arch) {
  for (const ArchRow& row : kArchs) {
    if (row.arch == arch) return row.gguf;
  }
  return "?";
}

std::optional<Arch> ArchFromGguf(std::string_view name) {
  for (const ArchRow& row : kArchs) {
    if (!name.empty() && name == row.gguf) return row.arch;
  }
  return std::nullopt;
}

std::optional<Arch> ArchFromHf(std::string_view name) {
  const std::string_view type = WithoutSuffix(name, "_text");
  const std::string_view stem =
      WithoutSuffix(WithoutSuffix(name, "ForCausalLM"), "ForConditionalGeneration");
  for (const ArchRow& row : kArchs) {
    if (type == row.hf_type || stem == row.hf_class) return row.arch;
  }
  return std::nullopt;
}

ArchTraits TraitsOf(Arch arch) {
  ArchTraits t;
  switch (arch) {
    case Arch::kLlama:
    case Arch::kGranite:
    case Arch::kGraniteMoe:
      t.adjacent_gguf = true;
      break;
    case Arch::kQwen2:
      t.qkv_bias = true;
      break;
    case Arch::kQwen3:
    case Arch::kQwen3Moe:
      t.head_norms = true;
      break;
    case Arch::kGemma3:
      t.head_norms = t.four_norms = t.one_plus = true;
      break;
    case Arch::kOlmoe:
      t.whole_norms = true;
      break;
    case Arch::kGptOss:
      t.qkv_bias = t.all_bias = true;
      break;
    case Arch::kQwen3Next:
    case Arch::kQwen35:
    case Arch::kQwen35Moe:
      t.head_norms = t.gated_attention = t.delta_net = t.one_plus = true;
      break;
    case Arch::kDeepseek2:
      t.mla = t.adjacent_gguf = t.adjacent_hf = true;
      break;
  }
  return t;
}

Status CheckConfig(const ModelConfig& c, const std::string& where) {
  SLUICE_TRY(InRange("block_count", c.layers, 1, limits::kLayersMax, where));
  SLUICE_TRY(InRange("embedding_length", c.hidden, 1, limits::kHiddenMax, where));
  SLUICE_TRY(InRange("the vocabulary size", c.vocab, 1, limits::kVocabMax, where));
  SLUICE_TRY(InRange("context_length", c.context, 1, limits::kContextMax, where));
  SLUICE_TRY(InRange("the key head size", c.head_dim, 1, limits::kHeadDimMax, where));
  SLUICE_TRY(InRange("the value head size", c.head_dim_v, 1, limits::kHeadDimMax, where));
  const std::pair<const char*, float> numbers[] = {
      {"the RMSNorm epsilon", c.rms_eps},
      {"the attention scale", c.attention_scale},
      {"embedding_scale", c.embedding_scale},
      {"residual_scale", c.residual_scale},
      {"logit_scale", c.logit_scale},
      {"final_logit_softcapping", c.final_softcap},
      {"clamp_kqv", c.clamp_qkv},
      {"swiglu_limit", c.swiglu_limit},
      {"swiglu_alpha", c.swiglu_alpha},
  };
  for (const auto& [what, value] : numbers) SLUICE_TRY(Finite(what, value, where));
  if (c.rms_eps < 0 || c.rms_eps >= 1) return Bad("the RMSNorm epsilon is out of range", where);
  if (c.logit_scale == 0) return Bad("logit_scale must not be 0", where);
  if (c.attention_scale == 0) return Bad("the attention scale must not be 0", where);
  if (c.final_softcap < 0 || c.clamp_qkv < 0 || c.swiglu_limit < 0) {
    return Bad("softcap, clamp and swiglu limits must not be negative", where);
  }
  SLUICE_TRY(CheckMoe(c, where));
  SLUICE_TRY(CheckLayers(c, where));
  const bool mla = TraitsOf(c.arch).mla;
  if (mla) SLUICE_TRY(CheckMla(c, where));
  return CheckRope(c.rope, mla ? c.mla.rope_dim : c.head_dim, where);
}

const char* RopeScalingName(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kYarn:
      return "yarn";
    case RopeScaling::kNone:
      break;
  }
  return "none";
}

Status CheckOverride(const RopeOverride& rope, float factor, const std::string& where) {
  if (!rope.any()) return Status();
  const auto bad = [&](std::string what, std::string hint = {}) {
    return Status(Code::kUsage, std::move(what), where, std::move(hint));
  };
  if (rope.factor != 0 && !(std::isfinite(rope.factor) && rope.factor > 0)) {
    return bad(fmt::format("--rope-scale {} is not above 0", rope.factor));
  }
  if (rope.theta != 0 && !(std::isfinite(rope.theta) && rope.theta > 1)) {
    return bad(fmt::format("--rope-freq-base {} is not above 1", rope.theta));
  }
  if (rope.original_context > limits::kContextMax) {
    return bad(fmt::format("--yarn-orig-ctx {} is out of range", rope.original_context));
  }
  if (!rope.scaling) return Status();
  if (*rope.scaling == RopeScaling::kNone) {
    if (rope.factor == 0) return Status();
    return bad("--rope-scaling none contradicts --rope-scale", "give one of them");
  }
  if (factor != 0) return Status();
  return bad(fmt::format("--rope-scaling {} needs a factor", RopeScalingName(*rope.scaling)),
             "add --rope-scale F, such as 4 for four times the context");
}

Status WidenContext(const RopeOverride& rope, ModelConfig* config) {
  const RopeConfig& now = config->rope;
  if (rope.original_context != 0 && now.scaling != RopeScaling::kYarn) {
    return Status(Code::kUsage, "--yarn-orig-ctx has no effect without yarn", config->name,
                  "add --rope-scaling yarn --rope-scale F");
  }
  if (rope.factor == 0 || now.scaling == RopeScaling::kNone) return Status();
  const uint32_t base =
      now.scaling == RopeScaling::kLinear ? config->context : now.original_context;
  const double wide = std::min<double>(double{now.factor} * base, limits::kContextMax);
  config->context = std::max(config->context, static_cast<uint32_t>(wide));
  return Status();
}

double YarnMscale(double scale, double factor) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

Status UnsupportedArchitecture(std::string_view name, const std::string& where) {
  return Status(Code::kBadModel, fmt::format("unsupported architecture '{}'", Printable(name)),
                where, "the file may be fine; this version does not know the architecture");
}

}  // namespace sluice
