// ModelMap: every weight of a model by role, as extents; the bridge from files to units.
//
// Contract: plain data. BindModel checks presence and shape of every tensor the architecture needs
// and names the tensor that is missing or misfit (kBadModel). Fused tensors (attn_qkv, gate_up)
// become row slices of one extent. Matrices stay in file layout; vectors are small and are
// converted to f32 when loaded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/catalog.h"
#include "model/config.h"

namespace sluice {

struct GgufFileSet;
struct HfFolder;

enum class MatrixRole : uint8_t {
  kQ,  // attention; of gated attention q|gate interleaved per head
  kK,
  kV,
  kO,
  kGate,  // dense MLP
  kUp,
  kDown,
  kRouter,      // [experts, hidden]
  kSharedGate,  // shared expert
  kSharedUp,
  kSharedDown,
  kDeltaQkv,  // DeltaNet; kDeltaQkvz and kDeltaBa are grouped per key head (DeltaNetConfig)
  kDeltaZ,
  kDeltaBeta,
  kDeltaAlpha,
  kDeltaBa,
  kDeltaQkvz,
  kDeltaOut,
  kMlaQa,  // latent attention
  kMlaQb,
  kMlaKvA,
  kMlaKB,   // [heads * kv_rank, nope]: per head B_k transposed
  kMlaVB,   // [heads * value, kv_rank]
  kMlaKvB,  // [heads * (nope + value), kv_rank]: per head B_k, B_v
  kCount,
};

enum class VectorRole : uint8_t {
  kAttnNorm,
  kFfnNorm,
  kPostAttnNorm,
  kPostFfnNorm,
  kQNorm,  // [head_dim], or [heads * head_dim] (olmoe)
  kKNorm,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kSinks,  // [heads]
  kGateBias,
  kUpBias,
  kDownBias,
  kRouterBias,        // [experts]
  kSharedExpertGate,  // [hidden]
  kConv,              // [channels, kernel]
  kDeltaA,            // [value_heads], -exp(A_log) after its transform
  kDeltaDt,
  kDeltaNorm,  // [value_dim]
  kMlaQaNorm,
  kMlaKvANorm,
  kExpertGateBias,  // [experts, n], also the next two
  kExpertUpBias,
  kExpertDownBias,
  kExpertGateUpBias,  // [experts, 2 n] in the row order of ExpertSpec::part[0]
  kCount,
};

// What is done to a vector's values after conversion to f32, in this order.
enum class VectorTransform : uint8_t { kNone, kPlusOne, kNegExp /* -exp(v): A_log */ };

struct MatrixSpec {
  std::string name;  // tensor name in the file
  WeightType type = WeightType::kF32;
  Extent extent;  // exactly rows * row_bytes
  uint32_t rows = 0, cols = 0;
  uint64_t row_bytes = 0;
};

struct VectorSpec {
  std::string name;
  WeightType type = WeightType::kF32;
  Extent extent;
  uint64_t n = 0;  // elements
  VectorTransform transform = VectorTransform::kNone;
};

// The routed experts of one layer: expert e of part p is the run
// [part[p].extent.offset + e * stride, + bytes). part rows/cols are those of one expert. Where an
// expert's matrices are separate tensors (HF), `each` lists them and stride is unused.
struct ExpertPart {
  MatrixSpec first;     // expert 0 (extent.bytes of one expert)
  uint64_t stride = 0;  // bytes from expert e to e + 1
  std::vector<Extent> each;
  Extent At(uint32_t expert) const {
    if (!each.empty()) return each[expert];
    return {first.extent.file, first.extent.offset + expert * stride, first.extent.bytes};
  }
};
// How an expert's bytes must be read to become the canonical gate/up/down matrices.
enum class ExpertLayout : uint8_t {
  kPlain,        // gate, up, down as matrices [ff, hidden], [ff, hidden], [hidden, ff]
  kInterleaved,  // gate = even rows, up = odd rows of part[0] (part[1] unused); not met so far
  // HF gpt-oss unquantised: part[0] [hidden, 2 ff] with gate and up columns interleaved,
  // part[2] [ff, hidden].
  kTransposed,
  // HF gpt-oss MXFP4: blocks (part) and scales apart, nibbles pairwise, rows of part[0]
  // interleaved.
  kHfMxfp4,
};
struct ExpertSpec {
  ExpertLayout layout = ExpertLayout::kPlain;
  std::array<ExpertPart, 3> part;    // gate, up, down
  std::array<ExpertPart, 3> scales;  // kHfMxfp4 only
};

struct LayerMap {
  std::array<std::optional<MatrixSpec>, static_cast<size_t>(MatrixRole::kCount)> matrix;
  std::array<std::optional<VectorSpec>, static_cast<size_t>(VectorRole::kCount)> vector;
  std::optional<ExpertSpec> experts;

  const std::optional<MatrixSpec>& Get(MatrixRole r) const {
    return matrix[static_cast<size_t>(r)];
  }
  const std::optional<VectorSpec>& Get(VectorRole r) const {
    return vector[static_cast<size_t>(r)];
  }
};

struct ModelMap {
  ModelConfig config;
  Catalog catalog;
  MatrixSpec embedding;  // [vocab, hidden]
  MatrixSpec head;       // [vocab, hidden]; the embedding's extent when tied
  VectorSpec output_norm;
  std::optional<VectorSpec> rope_factors;  // llama3 divisors [dims/2] from GGUF
  std::vector<LayerMap> layers;
  std::vector<std::string> skipped;  // tensors that are known and not used (MTP, vision): a notice
};

// The set's catalog moves into the map; its header (metadata for the tokenizer) stays with the
// caller.
Result<ModelMap> BindGguf(GgufFileSet&& set, const std::string& name,
                          const RopeOverride& rope = {});
Result<ModelMap> BindHf(HfFolder&& folder, const RopeOverride& rope = {});

}  // namespace sluice
