// Small tokenizers and a reader of shared goldens for the tokenizer tests.
//
// Contract: test code only.
#pragma once

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/test_data.h"
#include "text/split_regex.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_source.h"
#include "text/unicode.h"

namespace sluice::testing {

using Ids = std::vector<TokenId>;

using test::SharedPath;

inline std::string TokenizerFolder(const std::string& name) {
  return test::ModelPath("tokenizers/" + name);
}

// Null when there is no such file.
inline nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return file ? nlohmann::json::parse(file) : nlohmann::json();
}

inline Result<std::unique_ptr<Tokenizer>> LoadTokenizerJson(const std::string& path) {
  auto file = std::make_shared<std::ifstream>(path, std::ios::binary);
  return ParseTokenizerJson(
      [file](char* buffer, size_t capacity) -> int64_t {
        file->read(buffer, static_cast<std::streamsize>(capacity));
        return file->gcount();
      },
      path);
}

// A GGUF-like description held in vectors.
struct ListSource {
  std::string model = "gpt2", pre = "qwen2";
  std::vector<std::string> tokens, merges;
  std::vector<int> types;
  std::vector<float> scores;
  std::vector<TokenizerSource::Id> ids;
  std::optional<bool> add_bos, add_space_prefix;
  bool has_merges = true;

  void Add(const std::string& token, int type, float score = 0) {
    tokens.push_back(token);
    types.push_back(type);
    scores.push_back(score);
  }

  Result<std::unique_ptr<Tokenizer>> Build() const {
    TokenizerSource s;
    s.origin = "test.gguf";
    s.model = model;
    s.pre = pre;
    s.tokens = Pull(tokens);
    if (has_merges) s.merges = Pull(merges);
    s.type_count = types.size();
    s.score_count = scores.size();
    s.type = [this](uint64_t i) { return types[i]; };
    s.score = [this](uint64_t i) { return scores[i]; };
    s.ids = ids;
    s.add_bos = add_bos;
    s.add_space_prefix = add_space_prefix;
    return BuildTokenizer(s);
  }

 private:
  static TokenizerSource::Strings Pull(const std::vector<std::string>& list) {
    TokenizerSource::Strings out;
    out.count = list.size();
    size_t at = 0;
    out.next = [&list, at](std::string_view* text) mutable {
      if (at == list.size()) return false;
      *text = list[at++];
      return true;
    };
    return out;
  }
};

// Byte-level: ids 0..255 the bytes, a few merges, then <|im_start|> (control), <|im_end|>
// (control), <think> (user-defined), <|endoftext|> (control, BOS).
inline ListSource ByteLevelSource() {
  ListSource s;
  for (int b = 0; b < 256; ++b) {
    std::string token;
    text::AppendUtf8(text::ByteToMapped(static_cast<uint8_t>(b)), &token);
    s.Add(token, 1);
  }
  for (const char* merge : {"h e", "l l", "he ll", "hell o", "u s", "us er", "e r"}) {
    s.merges.push_back(merge);
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    if (std::find(s.tokens.begin(), s.tokens.end(), joined) == s.tokens.end()) s.Add(joined, 1);
  }
  s.Add("<|im_start|>", 3);
  s.Add("<|im_end|>", 3);
  s.Add("<think>", 4);
  s.Add("<|endoftext|>", 3);
  const auto last = static_cast<uint64_t>(s.tokens.size() - 1);
  s.ids = {{TokenizerSource::Role::kBos, "tokenizer.ggml.bos_token_id", last}};
  return s;
}

// SentencePiece: <unk> <s> </s>, the 256 bytes, then pieces with falling scores.
inline ListSource ScoreSource() {
  ListSource s;
  s.model = "llama";
  s.pre.clear();
  s.Add("<unk>", 2);
  s.Add("<s>", 3);
  s.Add("</s>", 3);
  static const char* kHex = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) {
    s.Add(std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">", 6);
  }
  float score = -1;
  for (const char* piece : {"▁t", "he", "▁the", "lo", "llo", "hello", "▁hello", "el", "▁", "t", "h",
                            "e",  "l",  "o",    "a",  "<",   "s",     ">",      "<s", "/", "▁a"}) {
    s.Add(piece, 1, score);
    score -= 1;
  }
  s.ids = {{TokenizerSource::Role::kBos, "tokenizer.ggml.bos_token_id", 1},
           {TokenizerSource::Role::kEos, "tokenizer.ggml.eos_token_id", 2},
           {TokenizerSource::Role::kUnknown, "tokenizer.ggml.unknown_token_id", 0}};
  return s;
}

}  // namespace sluice::testing
