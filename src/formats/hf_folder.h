// A Hugging Face folder: config.json, *.safetensors (one or sharded with an index), tokenizer
// files.
//
// Contract: ParseSafetensors takes the file's first bytes and its size, caps everything, rejects
// overlaps, reversed or short offsets and shape/size mismatches naming the tensor. OpenHfFolder
// reads headers only. Small JSON files are returned parsed; tokenizer.json is left on disk for the
// text room (it can be 33 MB).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "formats/catalog.h"

namespace sluice {

// Tensor dims are reversed to GGUF order (dims[0] along a row). Offsets are absolute in the file.
// Shapes of more than four dimensions (vision kernels) keep n_dims and fold the outer ones into
// dims[3]. Byte types without a weight type of their own are given as the integer type of the same
// width (U8 and BOOL as kI8). `head` must hold the whole header: 8 bytes of length and that many
// bytes of JSON.
Result<std::vector<TensorInfo>> ParseSafetensors(ByteSpan head, uint64_t file_bytes,
                                                 const std::string& name);

struct HfFolder {
  std::string path;
  Catalog catalog;
  nlohmann::json config;             // config.json
  nlohmann::json generation_config;  // null when absent
  nlohmann::json tokenizer_config;   // null when absent
  std::string chat_template;  // chat_template.jinja, .json or tokenizer_config's; empty when none
  bool has_tokenizer_json = false;
};
// need_weights = false accepts a folder that holds only tokenizer files (catalog stays empty).
Result<HfFolder> OpenHfFolder(const std::string& path, bool need_weights);

// Depth- and size-capped JSON parse for all JSON from outside; error names `name` and the byte. A
// key given twice in one object is an error: which one wins would differ between readers.
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& name);

}  // namespace sluice
