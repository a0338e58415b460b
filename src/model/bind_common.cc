#include "model/bind_common.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "formats/catalog_build.h"
#include "formats/printable.h"

namespace sluice {
namespace {

MatrixSpec SpecOf(const TensorInfo& tensor, uint64_t rows, uint64_t cols) {
  MatrixSpec spec;
  spec.name = tensor.name;
  spec.type = tensor.type;
  spec.rows = static_cast<uint32_t>(rows);
  spec.cols = static_cast<uint32_t>(cols);
  spec.row_bytes = RowBytes(tensor.type, cols).value_or(0);
  spec.extent = tensor.extent;
  spec.extent.bytes = rows * spec.row_bytes;
  return spec;
}

}  // namespace

Result<const TensorInfo*> Binder::Take(const std::string& name) {
  const auto it = catalog_.by_name.find(name);
  if (it == catalog_.by_name.end()) {
    return Bad(fmt::format("missing tensor '{}'", name),
               "the file is incomplete or its metadata belongs to another model");
  }
  used_[it->second] = true;
  return &catalog_.tensors[it->second];
}

Status Binder::CheckType(const TensorInfo& tensor) const {
  const WeightTypeInfo& info = InfoOf(tensor.type);
  if (info.decodes) return Status();
  return Bad(fmt::format("tensor '{}' has type {}, which is not a weight type that can be computed "
                         "with",
                         Printable(tensor.name), info.name),
             "use a file in another quantisation");
}

Status Binder::CheckShape(const TensorInfo& tensor, const std::array<uint64_t, 3>& shape) const {
  if (tensor.dims[0] == shape[0] && tensor.dims[1] == shape[1] && tensor.dims[2] == shape[2] &&
      tensor.dims[3] == 1) {
    return Status();
  }
  TensorInfo expected;
  std::copy(shape.begin(), shape.end(), expected.dims.begin());
  return Bad(fmt::format("tensor '{}' has shape {}, the metadata asks for {}",
                         Printable(tensor.name), ShapeText(tensor), ShapeText(expected)),
             "the file is damaged or its metadata belongs to another model");
}

Result<MatrixSpec> Binder::Matrix(const std::string& name, uint64_t rows, uint64_t cols) {
  SLUICE_ASSIGN(const TensorInfo* tensor, Take(name));
  SLUICE_TRY(CheckType(*tensor));
  // [cols, rows], or [cols, a, b] with a * b = rows (per-head matrices).
  std::array<uint64_t, 3> shape = {cols, rows, 1};
  const std::optional<uint64_t> folded = CheckedMul(tensor->dims[1], tensor->dims[2]);
  if (tensor->dims[2] > 1 && folded == rows) shape = {cols, tensor->dims[1], tensor->dims[2]};
  SLUICE_TRY(CheckShape(*tensor, shape));
  if (rows > UINT32_MAX || cols > UINT32_MAX) {
    return Bad(fmt::format("tensor '{}' is too large", Printable(name)));
  }
  return SpecOf(*tensor, rows, cols);
}

Result<VectorSpec> Binder::Vector(const std::string& name, uint64_t n, uint64_t inner) {
  SLUICE_ASSIGN(const TensorInfo* tensor, Take(name));
  SLUICE_TRY(CheckType(*tensor));
  std::optional<uint64_t> elements = 1;
  for (uint64_t dim : tensor->dims) elements = elements ? CheckedMul(*elements, dim) : elements;
  if (elements != n || tensor->dims[0] != (inner == 0 ? n : inner)) {
    SLUICE_TRY(CheckShape(*tensor, {inner == 0 ? n : inner, inner == 0 ? 1 : n / inner, 1}));
  }
  VectorSpec spec;
  spec.name = tensor->name;
  spec.type = tensor->type;
  spec.extent = tensor->extent;
  spec.n = n;
  return spec;
}

Result<ExpertPart> Binder::Stacked(const std::string& name, uint32_t experts, uint64_t rows,
                                   uint64_t cols) {
  SLUICE_ASSIGN(const TensorInfo* tensor, Take(name));
  SLUICE_TRY(CheckType(*tensor));
  SLUICE_TRY(CheckShape(*tensor, {cols, rows, experts}));
  ExpertPart part;
  part.first = SpecOf(*tensor, rows, cols);
  part.stride = part.first.extent.bytes;
  return part;
}

Result<ExpertPart> Binder::Separate(const std::function<std::string(uint32_t)>& name,
                                    uint32_t experts, uint64_t rows, uint64_t cols) {
  ExpertPart part;
  for (uint32_t e = 0; e < experts; ++e) {
    SLUICE_ASSIGN(MatrixSpec spec, Matrix(name(e), rows, cols));
    part.each.push_back(spec.extent);
    if (e == 0)
      part.first = std::move(spec);
    else if (spec.type != part.first.type) {
      return Bad(fmt::format("tensor '{}' has type {}, expert 0 has {}", Printable(spec.name),
                             InfoOf(spec.type).name, InfoOf(part.first.type).name));
    }
  }
  return part;
}

Result<ExpertPart> Binder::RawStacked(const std::string& name, uint32_t experts, uint64_t rows,
                                      uint64_t cols, uint64_t row_bytes, WeightType type) {
  SLUICE_ASSIGN(const TensorInfo* tensor, Take(name));
  if (tensor->type != WeightType::kI8) {
    return Bad(fmt::format("tensor '{}' has type {}, bytes (U8) are expected", Printable(name),
                           InfoOf(tensor->type).name));
  }
  if (tensor->extent.bytes != experts * rows * row_bytes || tensor->n_dims < 3) {
    return Bad(
        fmt::format("tensor '{}' has shape {}, {} experts of {} rows of {} bytes are "
                    "expected",
                    Printable(name), ShapeText(*tensor), experts, rows, row_bytes));
  }
  ExpertPart part;
  part.first.name = tensor->name;
  part.first.type = type;
  part.first.rows = static_cast<uint32_t>(rows);
  part.first.cols = static_cast<uint32_t>(cols);
  part.first.row_bytes = row_bytes;
  part.first.extent = tensor->extent;
  part.first.extent.bytes = part.stride = rows * row_bytes;
  return part;
}

Status Binder::Finish(const std::function<bool(std::string_view)>& known,
                      std::vector<std::string>* skipped) const {
  for (size_t i = 0; i < used_.size(); ++i) {
    if (used_[i]) continue;
    const std::string& name = catalog_.tensors[i].name;
    if (!known(name)) {
      return Bad(fmt::format("unknown tensor '{}'", Printable(name)),
                 "leaving weights out would change the answers; this version does not know the "
                 "variant");
    }
    skipped->push_back(name);
  }
  return Status();
}

MatrixSpec SliceRows(const MatrixSpec& whole, uint64_t first, uint64_t rows) {
  MatrixSpec slice = whole;
  slice.extent.offset += first * whole.row_bytes;
  slice.extent.bytes = rows * whole.row_bytes;
  slice.rows = static_cast<uint32_t>(rows);
  return slice;
}

Result<VectorSpec> SliceElements(const VectorSpec& whole, uint64_t first, uint64_t n,
                                 const std::string& where) {
  const WeightTypeInfo& info = InfoOf(whole.type);
  if (info.block_elems != 1) {
    return Status(
        Code::kBadModel,
        fmt::format("fused vector '{}' has the block type {}", Printable(whole.name), info.name),
        where);
  }
  VectorSpec slice = whole;
  slice.extent.offset += first * info.block_bytes;
  slice.extent.bytes = n * info.block_bytes;
  slice.n = n;
  return slice;
}

ExpertPart SliceRows(const ExpertPart& whole, uint64_t first, uint64_t rows) {
  ExpertPart slice = whole;
  slice.first = SliceRows(whole.first, first, rows);
  for (Extent& extent : slice.each) {
    extent.offset += first * whole.first.row_bytes;
    extent.bytes = rows * whole.first.row_bytes;
  }
  return slice;
}

Status LayerBinder::Need(MatrixRole role, uint64_t rows, uint64_t cols) {
  SLUICE_ASSIGN(MatrixSpec spec, b_.Matrix(Full(names_[role]), rows, cols));
  Put(role, std::move(spec));
  return Status();
}

Status LayerBinder::Need(VectorRole role, uint64_t n, uint64_t inner) {
  SLUICE_ASSIGN(VectorSpec spec, b_.Vector(Full(names_[role]), n, inner));
  Put(role, std::move(spec));
  return Status();
}

Status LayerBinder::Maybe(VectorRole role, uint64_t n, bool required, uint64_t inner) {
  if (!required && !HasRole(role)) return Status();
  return Need(role, n, inner);
}

Status LayerBinder::Bind(uint32_t layer, LayerMap* out) {
  layer_ = layer;
  out_ = out;
  prefix_ = Prefix(layer);
  SLUICE_TRY(Need(VectorRole::kAttnNorm, c_.hidden));
  if (c_.kinds[layer] == LayerKind::kDeltaNet) {
    SLUICE_TRY(Delta());
  } else if (traits_.mla) {
    SLUICE_TRY(Mla());
  } else {
    SLUICE_TRY(Attention());
  }
  if (traits_.four_norms) {
    SLUICE_TRY(Need(VectorRole::kPostAttnNorm, c_.hidden));
    SLUICE_TRY(Need(VectorRole::kPostFfnNorm, c_.hidden));
  }
  SLUICE_TRY(Need(VectorRole::kFfnNorm, c_.hidden));
  return c_.IsMoeLayer(layer) ? Moe() : Mlp();
}

Status LayerBinder::SeparateQueryKeyValue() {
  SLUICE_TRY(Need(MatrixRole::kQ, QueryRows(), c_.hidden));
  SLUICE_TRY(Need(MatrixRole::kK, KeyRows(), c_.hidden));
  SLUICE_TRY(Need(MatrixRole::kV, ValueRows(), c_.hidden));
  SLUICE_TRY(Maybe(VectorRole::kQBias, QueryRows(), traits_.qkv_bias));
  SLUICE_TRY(Maybe(VectorRole::kKBias, KeyRows(), traits_.qkv_bias));
  return Maybe(VectorRole::kVBias, ValueRows(), traits_.qkv_bias);
}

Status LayerBinder::Attention() {
  SLUICE_TRY(QueryKeyValue());
  SLUICE_TRY(Need(MatrixRole::kO, c_.hidden, uint64_t{c_.heads[layer_]} * c_.head_dim_v));
  SLUICE_TRY(Maybe(VectorRole::kOBias, c_.hidden, traits_.all_bias));
  if (traits_.all_bias) SLUICE_TRY(Need(VectorRole::kSinks, c_.heads[layer_]));
  if (traits_.head_norms) {
    SLUICE_TRY(Need(VectorRole::kQNorm, c_.head_dim));
    SLUICE_TRY(Need(VectorRole::kKNorm, c_.head_dim));
  }
  if (traits_.whole_norms) {
    SLUICE_TRY(Need(VectorRole::kQNorm, QueryRows()));
    SLUICE_TRY(Need(VectorRole::kKNorm, KeyRows()));
  }
  return Status();
}

Status LayerBinder::Mla() {
  const MlaConfig& mla = c_.mla;
  const uint64_t heads = c_.heads[layer_];
  const uint64_t query = heads * (uint64_t{mla.nope_dim} + mla.rope_dim);
  if (mla.q_rank == 0) {
    SLUICE_TRY(Need(MatrixRole::kQ, query, c_.hidden));
  } else {
    SLUICE_TRY(Need(MatrixRole::kMlaQa, mla.q_rank, c_.hidden));
    SLUICE_TRY(Need(VectorRole::kMlaQaNorm, mla.q_rank));
    SLUICE_TRY(Need(MatrixRole::kMlaQb, query, mla.q_rank));
  }
  SLUICE_TRY(Need(MatrixRole::kMlaKvA, uint64_t{mla.kv_rank} + mla.rope_dim, c_.hidden));
  SLUICE_TRY(Need(VectorRole::kMlaKvANorm, mla.kv_rank));
  if (HasRole(MatrixRole::kMlaKB)) {  // B_k transposed per head, B_v
    SLUICE_TRY(Need(MatrixRole::kMlaKB, heads * mla.kv_rank, mla.nope_dim));
    SLUICE_TRY(Need(MatrixRole::kMlaVB, heads * mla.value_dim, mla.kv_rank));
  }
  if (!HasRole(MatrixRole::kMlaKB) || HasRole(MatrixRole::kMlaKvB)) {
    SLUICE_TRY(
        Need(MatrixRole::kMlaKvB, heads * (uint64_t{mla.nope_dim} + mla.value_dim), mla.kv_rank));
  }
  return Need(MatrixRole::kO, c_.hidden, heads * mla.value_dim);
}

Status LayerBinder::Delta() {
  const DeltaNetConfig& d = c_.delta;
  const uint64_t values = uint64_t{d.value_heads} * d.value_dim;
  const uint64_t channels = 2 * uint64_t{d.key_heads} * d.key_dim + values;
  SLUICE_TRY(DeltaInputs());
  SLUICE_TRY(Need(VectorRole::kConv, channels * d.conv_kernel, d.conv_kernel));
  SLUICE_TRY(Need(VectorRole::kDeltaA, d.value_heads));
  SLUICE_TRY(Need(VectorRole::kDeltaDt, d.value_heads));
  SLUICE_TRY(Need(VectorRole::kDeltaNorm, d.value_dim));
  return Need(MatrixRole::kDeltaOut, c_.hidden, values);
}

Status LayerBinder::Mlp() {
  const uint64_t ff = c_.layer_ff[layer_];
  SLUICE_TRY(Need(MatrixRole::kGate, ff, c_.hidden));
  SLUICE_TRY(Need(MatrixRole::kUp, ff, c_.hidden));
  SLUICE_TRY(Need(MatrixRole::kDown, c_.hidden, ff));
  SLUICE_TRY(Maybe(VectorRole::kGateBias, ff, false));
  SLUICE_TRY(Maybe(VectorRole::kUpBias, ff, false));
  return Maybe(VectorRole::kDownBias, c_.hidden, false);
}

Status LayerBinder::Moe() {
  SLUICE_TRY(Need(MatrixRole::kRouter, c_.moe.experts, c_.hidden));
  SLUICE_TRY(Maybe(VectorRole::kRouterBias, c_.moe.experts, c_.moe.router_bias));
  SLUICE_TRY(Experts());
  if (c_.moe.shared_ff == 0) return Status();
  SLUICE_TRY(SharedExpert());
  if (!c_.moe.shared_gated) return Status();
  return Need(VectorRole::kSharedExpertGate, c_.hidden);
}

}  // namespace sluice
