// Where reference files outside the repository are: $SLUICE_SHARED, else ../shared beside the
// checkout.
//
// Contract: for tests. Tests that need a file from there skip loudly when it is absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace sluice::testing {

inline std::string SharedPath(const std::string& below) {
  const char* root = std::getenv("SLUICE_SHARED");
  const std::string base = root != nullptr ? root : std::string(SLUICE_SOURCE_DIR) + "/../shared";
  return base + "/" + below;
}
inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace sluice::testing
