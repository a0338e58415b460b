// ModelConfig: one description of a model's shape, whatever file it came from.
//
// Contract: plain data, validated when built (no zero divisors, all counts within base/limits.h).
// Every difference between GGUF and Hugging Face spelling ends here; arch pages never ask where a
// file came from. Formulas and spellings: docs/architectures.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace sluice {

// Forward declarations keep the JSON library out of every file that sees a config.
class GgufMetadata;
struct Catalog;
struct HfFolder;

enum class Arch {
  kLlama,  // dense
  kQwen2,
  kQwen3,
  kGemma3,
  kQwen3Moe,  // experts, hybrids
  kOlmoe,
  kGraniteMoe,
  kGptOss,
  kQwen3Next,
  kQwen35Moe,
  kDeepseek2,
  kQwen35,   // dense sibling of kQwen35Moe
  kGranite,  // dense sibling of kGraniteMoe
};

enum class RopeScaling { kNone, kLinear, kLlama3, kYarn };

struct RopeConfig {
  uint32_t dims = 0;      // rotated dims n (even), <= head_dim
  bool adjacent = false;  // pairs (2j, 2j+1) instead of (j, j+n/2)
  float theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1;
  uint32_t original_context = 0;
  float low_freq_factor = 1, high_freq_factor = 4;  // llama3
  float beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                             // yarn: floor/ceil the range
  float attn_factor = 1;                            // on cos and sin, computed (1 unless yarn)
};

// What a user says instead of the file; 0 and nullopt leave the file's word.
struct RopeOverride {
  std::optional<RopeScaling> scaling;  // kNone, kLinear or kYarn
  float factor = 0, theta = 0;
  uint32_t original_context = 0;  // yarn
  bool any() const { return scaling || factor != 0 || theta != 0 || original_context != 0; }
};

enum class LayerKind : uint8_t { kFull, kSliding, kDeltaNet };

enum class RouterScores { kSoftmaxAll, kSoftmaxChosen, kSigmoid };

struct MoeConfig {
  uint32_t experts = 0;  // 0: dense model
  uint32_t used = 0;     // top-k
  uint32_t expert_ff = 0;
  uint32_t shared_ff = 0;  // shared expert width (all shared experts together), 0: none
  bool shared_gated = false;
  RouterScores scores = RouterScores::kSoftmaxAll;
  bool normalise = false;  // divide the chosen weights by their sum
  float weights_scale = 1;
  uint32_t groups = 0, groups_used = 0;  // group-limited routing; 0 or 1: off
  bool groups_by_top2 = false;  // a group's score: sum of its best two (deepseek v3), else its best
  bool router_bias = false;     // bias only for the choice (deepseek v3) or in the logits (gpt-oss)
  uint32_t leading_dense_layers = 0;
  // Per layer 1: a dense MLP instead, whatever the reason; may be empty.
  std::vector<uint8_t> dense_layer;
};

struct DeltaNetConfig {
  uint32_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, conv_kernel = 0;
  // Value head h reads key head h mod key_heads (qwen35 GGUF), else h div r.
  bool tiled_heads = false;
  // Outputs come per key head, r = value_heads / key_heads: q key_dim, k key_dim, v r*value_dim,
  // z r*value_dim (kDeltaQkvz); b r, a r (kDeltaBa).
  bool grouped_qkvz = false, grouped_ba = false;
};

struct MlaConfig {
  uint32_t q_rank = 0, kv_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;
};

struct ModelConfig {
  Arch arch = Arch::kLlama;
  std::string arch_name;  // as the file says: "llama", "qwen3", "LlamaForCausalLM"
  std::string name;       // general.name or the folder's name
  uint32_t layers = 0, hidden = 0, ff = 0, vocab = 0, context = 0;
  // Per layer. DeltaNet layers carry the attention layers' head counts, unused. MLA: kv_heads is 1,
  // a cached row is latent (mla.kv_rank) and rotated key (mla.rope_dim). layer_ff is the dense
  // MLP's width.
  std::vector<uint32_t> heads, kv_heads, layer_ff;
  uint32_t head_dim = 0, head_dim_v = 0;
  float rms_eps = 1e-5f;
  std::vector<LayerKind> kinds;  // per layer
  uint32_t sliding_window = 0;   // position j is visible to i iff 0 <= i - j < window
  RopeConfig rope;
  RopeConfig rope_sliding;    // of kSliding layers; equal to rope if not special
  float attention_scale = 0;  // always set: on q.k
  float embedding_scale = 1, residual_scale = 1;
  float logit_scale = 1;                             // logits are divided by it
  float final_softcap = 0;                           // 0: none
  float clamp_qkv = 0;                               // olmoe; 0: none
  float swiglu_limit = 7.0f, swiglu_alpha = 1.702f;  // gpt-oss
  bool norm_plus_one = false;  // HF one-plus norms: add 1 when norm weights are loaded
  bool tied_head = false;      // no own head tensor
  MoeConfig moe;
  DeltaNetConfig delta;
  MlaConfig mla;
  uint32_t mtp_layers = 0;  // skipped with a notice; not counted in `layers`

  bool IsMoeLayer(uint32_t layer) const {
    return moe.experts > 0 && (layer >= moe.dense_layer.size() || moe.dense_layer[layer] == 0);
  }
};

// The GGUF spelling: "llama", "gpt-oss".
const char* ArchName(Arch arch);

// kBadModel "unsupported architecture 'X'" for names that are not known; otherwise key or field
// named. kUsage when the override does not fit the model. An override is read in the place of the
// file's own keys, so it equals a file that has them.
Result<ModelConfig> ConfigFromGguf(const GgufMetadata& metadata, const Catalog& catalog,
                                   const std::string& name, const RopeOverride& rope = {});
Result<ModelConfig> ConfigFromHf(const HfFolder& folder, const RopeOverride& rope = {});

}  // namespace sluice
