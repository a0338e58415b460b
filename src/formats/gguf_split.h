// Names of the files of a split set: PREFIX-00002-of-00005.gguf.
//
// Contract: pure. Numbers in names count from 1; the split.no key counts from 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

struct SplitName {
  std::string prefix;  // path up to the last '-' before the number
  uint32_t number = 0, count = 0;
};

// nullopt when the path is not of this form, or number is 0 or beyond count.
std::optional<SplitName> ParseSplitName(std::string_view path);
std::string ShardPath(const std::string& prefix, uint32_t number, uint32_t count);

}  // namespace sluice
