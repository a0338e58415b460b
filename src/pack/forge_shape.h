// The shapes that forge knows: sizes of real models, and the tensors a file of that shape holds.
//
// Contract: pure values. FindForgeShape gives a real model's numbers (docs/forge.md names the
// sources); overrides make it smaller. ForgeTensors lists every tensor in file order with its type
// under the recipe and refuses (kUsage, with the tensor and a hint) a row that is no whole number
// of the type's blocks. Offsets are the writer's business.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "quant/types.h"

namespace sluice {

enum class ForgeArch { kQwen3Moe, kQwen35Moe, kGptOss, kOlmoe };

struct ForgeShape {
  std::string name;    // "qwen3-30b-a3b"
  std::string arch;    // general.architecture
  std::string recipe;  // the default one
  ForgeArch kind = ForgeArch::kQwen3Moe;
  uint32_t layers = 0, hidden = 0, context = 0;
  uint32_t heads = 0, kv_heads = 0, head_dim = 0, rope_dims = 0;
  uint32_t experts = 0, used = 0, expert_ff = 0, shared_ff = 0, dense_ff = 0;
  uint32_t vocab = 0, text_tokens = 0;  // rows; those before the special tokens
  float rms_eps = 1e-6f, rope_theta = 1e6f;
  // Gated DeltaNet (qwen35moe): every full_interval-th layer is full attention.
  uint32_t full_interval = 0, key_heads = 0, value_heads = 0, delta_dim = 0, conv_kernel = 0;
  uint32_t sliding_window = 0;  // gpt-oss

  bool IsDelta(uint32_t layer) const {
    return full_interval != 0 && (layer + 1) % full_interval != 0;
  }
};

// Unset fields keep the real size. A smaller hidden size of olmoe shrinks its heads with it.
struct ForgeOverrides {
  std::optional<uint32_t> layers, experts, used, hidden, expert_ff, shared_ff, heads, kv_heads,
      head_dim, vocab, context, key_heads, value_heads, delta_dim;
};

std::vector<std::string> ForgeShapeNames();
Result<ForgeShape> FindForgeShape(const std::string& name, const ForgeOverrides& overrides);

struct ForgeRecipe {
  const char* name;
  WeightType experts, matrices, head, embedding;
};
// kUsage names the known ones.
Result<ForgeRecipe> FindForgeRecipe(const std::string& name);

// What a tensor is filled with (forge_fill.h).
enum class ForgeFill {
  kBulk,       // pooled random blocks of small values
  kOnes,       // norms
  kZeros,      // the router's bias
  kBias,       // small random values
  kRouter,     // the planted routing of one layer
  kEmbedding,  // one large coordinate per token
  kHead,       // bulk, and the successor of each code
  kConv,       // DeltaNet's short convolution
  kDecay,      // ssm_a: minus exp of something
  kTimeStep,   // ssm_dt
  kSinks,      // gpt-oss: one logit per head
};

struct ForgeTensor {
  std::string name;
  std::vector<uint64_t> dims;  // GGUF order
  WeightType type = WeightType::kF32;
  ForgeFill fill = ForgeFill::kBulk;
  uint32_t layer = 0;
  uint64_t bytes = 0;
};

Result<std::vector<ForgeTensor>> ForgeTensors(const ForgeShape& shape, const ForgeRecipe& recipe);

}  // namespace sluice
