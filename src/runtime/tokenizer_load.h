// Tokenizers out of model files: the glue between the formats room and the text room.
//
// Contract: neither function keeps a reference to its input. Ids beyond the vocabulary are warned
// about and ignored. Errors are kBadModel (kIo for unreadable files) naming the file and the key.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "formats/gguf.h"
#include "text/tokenizer.h"

namespace sluice {

Result<std::unique_ptr<Tokenizer>> TokenizerFromGguf(const GgufMetadata& metadata,
                                                     const std::string& origin = "model file");

// tokenizer.json with tokenizer_config.json (bos_token, eos_token, add_bos_token) and
// generation_config.json or config.json (eos_token_id: one or a list). tokenizer.json is read in
// small pieces, never held whole.
Result<std::unique_ptr<Tokenizer>> TokenizerFromFolder(const std::string& folder);

}  // namespace sluice
