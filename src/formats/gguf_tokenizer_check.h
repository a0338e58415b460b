// Is the tokenizer section of a GGUF file whole, and does it fit the embedding?
//
// Contract: pure but for warnings to the log. A file without any tokenizer section, or with
// tokenizer.ggml.model "none", is fine: it is used with token ids only. kBadModel names the key.
// Special token ids outside the vocabulary are warned about and are for the tokenizer to ignore.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "formats/gguf.h"

namespace sluice {

// vocab_rows: rows of token_embd.weight. `name` is the file, for errors.
Status CheckTokenizerKeys(const GgufMetadata& metadata, uint64_t vocab_rows,
                          const std::string& name = {});

}  // namespace sluice
