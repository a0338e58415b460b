// One table: id -> name, block shape, decoder, encoder.
#include "quant/types.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cassert>
#include <cctype>
#include <limits>

#include "base/bytes.h"
#include "quant/codecs.h"

namespace sluice {
namespace {

using quant::DecodeFn;
using quant::EncodeFn;

struct Entry {
  WeightTypeInfo info;
  DecodeFn decode;  // null: the type is known by its size only
  EncodeFn encode;
};

// `decodes` is spelled out: under -fsanitize=undefined comparing a function's address is no
// constant.
#define CODEC(NAME, ELEMS, BYTES) \
  { {WeightType::k##NAME, #NAME, ELEMS, BYTES, true}, quant::Decode##NAME, quant::Encode##NAME }
#define DECODE_ONLY(NAME, ELEMS, BYTES) \
  { {WeightType::k##NAME, #NAME, ELEMS, BYTES, true}, quant::Decode##NAME, nullptr }
#define SIZE_ONLY(NAME, ELEMS, BYTES) \
  { {WeightType::k##NAME, #NAME, ELEMS, BYTES, false}, nullptr, nullptr }

// The grids come from a package at configure time (cmake/codebooks.cmake).
#ifdef SLUICE_CODEBOOKS
#define CODEBOOK DECODE_ONLY
#else
#define CODEBOOK SIZE_ONLY
#endif

// clang-format off
constexpr Entry kEntries[] = {
    CODEC(F32, 1, 4),           CODEC(F16, 1, 2),           CODEC(BF16, 1, 2),
    CODEC(Q4_0, 32, 18),        CODEC(Q4_1, 32, 20),        CODEC(Q5_0, 32, 22),
    CODEC(Q5_1, 32, 24),        CODEC(Q8_0, 32, 34),        CODEC(Q2_K, 256, 84),
    CODEC(Q3_K, 256, 110),      CODEC(Q4_K, 256, 144),      CODEC(Q5_K, 256, 176),
    CODEC(Q6_K, 256, 210),      CODEC(IQ4_NL, 32, 18),      CODEC(IQ4_XS, 256, 136),
    CODEC(MXFP4, 32, 17),       CODEC(TQ1_0, 256, 54),      CODEC(TQ2_0, 256, 66),
    CODEBOOK(IQ1_S, 256, 50),   CODEBOOK(IQ1_M, 256, 56),   CODEBOOK(IQ2_XXS, 256, 66),
    CODEBOOK(IQ2_XS, 256, 74),  CODEBOOK(IQ2_S, 256, 82),   CODEBOOK(IQ3_XXS, 256, 98),
    CODEBOOK(IQ3_S, 256, 110),  SIZE_ONLY(I8, 1, 1),        SIZE_ONLY(I16, 1, 2),
    SIZE_ONLY(I32, 1, 4),       SIZE_ONLY(I64, 1, 8),       SIZE_ONLY(F64, 1, 8),
};
// clang-format on

#undef CODEC
#undef CODEBOOK
#undef DECODE_ONLY
#undef SIZE_ONLY

constexpr uint32_t kIdLimit = 48;  // above every id in kEntries

constexpr std::array<const Entry*, kIdLimit> MakeIndex() {
  std::array<const Entry*, kIdLimit> index{};
  for (const Entry& entry : kEntries) index[uint32_t(entry.info.type)] = &entry;
  return index;
}
constexpr std::array<const Entry*, kIdLimit> kIndex = MakeIndex();

const Entry* FindEntry(uint32_t id) { return id < kIdLimit ? kIndex[id] : nullptr; }

const Entry& EntryOf(WeightType type) {
  const Entry* entry = FindEntry(uint32_t(type));
  assert(entry != nullptr && "every enumerator has an entry");
  return *entry;
}

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::toupper(uint8_t(a[i])) != std::toupper(uint8_t(b[i]))) return false;
  }
  return true;
}

// Index of the first NaN or infinity, n when there is none.
uint64_t FirstNonFinite(const float* in, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    if ((std::bit_cast<uint32_t>(in[i]) & 0x7F800000) == 0x7F800000) return i;
  }
  return n;
}

}  // namespace

const WeightTypeInfo* FindWeightType(uint32_t id) {
  const Entry* entry = FindEntry(id);
  return entry ? &entry->info : nullptr;
}

const WeightTypeInfo* FindWeightType(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (EqualIgnoringCase(entry.info.name, name)) return &entry.info;
  }
  return nullptr;
}

const WeightTypeInfo& InfoOf(WeightType type) { return EntryOf(type).info; }

const char* KnownTypeName(uint32_t id) {
  switch (id) {  // ids ggml gave out that are retired, internal, or newer than this table
    case 4:
      return "Q4_2 (retired)";
    case 5:
      return "Q4_3 (retired)";
    case 9:
      return "Q8_1";
    case 15:
      return "Q8_K";
    case 31:
      return "Q4_0_4_4 (retired)";
    case 32:
      return "Q4_0_4_8 (retired)";
    case 33:
      return "Q4_0_8_8 (retired)";
    case 36:
      return "IQ4_NL_4_4 (retired)";
    case 37:
      return "IQ4_NL_4_8 (retired)";
    case 38:
      return "IQ4_NL_8_8 (retired)";
    case 40:
      return "NVFP4";
    case 41:
      return "Q1_0";
    default:
      break;
  }
  const Entry* entry = FindEntry(id);
  return entry ? entry->info.name : "?";
}

std::optional<uint64_t> RowBytes(WeightType type, uint64_t n) {
  const WeightTypeInfo& info = InfoOf(type);
  if (n % info.block_elems != 0) return std::nullopt;
  return CheckedMul(n / info.block_elems, info.block_bytes);
}

void DecodeRow(WeightType type, const uint8_t* blocks, float* out, uint64_t n) {
  const Entry& entry = EntryOf(type);
  assert(entry.decode != nullptr && n % entry.info.block_elems == 0);
  if (entry.decode == nullptr || n % entry.info.block_elems != 0) {
    for (uint64_t i = 0; i < n; ++i) out[i] = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  if (n > 0) entry.decode(blocks, out, n);
}

bool Encodes(WeightType type) { return EntryOf(type).encode != nullptr; }

Status EncodeRow(WeightType type, const float* in, uint8_t* blocks, uint64_t n,
                 const float* importance) {
  const Entry& entry = EntryOf(type);
  const WeightTypeInfo& info = entry.info;
  if (entry.encode == nullptr) {
    return Status(Code::kFailed, fmt::format("no encoder for weight type {}", info.name), "",
                  "choose another type");
  }
  if (n % info.block_elems != 0) {
    return Status(Code::kFailed,
                  fmt::format("a row of {} elements is no multiple of {}'s block of {}", n,
                              info.name, info.block_elems),
                  "", "choose a type with a smaller block");
  }
  if (info.block_elems > 1) {
    if (const uint64_t bad = FirstNonFinite(in, n); bad < n) {
      return Status(Code::kFailed, fmt::format("cannot encode {} as {}", in[bad], info.name),
                    fmt::format("element {}", bad), "the source tensor is damaged");
    }
  }
  if (n > 0 && !entry.encode(in, importance, blocks, n)) {
    return Status(Code::kFailed,
                  fmt::format("values too large: a scale of {} does not fit a half", info.name), "",
                  "store this tensor as BF16 or F32");
  }
  return Status();
}

}  // namespace sluice
