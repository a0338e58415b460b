// BindHf: Hugging Face tensor names to roles, per-expert and fused experts, text part of vision
// checkpoints.
#include <fmt/format.h>

#include "base/log.h"
#include "formats/hf_folder.h"
#include "model/bind_common.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

void AttentionNames(const ModelConfig& c, LayerNames& n) {
  n[M::kQ] = "self_attn.q_proj.weight";
  n[M::kK] = "self_attn.k_proj.weight";
  n[M::kV] = "self_attn.v_proj.weight";
  n[M::kO] = "self_attn.o_proj.weight";
  n[V::kQBias] = "self_attn.q_proj.bias";
  n[V::kKBias] = "self_attn.k_proj.bias";
  n[V::kVBias] = "self_attn.v_proj.bias";
  n[V::kOBias] = "self_attn.o_proj.bias";
  n[V::kQNorm] = "self_attn.q_norm.weight";
  n[V::kKNorm] = "self_attn.k_norm.weight";
  n[V::kSinks] = "self_attn.sinks";
  n[M::kMlaQa] = "self_attn.q_a_proj.weight";
  n[M::kMlaQb] = "self_attn.q_b_proj.weight";
  n[M::kMlaKvA] = "self_attn.kv_a_proj_with_mqa.weight";
  n[M::kMlaKvB] = "self_attn.kv_b_proj.weight";
  n[V::kMlaQaNorm] = "self_attn.q_a_layernorm.weight";
  n[V::kMlaKvANorm] = "self_attn.kv_a_layernorm.weight";
  n[V::kAttnNorm] = "input_layernorm.weight";
  n[V::kFfnNorm] = "post_attention_layernorm.weight";
  if (TraitsOf(c.arch).four_norms) {
    n[V::kPostAttnNorm] = "post_attention_layernorm.weight";
    n[V::kFfnNorm] = "pre_feedforward_layernorm.weight";
    n[V::kPostFfnNorm] = "post_feedforward_layernorm.weight";
  }
  n[M::kDeltaQkv] = "linear_attn.in_proj_qkv.weight";
  n[M::kDeltaZ] = "linear_attn.in_proj_z.weight";
  n[M::kDeltaBeta] = "linear_attn.in_proj_b.weight";
  n[M::kDeltaAlpha] = "linear_attn.in_proj_a.weight";
  n[M::kDeltaBa] = "linear_attn.in_proj_ba.weight";
  n[M::kDeltaQkvz] = "linear_attn.in_proj_qkvz.weight";
  n[M::kDeltaOut] = "linear_attn.out_proj.weight";
  n[V::kConv] = "linear_attn.conv1d.weight";
  n[V::kDeltaA] = "linear_attn.A_log";
  n[V::kDeltaDt] = "linear_attn.dt_bias";
  n[V::kDeltaNorm] = "linear_attn.norm.weight";
}

void MlpNames(const ModelConfig& c, LayerNames& n) {
  n[M::kGate] = "mlp.gate_proj.weight";
  n[M::kUp] = "mlp.up_proj.weight";
  n[M::kDown] = "mlp.down_proj.weight";
  n[V::kGateBias] = "mlp.gate_proj.bias";
  n[V::kUpBias] = "mlp.up_proj.bias";
  n[V::kDownBias] = "mlp.down_proj.bias";
  n[M::kRouter] = "mlp.gate.weight";
  if (c.arch == Arch::kGptOss) {
    n[M::kRouter] = "mlp.router.weight";
    n[V::kRouterBias] = "mlp.router.bias";
    n[V::kExpertGateUpBias] = "mlp.experts.gate_up_proj_bias";
    n[V::kExpertDownBias] = "mlp.experts.down_proj_bias";
  }
  if (c.arch == Arch::kDeepseek2) n[V::kRouterBias] = "mlp.gate.e_score_correction_bias";
  const bool deepseek = c.arch == Arch::kDeepseek2;
  n[M::kSharedGate] =
      deepseek ? "mlp.shared_experts.gate_proj.weight" : "mlp.shared_expert.gate_proj.weight";
  n[M::kSharedUp] =
      deepseek ? "mlp.shared_experts.up_proj.weight" : "mlp.shared_expert.up_proj.weight";
  n[M::kSharedDown] =
      deepseek ? "mlp.shared_experts.down_proj.weight" : "mlp.shared_expert.down_proj.weight";
  n[V::kSharedExpertGate] = "mlp.shared_expert_gate.weight";
}

LayerNames Names(const ModelConfig& c) {
  LayerNames n;
  AttentionNames(c, n);
  MlpNames(c, n);
  return n;
}

class HfLayerBinder : public LayerBinder {
 public:
  HfLayerBinder(Binder* binder, const ModelConfig& config, std::string model_prefix)
      : LayerBinder(binder, config, Names(config)), model_prefix_(std::move(model_prefix)) {
    // Mixtral and granite keep router and experts under another name.
    const std::string probe = model_prefix_ + "layers.0.block_sparse_moe.";
    if (binder->Has(probe + "gate.weight")) {
      names_[M::kRouter] = "block_sparse_moe.gate.weight";
    }
    if (binder->Has(probe + "router.layer.weight")) {
      names_[M::kRouter] = "block_sparse_moe.router.layer.weight";
    }
  }

