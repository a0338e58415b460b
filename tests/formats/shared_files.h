// Reference files outside the repository, as a whole.
//
// Contract: for tests. "" when there is no such file.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "tests/test_data.h"

namespace sluice::testing {

using test::SharedPath;

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace sluice::testing
