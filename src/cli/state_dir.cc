#include "cli/state_dir.h"

#include <cstdlib>

namespace sluice::cli {

std::string DefaultStateDir() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/sluice";
  const char* home = std::getenv("HOME");
  return home == nullptr || home[0] == '\0' ? "" : std::string(home) + "/.local/state/sluice";
}

}  // namespace sluice::cli