 protected:
  std::string Prefix(uint32_t layer) const override {
    return fmt::format("{}layers.{}.", model_prefix_, layer);
  }

  VectorTransform TransformOf(VectorRole role) const override {
    switch (role) {
      case V::kDeltaA:
        return VectorTransform::kNegExp;
      case V::kAttnNorm:
      case V::kFfnNorm:
      case V::kPostAttnNorm:
      case V::kPostFfnNorm:
      case V::kQNorm:
      case V::kKNorm:
        return c_.norm_plus_one ? VectorTransform::kPlusOne : VectorTransform::kNone;
      default:
        return VectorTransform::kNone;
    }
  }

  Status DeltaInputs() override {
    const DeltaNetConfig& d = c_.delta;
    const uint64_t values = uint64_t{d.value_heads} * d.value_dim;
    const uint64_t channels = 2 * uint64_t{d.key_heads} * d.key_dim + values;
    if (d.grouped_qkvz) {
      SLUICE_TRY(Need(M::kDeltaQkvz, channels + values, c_.hidden));
    } else {
      SLUICE_TRY(Need(M::kDeltaQkv, channels, c_.hidden));
      SLUICE_TRY(Need(M::kDeltaZ, values, c_.hidden));
    }
    if (d.grouped_ba) return Need(M::kDeltaBa, 2 * uint64_t{d.value_heads}, c_.hidden);
    SLUICE_TRY(Need(M::kDeltaBeta, d.value_heads, c_.hidden));
    return Need(M::kDeltaAlpha, d.value_heads, c_.hidden);
  }

  Status Experts() override {
    if (c_.arch == Arch::kGptOss) return GptOssExperts();
    const uint32_t n = c_.moe.experts;
    const uint64_t ff = c_.moe.expert_ff, hidden = c_.hidden;
    ExpertSpec spec;
    const std::string fused = FusedName("gate_up_proj", "input_linear");
    if (!fused.empty()) {  // gate rows first
      SLUICE_ASSIGN(const ExpertPart both, b_.Stacked(fused, n, 2 * ff, hidden));
      spec.part[0] = SliceRows(both, 0, ff);
      spec.part[1] = SliceRows(both, ff, ff);
      SLUICE_ASSIGN(spec.part[2],
                    b_.Stacked(FusedName("down_proj", "output_linear"), n, hidden, ff));
    } else {
      const bool mixtral = b_.Has(Full("block_sparse_moe.experts.0.w1.weight"));
      const auto named = [&](const char* part, const char* letter) {
        const std::string base = mixtral ? "block_sparse_moe.experts." : "mlp.experts.";
        const std::string end = std::string(".") + (mixtral ? letter : part) + ".weight";
        return [this, base, end](uint32_t e) { return prefix_ + base + std::to_string(e) + end; };
      };
      SLUICE_ASSIGN(spec.part[0], b_.Separate(named("gate_proj", "w1"), n, ff, hidden));
      SLUICE_ASSIGN(spec.part[1], b_.Separate(named("up_proj", "w3"), n, ff, hidden));
      SLUICE_ASSIGN(spec.part[2], b_.Separate(named("down_proj", "w2"), n, hidden, ff));
    }
    out_->experts = std::move(spec);
    return Status();
  }

  Status SharedExpert() override {
    const uint64_t ff = c_.moe.shared_ff;
    const std::string fused = Full("shared_mlp.input_linear.weight");  // granite
    if (!b_.Has(fused)) {
      SLUICE_TRY(Need(M::kSharedGate, ff, c_.hidden));
      SLUICE_TRY(Need(M::kSharedUp, ff, c_.hidden));
      return Need(M::kSharedDown, c_.hidden, ff);
    }
    SLUICE_ASSIGN(const MatrixSpec both, b_.Matrix(fused, 2 * ff, c_.hidden));
    Put(M::kSharedGate, SliceRows(both, 0, ff));
    Put(M::kSharedUp, SliceRows(both, ff, ff));
    SLUICE_ASSIGN(MatrixSpec down,
                  b_.Matrix(Full("shared_mlp.output_linear.weight"), c_.hidden, ff));
    Put(M::kSharedDown, std::move(down));
    return Status();
  }

 private:
  // The stacked tensor of a layer in whichever spelling is there; empty when experts are separate.
  std::string FusedName(const char* common, const char* granite) const {
    const std::string names[] = {Full("mlp.experts.") + common,
                                 Full("block_sparse_moe.experts.") + common,
                                 Full("block_sparse_moe.") + granite + ".weight"};
    for (const std::string& name : names) {
      if (b_.Has(name)) return name;
    }
    return {};
  }

