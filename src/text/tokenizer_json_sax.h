// The event side of tokenizer.json: sorts the stream into vocabulary, merges, added tokens and
// small trees.
//
// Contract: internal to the text room; one object per parse. Handlers return false after the first
// error, which stays in status(). Trees deeper than limits::kJsonDepthMax or larger than
// kSmallBytesMax are refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/added_tokens.h"
#include "text/merges.h"
#include "text/vocab.h"

namespace sluice::text {

struct TokenizerJson {
  Vocab vocab;
  MergeTable merges;
  std::vector<AddedToken> added;
  nlohmann::json normalizer, pre_tokenizer, post_processor, decoder;
  nlohmann::json model;  // without vocab and merges
  bool has_vocab = false, has_merges = false;
};

class TokenizerJsonSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Json = nlohmann::json;
  explicit TokenizerJsonSax(std::string origin) : origin_(std::move(origin)) {}

  bool null() override { return Scalar(nullptr); }
  bool boolean(bool v) override { return Scalar(v); }
  bool number_integer(number_integer_t v) override { return Scalar(v); }
  bool number_unsigned(number_unsigned_t v) override;
  bool number_float(number_float_t v, const string_t&) override { return Scalar(v); }
  bool string(string_t& v) override;
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool key(string_t& v) override;
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& e) override;

  Status status() const { return status_; }
  // After the last event: merges that came before the vocabulary are looked up now.
  Status Finish();
  TokenizerJson& result() { return out_; }

 private:
  enum class Mode : uint8_t { kTop, kTree, kAddedList, kModel, kVocab, kMerges, kMergePair };
  static constexpr size_t kSmallBytesMax = 4 << 20;

  bool Fail(std::string what);
  bool Scalar(Json value);
  bool Open(Json container);
  bool Close();
  bool TreeValue(Json value, bool opens);
  bool TreeDone();
  bool AddMerge(std::string_view left, std::string_view right);
  bool AddMergeLine(std::string_view line);
  bool AddToken(const Json& token);

  std::string origin_;
  Status status_;
  TokenizerJson out_;
  Mode mode_ = Mode::kTop, after_tree_ = Mode::kTop;
  int depth_ = 0;          // open containers outside trees
  std::string section_;    // key of the root object
  std::string model_key_;  // key of "model"
  std::string token_;      // key of "vocab"
  Json tree_;
  std::vector<Json*> tree_path_;
  std::vector<std::string> tree_keys_;
  size_t tree_bytes_ = 0;
  std::vector<std::string> pair_;
  std::vector<std::pair<std::string, std::string>> early_merges_;
};

}  // namespace sluice::text
