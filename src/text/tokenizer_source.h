// What a GGUF file says about its tokenizer, without GGUF: the text room knows no formats.
//
// Contract: plain views and callbacks, valid while BuildTokenizer runs and not kept. String lists
// are pulled once, in order; nothing is copied on the way. Keys travel with the values so that
// errors and warnings can name them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace sluice {

struct TokenizerSource {
  std::string origin;                   // file, for errors
  std::string_view model;               // tokenizer.ggml.model: "gpt2", "llama", "gemma4"
  std::optional<std::string_view> pre;  // tokenizer.ggml.pre

  struct Strings {
    uint64_t count = 0;
    std::function<bool(std::string_view*)> next;  // null: the list is missing
  };
  Strings tokens, merges;

  // Counts differ from tokens.count only in a broken file. Null: the list is missing.
  uint64_t type_count = 0, score_count = 0;
  std::function<int64_t(uint64_t)> type;
  std::function<float(uint64_t)> score;

  // Ids as the file has them: range-checked by the builder, which warns naming the key.
  enum class Role : uint8_t { kBos, kEos, kUnknown, kPad, kEndOfGeneration };
  struct Id {
    Role role;
    std::string_view key;
    uint64_t value;
  };
  std::vector<Id> ids;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

Result<std::unique_ptr<Tokenizer>> BuildTokenizer(const TokenizerSource& source);

// Warns through the log and returns -1 when `value` is no token of the vocabulary.
TokenId CheckedTokenId(uint64_t value, uint32_t vocab_size, std::string_view key,
                       const std::string& origin);

// Adds to special().eog: eos, and every control token whose text is a well-known end mark.
void FindEndTokens(Tokenizer* tokenizer);

}  // namespace sluice
