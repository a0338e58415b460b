// The bytes of a forged file's tensors, piece by piece and at the speed of a copy.
//
// Contract: Fill writes bytes [offset, offset + out.size()) of a tensor; the same shape, recipe,
// routing and seed give the same bytes however the pieces are cut. Bulk weights are cut from a pool
// of valid blocks (4 MiB per type) at offsets that depend on tensor and place, so that neighbouring
// rows and experts differ; only routers, codes and small vectors are computed. Owner-thread only.
// Memory: the pools and the largest router.
//
// Sizes (why the plan survives any engine's rounding): an embedding row is one coordinate of
// 32,512, all other weights have a root mean square near 0.001. After the norm a code is
// sqrt(hidden) at its own dimension, what the layers add is below 1e-4 of it even after 50 layers,
// and chosen experts' logits are at least 10 above the others'.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "pack/forge_routing.h"
#include "pack/forge_shape.h"

namespace sluice {

class ForgeContent {
 public:
  // References are kept. kFailed when a code cannot be encoded in its type.
  static Result<ForgeContent> Make(const ForgeShape& shape, const std::vector<ForgeTensor>& tensors,
                                   const ForgeRouting& routing, uint64_t seed);

  void Fill(const ForgeTensor& tensor, uint64_t offset, MutableByteSpan out);

 private:
  ForgeContent(const ForgeShape& shape, const ForgeRouting& routing, uint64_t seed)
      : shape_(shape), routing_(routing), seed_(seed) {}

  void Bulk(const ForgeTensor& tensor, uint64_t offset, MutableByteSpan out) const;
  // Puts the block with the one large value at column code(row) into every row of the piece.
  void Codes(const ForgeTensor& tensor, uint64_t offset, MutableByteSpan out) const;
  // Tensors that are computed as a whole: the last one is kept.
  const std::vector<float>& Values(const ForgeTensor& tensor);
  void RouterValues(const ForgeTensor& tensor);

  const ForgeShape& shape_;
  const ForgeRouting& routing_;
  const uint64_t seed_;
  std::map<WeightType, std::vector<uint8_t>> pools_;
  // Encoded blocks of zeros but for one value, by its place in the block.
  std::vector<std::vector<uint8_t>> embedding_codes_, head_codes_;
  std::string values_of_;
  std::vector<float> values_;
};

}  // namespace sluice
