#include "formats/gguf_split.h"

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr size_t kDigits = 5;

std::optional<uint32_t> Number(std::string_view text) {
  uint32_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  return value;
}

}  // namespace

std::optional<SplitName> ParseSplitName(std::string_view path) {
  constexpr std::string_view kEnd = ".gguf", kOf = "-of-";
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits;
  if (!path.ends_with(kEnd)) return std::nullopt;
  path.remove_suffix(kEnd.size());
  if (path.size() <= kTail) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const std::optional<uint32_t> number = Number(tail.substr(1, kDigits));
  const std::optional<uint32_t> count = Number(tail.substr(kTail - kDigits));
  if (!number || !count || *number == 0 || *number > *count) return std::nullopt;
  return SplitName{std::string(path.substr(0, path.size() - kTail)), *number, *count};
}

std::string ShardPath(const std::string& prefix, uint32_t number, uint32_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

}  // namespace sluice
