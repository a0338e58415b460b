// Names from files, made fit for one line of an error text.
//
// Contract: pure. Control bytes become '?', anything beyond kPrintableMax bytes is cut with "...".
#pragma once

#include <string>
#include <string_view>

namespace sluice {

constexpr size_t kPrintableMax = 160;  // longer names do not help a reader and flood a terminal

inline std::string Printable(std::string_view text) {
  std::string out(text.substr(0, kPrintableMax));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > kPrintableMax) out += "...";
  return out;
}

}  // namespace sluice
