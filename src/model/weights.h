// Weights of one layer as the forward pages see them: pointers, wherever the bytes happen to live.
//
// Contract: a view; owns nothing. Matrix pointers are valid while the runtime holds the layer
// (pinned layers: always; streamed layers: between acquire and release). Vectors are f32 and always
// valid.
#pragma once

#include <array>
#include <cstdint>

#include "model/model_map.h"

namespace sluice {

struct Matrix {
  const uint8_t* data = nullptr;  // row 0, file layout, any alignment
  WeightType type = WeightType::kF32;
  uint32_t rows = 0, cols = 0;
  uint64_t row_bytes = 0;  // from one row to the next

  explicit operator bool() const { return data != nullptr; }
};

struct LayerWeights {
  uint32_t layer = 0;
  std::array<Matrix, static_cast<size_t>(MatrixRole::kCount)> matrix;
  std::array<const float*, static_cast<size_t>(VectorRole::kCount)> vector = {};

  const Matrix& operator[](MatrixRole role) const { return matrix[static_cast<size_t>(role)]; }
  const float* operator[](VectorRole role) const { return vector[static_cast<size_t>(role)]; }
};

}  // namespace sluice
