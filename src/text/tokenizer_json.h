// tokenizer.json (Hugging Face tokenizers) read as a stream.
//
// Contract: the file is pulled in small pieces and never held whole; vocabulary and merges go
// straight into the flat tables, only the small sections become a tree. BPE models; normaliser,
// pre-tokenizer and decoder parts are interpreted one by one and anything else is refused by name.
// Keys may come in any order. Errors are kBadModel naming `origin` and the part, or the byte where
// the JSON is broken.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/tokenizer.h"

namespace sluice {

// Fills the buffer and returns the bytes written: 0 at the end, -1 when reading failed (kIo).
using PullBytes = std::function<int64_t(char* buffer, size_t capacity)>;

Result<std::unique_ptr<Tokenizer>> ParseTokenizerJson(const PullBytes& pull,
                                                      const std::string& origin);
Result<std::unique_ptr<Tokenizer>> ParseTokenizerJson(std::string_view json,
                                                      const std::string& origin);

}  // namespace sluice
