// Binding: looking up tensors by name and checking their type and shape.
//
// Contract: internal to the bind files of this room. A Binder refers to a catalog that outlives it
// and notes which tensors were taken, so that what nobody asked for is an error and not silently
// dropped weights.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/config_common.h"
#include "model/model_map.h"

namespace sluice {

class Binder {
 public:
  Binder(const Catalog& catalog, const std::string& where)
      : catalog_(catalog), where_(where), used_(catalog.tensors.size(), false) {}

  bool Has(const std::string& name) const { return catalog_.Find(name) != nullptr; }
  const std::string& where() const { return where_; }

  // A matrix [rows, cols] of a type that decodes. Outer dimensions may be folded into rows.
  Result<MatrixSpec> Matrix(const std::string& name, uint64_t rows, uint64_t cols);
  // n elements in any shape whose inner dimension is `inner` (0: n itself).
  Result<VectorSpec> Vector(const std::string& name, uint64_t n, uint64_t inner = 0);
  // A tensor of `experts` equal matrices [rows, cols], one after the other.
  Result<ExpertPart> Stacked(const std::string& name, uint32_t experts, uint64_t rows,
                             uint64_t cols);
  // One tensor per expert.
  Result<ExpertPart> Separate(const std::function<std::string(uint32_t)>& name, uint32_t experts,
                              uint64_t rows, uint64_t cols);
  // Raw bytes: `experts` runs of rows * row_bytes (gpt-oss MXFP4 blocks and scales).
  Result<ExpertPart> RawStacked(const std::string& name, uint32_t experts, uint64_t rows,
                                uint64_t cols, uint64_t row_bytes, WeightType type);

  // Every tensor not taken must be one that `known` accepts; those are listed in `skipped`.
  Status Finish(const std::function<bool(std::string_view)>& known,
                std::vector<std::string>* skipped) const;

  Status Bad(std::string what, std::string hint = {}) const {
    return Status(Code::kBadModel, std::move(what), where_, std::move(hint));
  }

 private:
  Result<const TensorInfo*> Take(const std::string& name);
  Status CheckType(const TensorInfo& tensor) const;
  Status CheckShape(const TensorInfo& tensor, const std::array<uint64_t, 3>& shape) const;

  const Catalog& catalog_;
  const std::string& where_;
  std::vector<bool> used_;
};

// Rows [first, first + rows) of a matrix, or elements of a vector of a plain float type.
MatrixSpec SliceRows(const MatrixSpec& whole, uint64_t first, uint64_t rows);
Result<VectorSpec> SliceElements(const VectorSpec& whole, uint64_t first, uint64_t n,
                                 const std::string& where);
// Rows of every expert's matrix.
ExpertPart SliceRows(const ExpertPart& whole, uint64_t first, uint64_t rows);

// Tensor names below a layer's prefix by role; nullptr where a format has none.
struct LayerNames {
  std::array<const char*, static_cast<size_t>(MatrixRole::kCount)> matrix = {};
  std::array<const char*, static_cast<size_t>(VectorRole::kCount)> vector = {};

  const char*& operator[](MatrixRole role) { return matrix[static_cast<size_t>(role)]; }
  const char*& operator[](VectorRole role) { return vector[static_cast<size_t>(role)]; }
};

// Walks the roles that an architecture's layer has; the two formats add how experts and fused
// tensors look.
class LayerBinder {
 public:
  LayerBinder(Binder* binder, const ModelConfig& config, LayerNames names)
      : b_(*binder), c_(config), names_(names), traits_(TraitsOf(config.arch)) {}
  virtual ~LayerBinder() = default;

  Status Bind(uint32_t layer, LayerMap* out);

 protected:
  virtual std::string Prefix(uint32_t layer) const = 0;
  virtual Status QueryKeyValue() { return SeparateQueryKeyValue(); }
  virtual Status DeltaInputs() = 0;
  virtual Status Experts() = 0;
  virtual Status SharedExpert() = 0;
  virtual VectorTransform TransformOf(VectorRole role) const { return VectorTransform::kNone; }

  Status SeparateQueryKeyValue();
  std::string Full(const char* name) const { return prefix_ + name; }
  bool HasRole(MatrixRole role) { return names_[role] != nullptr && b_.Has(Full(names_[role])); }
  bool HasRole(VectorRole role) { return names_[role] != nullptr && b_.Has(Full(names_[role])); }
  Status Need(MatrixRole role, uint64_t rows, uint64_t cols);
  Status Need(VectorRole role, uint64_t n, uint64_t inner = 0);
  Status Maybe(VectorRole role, uint64_t n, bool required, uint64_t inner = 0);
  void Put(MatrixRole role, MatrixSpec spec) {
    out_->matrix[static_cast<size_t>(role)] = std::move(spec);
  }
  void Put(VectorRole role, VectorSpec spec) {
    spec.transform = TransformOf(role);
    out_->vector[static_cast<size_t>(role)] = std::move(spec);
  }

  uint64_t QueryRows() const {
    return uint64_t{c_.heads[layer_]} * c_.head_dim * (traits_.gated_attention ? 2 : 1);
  }
  uint64_t KeyRows() const { return uint64_t{c_.kv_heads[layer_]} * c_.head_dim; }
  uint64_t ValueRows() const { return uint64_t{c_.kv_heads[layer_]} * c_.head_dim_v; }

  Binder& b_;
  const ModelConfig& c_;
  LayerNames names_;
  const ArchTraits traits_;
  uint32_t layer_ = 0;
  std::string prefix_;
  LayerMap* out_ = nullptr;

 private:
  Status Attention();
  Status Mla();
  Status Delta();
  Status Mlp();
  Status Moe();
};

}  // namespace sluice
