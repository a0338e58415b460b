#include "sluice/status.h"

namespace sluice {

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text = what();
  if (!where().empty()) text += " (" + where() + ")";
  if (!hint().empty()) text += "; " + hint();
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

}  // namespace sluice
