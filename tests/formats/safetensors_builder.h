// Builds safetensors files and model folders for tests.
//
// Contract: for tests. Data is a byte pattern; the header can be replaced as a whole or edited as
// JSON.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/formats/gguf_builder.h"
#include "tests/temp_folder.h"

namespace sluice::testing {

class SafetensorsBuilder {
 public:
  SafetensorsBuilder& Add(const std::string& name, const std::vector<uint64_t>& shape,
                          const std::string& dtype = "F32") {
    const uint64_t size = dtype == "F32" || dtype == "I32" ? 4 : dtype == "U8" ? 1 : 2;
    uint64_t bytes = size;
    for (uint64_t dim : shape) bytes *= dim;
    header[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_bytes, data_bytes + bytes}}};
    data_bytes += bytes;
    return *this;
  }
  std::string Build() const {
    std::string text = header_text.empty() ? header.dump() : header_text;
    text.resize(AlignUp(text.size(), 8), ' ');
    return Raw<uint64_t>(text.size()) + text + std::string(data_bytes, '\x11');
  }

  nlohmann::json header = nlohmann::json::object();
  std::string header_text;  // instead of `header` when not empty
  uint64_t data_bytes = 0;
};

using test::TempFolder;

}  // namespace sluice::testing
