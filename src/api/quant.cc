#include "sluice/quant.h"

#include <fmt/format.h>

#include "quant/types.h"

namespace sluice {
namespace {

constexpr uint32_t kTypeIdsEnd = 64;  // ggml's numbers go up to 40

QuantFormat FormatOf(const WeightTypeInfo& info) {
  return {info.name,        static_cast<uint32_t>(info.type),
          info.block_elems, info.block_bytes,
          info.decodes,     Encodes(info.type)};
}

Status CheckSizes(const QuantFormat& format, uint64_t bytes, uint64_t elems) {
  if (format.block_bytes > 0 && format.block_elems > 0 && bytes % format.block_bytes == 0 &&
      elems % format.block_elems == 0 && bytes / format.block_bytes == elems / format.block_elems) {
    return Status();
  }
  return Status(
      Code::kUsage,
      fmt::format("{} bytes of blocks and {} values do not go together", bytes, elems), format.name,
      fmt::format("a block is {} bytes and {} values", format.block_bytes, format.block_elems));
}

Status Unsupported(const QuantFormat& format, const char* verb) {
  return Status(Code::kUsage, fmt::format("the type {} cannot be {}", format.name, verb));
}

}  // namespace

std::vector<QuantFormat> QuantFormats() {
  std::vector<QuantFormat> formats;
  for (uint32_t id = 0; id < kTypeIdsEnd; ++id) {
    if (const WeightTypeInfo* info = FindWeightType(id)) formats.push_back(FormatOf(*info));
  }
  return formats;
}

Result<QuantFormat> FindQuantFormat(std::string_view name) {
  if (const WeightTypeInfo* info = FindWeightType(name)) return FormatOf(*info);
  std::string known;
  for (const QuantFormat& format : QuantFormats()) {
    if (format.decodes) known += (known.empty() ? "" : " ") + format.name;
  }
  return Status(Code::kUsage, fmt::format("unknown weight type {}", name), "", "known: " + known);
}

Status DecodeBlocks(const QuantFormat& format, std::span<const uint8_t> blocks,
                    std::span<float> out) {
  SLUICE_TRY(CheckSizes(format, blocks.size(), out.size()));
  if (!format.decodes) return Unsupported(format, "decoded");
  DecodeRow(static_cast<WeightType>(format.ggml_type), blocks.data(), out.data(), out.size());
  return Status();
}

Status EncodeBlocks(const QuantFormat& format, std::span<const float> in,
                    std::span<uint8_t> blocks) {
  SLUICE_TRY(CheckSizes(format, blocks.size(), in.size()));
  if (!format.encodes) return Unsupported(format, "encoded");
  return EncodeRow(static_cast<WeightType>(format.ggml_type), in.data(), blocks.data(), in.size());
}

}  // namespace sluice
