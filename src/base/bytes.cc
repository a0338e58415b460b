#include "base/bytes.h"

#include <fmt/format.h>

namespace sluice {
namespace {

// 1024^k of "", "K", "KB", "KiB", "k", ...; nullopt when it is no unit.
std::optional<int> UnitShift(std::string_view unit) {
  if (unit.empty() || unit == "B" || unit == "b") return 0;
  constexpr std::string_view kLetters = "KMGT";
  const char letter =
      static_cast<char>(unit[0] >= 'a' && unit[0] <= 'z' ? unit[0] - 'a' + 'A' : unit[0]);
  const size_t index = kLetters.find(letter);
  if (index == std::string_view::npos) return std::nullopt;
  unit.remove_prefix(1);
  if (!unit.empty() && unit != "B" && unit != "b" && unit != "iB") return std::nullopt;
  return static_cast<int>(10 * (index + 1));
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<uint64_t> ParseSize(std::string_view text) {
  size_t at = 0;
  uint64_t whole = 0;
  for (; at < text.size() && IsDigit(text[at]); ++at) {
    const auto tens = CheckedMul(whole, 10);
    const auto sum = tens ? CheckedAdd(*tens, static_cast<uint64_t>(text[at] - '0')) : std::nullopt;
    if (!sum) return std::nullopt;
    whole = *sum;
  }
  if (at == 0) return std::nullopt;

  uint64_t fraction = 0, scale = 1;
  bool has_fraction = false;
  if (at < text.size() && text[at] == '.') {
    ++at;
    for (; at < text.size() && IsDigit(text[at]); ++at) {
      has_fraction = true;
      if (scale >= 1'000'000) continue;  // a millionth of a terabyte is precise enough
      fraction = fraction * 10 + static_cast<uint64_t>(text[at] - '0');
      scale *= 10;
    }
    if (!has_fraction) return std::nullopt;
  }

  const auto shift = UnitShift(text.substr(at));
  if (!shift || (has_fraction && *shift == 0)) return std::nullopt;
  const uint64_t unit = uint64_t{1} << *shift;
  const auto bytes = CheckedMul(whole, unit);
  if (!bytes) return std::nullopt;
  return CheckedAdd(*bytes, fraction * unit / scale);
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {  // 1023.95 would print as 1024.0
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace sluice
