#include "pack/forge_fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "pack/forge_random.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "float tensors are copied as they are");

constexpr uint64_t kPoolBytes = 4 * kMiB;       // stays in a last-level cache
constexpr uint64_t kSegmentBytes = 256 * kKiB;  // cut from one place of the pool

constexpr float kCodeAmplitude = 127 * 256;  // exact in Q8_0, below half precision's largest
constexpr float kHeadValue = 1;
// Logit of a chosen expert: its weight's logarithm (>= ln 1e-6 = -13.8) plus this; others have 0.
constexpr float kRouterMargin = 24;

constexpr float kSmallestNormalHalf = 0x1p-14f;  // block scales: small, but no subnormals

void PutHalf(uint8_t* p, float value) {
  const uint16_t bits = FloatToHalf(value);
  std::memcpy(p, &bits, sizeof bits);
}

void RandomBytes(ForgeRandom* random, uint8_t* p, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) p[i] = static_cast<uint8_t>(random->Next() >> 56);
}

// d * S * (q - 7.5) with S from 1 to 7. For S, M < 16 the packed bytes hold sub-blocks 0-3 in bytes
// 0-7 (low bits) and sub-blocks 4-7 as nibbles in bytes 8-11.
void RandomQ4K(ForgeRandom* random, uint8_t* p) {
  PutHalf(p, kSmallestNormalHalf);
  PutHalf(p + 2, 7.5f * kSmallestNormalHalf);
  for (int b = 0; b < 4; ++b) {
    const auto low = static_cast<uint8_t>(1 + random->Below(7));
    const auto high = static_cast<uint8_t>(1 + random->Below(7));
    p[4 + b] = p[8 + b] = low;
    p[12 + b] = static_cast<uint8_t>(high | high << 4);
  }
  RandomBytes(random, p + 16, 128);
}

void RandomQ6K(ForgeRandom* random, uint8_t* p) {
  RandomBytes(random, p, 192);
  for (int s = 0; s < 16; ++s) p[192 + s] = random->Below(2) == 0 ? 1 : 0xFF;  // 1 or -1
  PutHalf(p + 208, kSmallestNormalHalf);
}

void RandomQ8(ForgeRandom* random, uint8_t* p) {
  PutHalf(p, kSmallestNormalHalf);
  for (int i = 0; i < 32; ++i) {
    p[2 + i] = static_cast<uint8_t>(static_cast<int>(random->Below(63)) - 31);
  }
}

void RandomMxfp4(ForgeRandom* random, uint8_t* p) {
  p[0] = static_cast<uint8_t>(114 + random->Below(2));  // 2^-14 or 2^-13 times 0 to 12
  RandomBytes(random, p + 1, 16);
}

void RandomF32(ForgeRandom* random, uint8_t* p) {
  const float value = random->Real(-0.002f, 0.002f);
  std::memcpy(p, &value, sizeof value);
}

using BlockFn = void (*)(ForgeRandom*, uint8_t*);
BlockFn RandomBlock(WeightType type) {
  switch (type) {
    case WeightType::kQ4_K:
      return RandomQ4K;
    case WeightType::kQ6_K:
      return RandomQ6K;
    case WeightType::kQ8_0:
      return RandomQ8;
    case WeightType::kMXFP4:
      return RandomMxfp4;
    case WeightType::kF32:
      return RandomF32;
    default:
      return nullptr;
  }
}

Result<std::vector<uint8_t>> MakePool(WeightType type, uint64_t seed) {
  const BlockFn block = RandomBlock(type);
  const WeightTypeInfo& info = InfoOf(type);
  if (block == nullptr) {
    return Status(Code::kFailed, std::string("forge has no random blocks of type ") + info.name);
  }
  ForgeRandom random(seed, info.name);
  std::vector<uint8_t> pool(kPoolBytes / info.block_bytes * info.block_bytes);
  for (uint64_t at = 0; at < pool.size(); at += info.block_bytes) block(&random, &pool[at]);
  return pool;
}

Result<std::vector<std::vector<uint8_t>>> OneHotBlocks(WeightType type, float value) {
  const WeightTypeInfo& info = InfoOf(type);
  std::vector<std::vector<uint8_t>> blocks(info.block_elems);
  std::vector<float> row(info.block_elems);
  for (uint32_t i = 0; i < info.block_elems; ++i) {
    row[i] = value;
    blocks[i].resize(info.block_bytes);
    SLUICE_TRY(EncodeRow(type, row.data(), blocks[i].data(), row.size()));
    row[i] = 0;
  }
  return blocks;
}

// Copies what of `bytes`, which begin at byte `at` of the tensor, lies in the piece.
void Patch(ByteSpan bytes, uint64_t at, uint64_t offset, MutableByteSpan out) {
  const uint64_t begin = std::max(at, offset);
  const uint64_t end = std::min(at + bytes.size(), offset + out.size());
  if (begin < end) std::memcpy(&out[begin - offset], &bytes[begin - at], end - begin);
}

}  // namespace