  Status GptOssExperts() {
    const uint32_t n = c_.moe.experts;
    const uint64_t ff = c_.moe.expert_ff, hidden = c_.hidden;
    ExpertSpec spec;
    if (b_.Has(Full("mlp.experts.gate_up_proj_blocks"))) {
      spec.layout = ExpertLayout::kHfMxfp4;
      SLUICE_TRY(Mxfp4("gate_up_proj", 2 * ff, hidden, &spec.part[0], &spec.scales[0]));
      SLUICE_TRY(Mxfp4("down_proj", hidden, ff, &spec.part[2], &spec.scales[2]));
    } else {
      spec.layout = ExpertLayout::kTransposed;
      SLUICE_ASSIGN(spec.part[0], b_.Stacked(Full("mlp.experts.gate_up_proj"), n, hidden, 2 * ff));
      SLUICE_ASSIGN(spec.part[2], b_.Stacked(Full("mlp.experts.down_proj"), n, ff, hidden));
    }
    out_->experts = std::move(spec);
    SLUICE_TRY(Need(V::kExpertGateUpBias, n * 2 * ff, 2 * ff));
    return Need(V::kExpertDownBias, n * hidden, hidden);
  }

  Status Mxfp4(const std::string& matrix, uint64_t rows, uint64_t cols, ExpertPart* blocks,
               ExpertPart* scales) {
    constexpr uint64_t kBlock = 32;
    const std::string base = Full("mlp.experts.") + matrix;
    if (cols % kBlock != 0) {
      return b_.Bad(
          fmt::format("tensor '{}_blocks': rows of {} are not a multiple of 32", base, cols));
    }
    const uint32_t n = c_.moe.experts;
    SLUICE_ASSIGN(*blocks,
                  b_.RawStacked(base + "_blocks", n, rows, cols, cols / 2, WeightType::kMXFP4));
    SLUICE_ASSIGN(*scales, b_.RawStacked(base + "_scales", n, rows, cols / kBlock, cols / kBlock,
                                         WeightType::kI8));
    return Status();
  }

  const std::string model_prefix_;
};

// Tensors of parts that are not run: vision and audio towers, multi-token prediction, stored
// constants.
bool KnownUnused(std::string_view name, const std::string& model_prefix, const ModelConfig& c) {
  constexpr std::string_view kParts[] = {"mtp.",
                                         "model.mtp.",
                                         "visual.",
                                         "model.visual.",
                                         "vision_tower.",
                                         "model.vision_tower.",
                                         "vision_model.",
                                         "model.vision_model.",
                                         "audio_tower.",
                                         "model.audio_tower.",
                                         "multi_modal_projector.",
                                         "model.multi_modal_projector."};
  for (std::string_view part : kParts) {
    if (name.starts_with(part)) return true;
  }
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  const std::string layer_prefix = model_prefix + "layers.";
  if (!name.starts_with(layer_prefix)) return false;
  uint64_t layer = 0;  // layers beyond the count are prediction layers (deepseek)
  for (size_t i = layer_prefix.size(); i < name.size() && i < layer_prefix.size() + 8; ++i) {
    if (name[i] < '0' || name[i] > '9') break;
    layer = layer * 10 + static_cast<uint64_t>(name[i] - '0');
  }
  return layer >= c.layers && layer < uint64_t{c.layers} + c.mtp_layers;
}

}  // namespace

Result<ModelMap> BindHf(HfFolder&& folder, const RopeOverride& rope) {
  ModelMap map;
  SLUICE_ASSIGN(map.config, ConfigFromHf(folder, rope));
  map.catalog = std::move(folder.catalog);
  const ModelConfig& c = map.config;
  Binder binder(map.catalog, folder.path);
  std::string prefix = "model.";
  for (const char* other : {"model.language_model.", "language_model.model."}) {
    if (binder.Has(std::string(other) + "embed_tokens.weight")) prefix = other;
  }
  SLUICE_ASSIGN(map.embedding, binder.Matrix(prefix + "embed_tokens.weight", c.vocab, c.hidden));
  map.head = map.embedding;
  if (!c.tied_head) {
    const bool plain = binder.Has("lm_head.weight");
    SLUICE_ASSIGN(map.head,
                  binder.Matrix(plain ? "lm_head.weight" : "language_model.lm_head.weight", c.vocab,
                                c.hidden));
  }
  SLUICE_ASSIGN(map.output_norm, binder.Vector(prefix + "norm.weight", c.hidden));
  if (c.norm_plus_one) map.output_norm.transform = VectorTransform::kPlusOne;
  HfLayerBinder layers(&binder, c, prefix);
  for (uint32_t i = 0; i < c.layers; ++i) {
    map.layers.emplace_back();
    SLUICE_TRY(layers.Bind(i, &map.layers.back()));
  }
  const auto known = [&](std::string_view name) { return KnownUnused(name, prefix, c); };
  SLUICE_TRY(binder.Finish(known, &map.skipped));
  if (!map.skipped.empty()) {
    Log(LogLevel::kNotice,
        fmt::format("{}: {} tensors of parts that are not run (vision, multi-token prediction) "
                    "are not used",
                    folder.path, map.skipped.size()));
  }
  return map;
}

}  // namespace sluice
