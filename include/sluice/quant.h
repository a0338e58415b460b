// Weight types at the public door: raw blocks to float32 and back (`sluice quant`).
//
// Contract: pure and thread-safe; spans are caller-owned. Values are those of docs/weight-types.md,
// bit-exact.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/status.h"

namespace sluice {

struct QuantFormat {
  std::string name;  // "Q4_K"
  uint32_t ggml_type = 0;
  uint32_t block_elems = 0;  // values per block
  uint32_t block_bytes = 0;
  bool decodes = false, encodes = false;
};

// Every type known by name, in the order of its number.
std::vector<QuantFormat> QuantFormats();
// kUsage naming the type and the ones there are.
Result<QuantFormat> FindQuantFormat(std::string_view name);

// blocks.size() must be n * block_bytes and out.size() n * block_elems for the same n, else kUsage.
Status DecodeBlocks(const QuantFormat& format, std::span<const uint8_t> blocks,
                    std::span<float> out);
Status EncodeBlocks(const QuantFormat& format, std::span<const float> in,
                    std::span<uint8_t> blocks);

}  // namespace sluice
