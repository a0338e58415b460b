// BindGguf: GGUF tensor names to roles.
#include <fmt/format.h>

#include "base/log.h"
#include "formats/gguf.h"
#include "model/bind_common.h"

namespace sluice {
namespace {

using M = MatrixRole;
using V = VectorRole;

LayerNames Names(Arch arch) {
  LayerNames n;
  n[M::kQ] = "attn_q.weight";
  n[M::kK] = "attn_k.weight";
  n[M::kV] = "attn_v.weight";
  n[M::kO] = "attn_output.weight";
  n[M::kGate] = "ffn_gate.weight";
  n[M::kUp] = "ffn_up.weight";
  n[M::kDown] = "ffn_down.weight";
  n[M::kRouter] = "ffn_gate_inp.weight";
  n[M::kSharedGate] = "ffn_gate_shexp.weight";
  n[M::kSharedUp] = "ffn_up_shexp.weight";
  n[M::kSharedDown] = "ffn_down_shexp.weight";
  n[M::kDeltaQkv] = "attn_qkv.weight";
  n[M::kDeltaZ] = "attn_gate.weight";
  n[M::kDeltaBeta] = "ssm_beta.weight";
  n[M::kDeltaAlpha] = "ssm_alpha.weight";
  n[M::kDeltaBa] = "ssm_ba.weight";
  n[M::kDeltaQkvz] = "ssm_in.weight";
  n[M::kDeltaOut] = "ssm_out.weight";
  n[M::kMlaQa] = "attn_q_a.weight";
  n[M::kMlaQb] = "attn_q_b.weight";
  n[M::kMlaKvA] = "attn_kv_a_mqa.weight";
  n[M::kMlaKB] = "attn_k_b.weight";
  n[M::kMlaVB] = "attn_v_b.weight";
  n[M::kMlaKvB] = "attn_kv_b.weight";

  n[V::kAttnNorm] = "attn_norm.weight";
  n[V::kFfnNorm] = "ffn_norm.weight";
  n[V::kPostAttnNorm] = "post_attention_norm.weight";
  n[V::kPostFfnNorm] = "post_ffw_norm.weight";
  // These name the norm before the MLP after what precedes it.
  if (TraitsOf(arch).delta_net || arch == Arch::kGptOss) {
    n[V::kFfnNorm] = "post_attention_norm.weight";
  }
  n[V::kQNorm] = "attn_q_norm.weight";
  n[V::kKNorm] = "attn_k_norm.weight";
  n[V::kQBias] = "attn_q.bias";
  n[V::kKBias] = "attn_k.bias";
  n[V::kVBias] = "attn_v.bias";
  n[V::kOBias] = "attn_output.bias";
  n[V::kSinks] = "attn_sinks.weight";
  n[V::kGateBias] = "ffn_gate.bias";
  n[V::kUpBias] = "ffn_up.bias";
  n[V::kDownBias] = "ffn_down.bias";
  n[V::kRouterBias] = arch == Arch::kDeepseek2 ? "exp_probs_b.bias" : "ffn_gate_inp.bias";
  n[V::kSharedExpertGate] = "ffn_gate_inp_shexp.weight";
  n[V::kConv] = "ssm_conv1d.weight";
  n[V::kDeltaA] = "ssm_a";
  n[V::kDeltaDt] = "ssm_dt.bias";
  n[V::kDeltaNorm] = "ssm_norm.weight";
  n[V::kMlaQaNorm] = "attn_q_a_norm.weight";
  n[V::kMlaKvANorm] = "attn_kv_a_norm.weight";
  n[V::kExpertGateBias] = "ffn_gate_exps.bias";
  n[V::kExpertUpBias] = "ffn_up_exps.bias";
  n[V::kExpertDownBias] = "ffn_down_exps.bias";
  n[V::kExpertGateUpBias] = "ffn_gate_up_exps.bias";
  return n;
}

class GgufLayerBinder : public LayerBinder {
 public:
  GgufLayerBinder(Binder* binder, const ModelConfig& config)
      : LayerBinder(binder, config, Names(config.arch)) {}

 protected:
  std::string Prefix(uint32_t layer) const override { return fmt::format("blk.{}.", layer); }

