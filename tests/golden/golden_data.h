// Reader of the golden folders: golden.json describes arrays in golden.bin.
//
// Contract: test-only; throws nothing, aborts the test with a message on malformed data.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/test_data.h"

namespace sluice::golden {

inline std::filesystem::path SharedDir() { return test::SharedPath(""); }

class Golden {
 public:
  explicit Golden(const std::filesystem::path& dir) {
    std::ifstream json(dir / "golden.json");
    meta_ = nlohmann::json::parse(json);
    std::ifstream bin(dir / "golden.bin", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(bin), {});
  }

  const nlohmann::json& meta() const { return meta_; }
  bool Has(const std::string& name) const { return meta_["tensors"].contains(name); }

  template <typename T>
  std::vector<T> Get(const std::string& name) const {
    const nlohmann::json& t = meta_["tensors"].at(name);
    const size_t offset = t["offset"], nbytes = t["nbytes"];
    std::vector<T> out(nbytes / sizeof(T));
    std::memcpy(out.data(), bytes_.data() + offset, nbytes);
    return out;
  }
  std::vector<int32_t> Ids(const std::string& name) const {
    if (Has(name)) return Get<int32_t>(name);
    return meta_.at(name).get<std::vector<int32_t>>();
  }

 private:
  nlohmann::json meta_;
  std::vector<char> bytes_;
};

// max |a - b| / max |b|
inline double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, scale = 0;
  if (a.size() != b.size()) return 1e9;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i]) < 1e30f)) return 1e9;
    error = std::max(error, static_cast<double>(std::abs(a[i] - b[i])));
    scale = std::max(scale, static_cast<double>(std::abs(b[i])));
  }
  return error / scale;
}

}  // namespace sluice::golden
