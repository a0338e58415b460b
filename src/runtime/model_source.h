// ModelSource: a model opened as files, before anything of it is loaded.
//
// Contract: OpenModelSource reads headers only. A folder may hold just tokenizer files when weights
// are not needed. The GGUF metadata views stay valid until DropMetadata, which is called once
// config and tokenizer are built: the header of a large vocabulary is tens of megabytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/hf_folder.h"
#include "model/model_map.h"

namespace sluice {

struct ModelSource {
  std::string path, name;
  std::optional<GgufFileSet> gguf;
  std::optional<HfFolder> folder;
  RopeOverride rope;  // instead of what the file says of positions
};

Result<ModelSource> OpenModelSource(const std::string& path, bool need_weights);

// The map of its weights; the catalog moves out of the source. Checks that the architecture has a
// forward page.
Result<ModelMap> BindSource(ModelSource* source);

// Sampling defaults of the model as JSON with Hugging Face's names; "{}" when it has none.
std::string GenerationDefaults(const ModelSource& source);

}  // namespace sluice