Result<ForgeContent> ForgeContent::Make(const ForgeShape& shape,
                                        const std::vector<ForgeTensor>& tensors,
                                        const ForgeRouting& routing, uint64_t seed) {
  ForgeContent content(shape, routing, seed);
  for (const ForgeTensor& t : tensors) {
    if (t.fill == ForgeFill::kEmbedding) {
      SLUICE_ASSIGN(content.embedding_codes_, OneHotBlocks(t.type, kCodeAmplitude));
      continue;
    }
    if (t.fill == ForgeFill::kHead) {
      SLUICE_ASSIGN(content.head_codes_, OneHotBlocks(t.type, kHeadValue));
    }
    const bool bulk =
        t.fill == ForgeFill::kBulk || t.fill == ForgeFill::kBias || t.fill == ForgeFill::kHead;
    if (!bulk || content.pools_.contains(t.type)) continue;
    SLUICE_ASSIGN(content.pools_[t.type], MakePool(t.type, seed));
  }
  return content;
}

void ForgeContent::Fill(const ForgeTensor& tensor, uint64_t offset, MutableByteSpan out) {
  switch (tensor.fill) {
    case ForgeFill::kBulk:
    case ForgeFill::kBias:
      return Bulk(tensor, offset, out);
    case ForgeFill::kHead:
      Bulk(tensor, offset, out);
      return Codes(tensor, offset, out);
    case ForgeFill::kEmbedding:
      std::memset(out.data(), 0, out.size());
      return Codes(tensor, offset, out);
    case ForgeFill::kZeros:
      std::memset(out.data(), 0, out.size());
      return;
    default: {
      const std::vector<float>& values = Values(tensor);
      std::memcpy(out.data(), reinterpret_cast<const uint8_t*>(values.data()) + offset, out.size());
    }
  }
}

void ForgeContent::Bulk(const ForgeTensor& tensor, uint64_t offset, MutableByteSpan out) const {
  const uint64_t block_bytes = InfoOf(tensor.type).block_bytes;
  const std::vector<uint8_t>& pool = pools_.at(tensor.type);
  const uint64_t segment_bytes = kSegmentBytes / block_bytes * block_bytes;
  const uint64_t places = (pool.size() - segment_bytes) / block_bytes;
  const uint64_t key = ForgeRandom(seed_, tensor.name).Next();
  for (uint64_t done = 0; done < out.size();) {
    const uint64_t segment = (offset + done) / segment_bytes;
    const uint64_t within = (offset + done) % segment_bytes;
    const uint64_t n = std::min(segment_bytes - within, out.size() - done);
    const uint64_t place = ForgeMix(key + segment) % places * block_bytes;
    std::memcpy(&out[done], &pool[place + within], n);
    done += n;
  }
}

void ForgeContent::Codes(const ForgeTensor& tensor, uint64_t offset, MutableByteSpan out) const {
  const WeightTypeInfo& info = InfoOf(tensor.type);
  const bool head = tensor.fill == ForgeFill::kHead;
  const std::vector<std::vector<uint8_t>>& blocks = head ? head_codes_ : embedding_codes_;
  const uint64_t codes = routing_.codes();
  const uint64_t row_bytes = tensor.bytes / tensor.dims[1];
  const uint64_t last_row = (offset + out.size() - 1) / row_bytes;
  for (uint64_t row = offset / row_bytes; row <= last_row; ++row) {
    if (head && row >= codes) return;  // the successors of the codes are the codes
    const uint64_t column = head ? (row + codes - 1) % codes : row % codes;
    Patch(blocks[column % info.block_elems],
          row * row_bytes + column / info.block_elems * info.block_bytes, offset, out);
  }
}

const std::vector<float>& ForgeContent::Values(const ForgeTensor& tensor) {
  if (values_of_ == tensor.name) return values_;
  values_of_ = tensor.name;
  values_.assign(tensor.bytes / sizeof(float), 1.0f);
  ForgeRandom random(seed_, tensor.name);
  if (tensor.fill == ForgeFill::kRouter) RouterValues(tensor);
  for (float& value : values_) {
    if (tensor.fill == ForgeFill::kConv) value = random.Real(-1, 1);
    if (tensor.fill == ForgeFill::kDecay) value = -random.Real(1, 16);
    if (tensor.fill == ForgeFill::kTimeStep) value = random.Real(-5, -1);
    if (tensor.fill == ForgeFill::kSinks) value = random.Real(-1, 1);
  }
  return values_;
}

// A code comes out of the norm as sqrt(hidden) at its own column: softmax over the logits
// ln(weight) + margin, renormalised, is the weights again.
void ForgeContent::RouterValues(const ForgeTensor& tensor) {
  std::fill(values_.begin(), values_.end(), 0.0f);
  const double code = std::sqrt(static_cast<double>(shape_.hidden));
  for (uint32_t t = 0; t < routing_.codes(); ++t) {
    const uint16_t* experts = routing_.experts(t, tensor.layer);
    const float* weights = routing_.weights(t, tensor.layer);
    for (uint32_t i = 0; i < routing_.used(); ++i) {
      const double logit = std::log(static_cast<double>(weights[i])) + kRouterMargin;
      values_[uint64_t{experts[i]} * shape_.hidden + t] = static_cast<float>(logit / code);
    }
  }
}

}  // namespace sluice