  // Separate tensors, or q, k, v rows in this order in one.
  Status QueryKeyValue() override {
    const std::string fused = Full("attn_qkv.weight"), fused_bias = Full("attn_qkv.bias");
    if (HasRole(M::kQ) || !b_.Has(fused)) return SeparateQueryKeyValue();
    const uint64_t q = QueryRows(), k = KeyRows(), v = ValueRows();
    SLUICE_ASSIGN(const MatrixSpec whole, b_.Matrix(fused, q + k + v, c_.hidden));
    Put(M::kQ, SliceRows(whole, 0, q));
    Put(M::kK, SliceRows(whole, q, k));
    Put(M::kV, SliceRows(whole, q + k, v));
    if (!traits_.qkv_bias && !b_.Has(fused_bias)) return Status();
    SLUICE_ASSIGN(const VectorSpec bias, b_.Vector(fused_bias, q + k + v));
    SLUICE_ASSIGN(VectorSpec q_bias, SliceElements(bias, 0, q, b_.where()));
    SLUICE_ASSIGN(VectorSpec k_bias, SliceElements(bias, q, k, b_.where()));
    SLUICE_ASSIGN(VectorSpec v_bias, SliceElements(bias, q + k, v, b_.where()));
    Put(V::kQBias, std::move(q_bias));
    Put(V::kKBias, std::move(k_bias));
    Put(V::kVBias, std::move(v_bias));
    return Status();
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
    const uint32_t n = c_.moe.experts;
    const uint64_t ff = c_.moe.expert_ff, hidden = c_.hidden;
    ExpertSpec spec;
    if (b_.Has(Full("ffn_gate_up_exps.weight"))) {  // gate rows first
      SLUICE_ASSIGN(const ExpertPart both,
                    b_.Stacked(Full("ffn_gate_up_exps.weight"), n, 2 * ff, hidden));
      spec.part[0] = SliceRows(both, 0, ff);
      spec.part[1] = SliceRows(both, ff, ff);
      SLUICE_ASSIGN(spec.part[2], b_.Stacked(Full("ffn_down_exps.weight"), n, hidden, ff));
    } else if (!b_.Has(Full("ffn_gate_exps.weight")) && b_.Has(Full("ffn_gate.0.weight"))) {
      const auto named = [&](const char* part) {  // files from before experts were stacked
        return [this, part](uint32_t e) { return Full(part) + std::to_string(e) + ".weight"; };
      };
      SLUICE_ASSIGN(spec.part[0], b_.Separate(named("ffn_gate."), n, ff, hidden));
      SLUICE_ASSIGN(spec.part[1], b_.Separate(named("ffn_up."), n, ff, hidden));
      SLUICE_ASSIGN(spec.part[2], b_.Separate(named("ffn_down."), n, hidden, ff));
    } else {
      SLUICE_ASSIGN(spec.part[0], b_.Stacked(Full("ffn_gate_exps.weight"), n, ff, hidden));
      SLUICE_ASSIGN(spec.part[1], b_.Stacked(Full("ffn_up_exps.weight"), n, ff, hidden));
      SLUICE_ASSIGN(spec.part[2], b_.Stacked(Full("ffn_down_exps.weight"), n, hidden, ff));
    }
    out_->experts = std::move(spec);
    if (HasRole(V::kExpertGateUpBias)) {
      SLUICE_TRY(Need(V::kExpertGateUpBias, n * 2 * ff, 2 * ff));
    } else {
      SLUICE_TRY(Maybe(V::kExpertGateBias, n * ff, traits_.all_bias, ff));
      SLUICE_TRY(Maybe(V::kExpertUpBias, n * ff, traits_.all_bias, ff));
    }
    return Maybe(V::kExpertDownBias, n * hidden, traits_.all_bias, hidden);
  }

  Status SharedExpert() override {
    SLUICE_TRY(Need(M::kSharedGate, c_.moe.shared_ff, c_.hidden));
    SLUICE_TRY(Need(M::kSharedUp, c_.moe.shared_ff, c_.hidden));
    return Need(M::kSharedDown, c_.hidden, c_.moe.shared_ff);
  }
};

// The block number of "blk.N.x"; UINT32_MAX for other names.
uint64_t BlockOf(std::string_view name) {
  if (!name.starts_with("blk.")) return UINT32_MAX;
  uint64_t block = 0;
  size_t i = 4;
  for (; i < name.size() && i < 12 && name[i] >= '0' && name[i] <= '9'; ++i) {
    block = block * 10 + static_cast<uint64_t>(name[i] - '0');
  }
  return i > 4 && i < name.size() && name[i] == '.' ? block : UINT32_MAX;
}

}  // namespace

Result<ModelMap> BindGguf(GgufFileSet&& set, const std::string& name, const RopeOverride& rope) {
  ModelMap map;
  SLUICE_ASSIGN(map.config, ConfigFromGguf(set.header.metadata, set.catalog, name, rope));
  map.catalog = std::move(set.catalog);
  const ModelConfig& c = map.config;
  Binder binder(map.catalog, name);
  SLUICE_ASSIGN(map.embedding, binder.Matrix("token_embd.weight", c.vocab, c.hidden));
  map.head = map.embedding;
  if (!c.tied_head) {
    SLUICE_ASSIGN(map.head, binder.Matrix("output.weight", c.vocab, c.hidden));
  }
  SLUICE_ASSIGN(map.output_norm, binder.Vector("output_norm.weight", c.hidden));
  if (binder.Has("rope_freqs.weight")) {
    SLUICE_ASSIGN(map.rope_factors, binder.Vector("rope_freqs.weight", c.rope.dims / 2));
    // The divisors are llama3's scaling in another form: another scaling takes their place.
    if (rope.scaling) map.rope_factors.reset();
  }
  GgufLayerBinder layers(&binder, c);
  for (uint32_t i = 0; i < c.layers; ++i) {
    map.layers.emplace_back();
    SLUICE_TRY(layers.Bind(i, &map.layers.back()));
  }
  const auto known = [&](std::string_view tensor) {
    const uint64_t block = BlockOf(tensor);
    const bool mtp_block = block >= c.layers && block < uint64_t{c.layers} + c.mtp_layers;
    return mtp_block || tensor.ends_with(".attn_rot_embd");
  };
  SLUICE_TRY(binder.Finish(known, &map.skipped));
  if (!map.skipped.empty()) {
    Log(LogLevel::kNotice, fmt::format("{}: {} tensors of the multi-token prediction block are "
                                       "not used",
                                       name, map.skipped.size()));
  }
  return map;
}

}  // namespace sluice
