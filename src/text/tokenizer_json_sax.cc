#include "text/tokenizer_json_sax.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "text/unicode.h"

namespace sluice::text {

bool TokenizerJsonSax::Fail(std::string what) {
  if (status_.ok()) status_ = Status(Code::kBadModel, std::move(what), origin_);
  return false;
}

bool TokenizerJsonSax::parse_error(std::size_t position, const std::string& /*last_token*/,
                                   const nlohmann::detail::exception& /*e*/) {
  return Fail(fmt::format("broken JSON at byte {}", position));
}

bool TokenizerJsonSax::number_unsigned(number_unsigned_t v) {
  if (mode_ != Mode::kVocab) return Scalar(v);
  status_ = out_.vocab.Put(v, token_);
  if (!status_.ok())
    status_ = Status(status_.code(), status_.what(), origin_ + ": vocab", status_.hint());
  return status_.ok();
}

bool TokenizerJsonSax::string(string_t& v) {
  if (mode_ == Mode::kMerges) return AddMergeLine(v);
  if (mode_ == Mode::kMergePair) {
    pair_.push_back(std::move(v));
    return pair_.size() <= 2 || Fail("a merge of more than two parts");
  }
  return Scalar(std::move(v));
}

bool TokenizerJsonSax::key(string_t& v) {
  switch (mode_) {
    case Mode::kTop:
      section_ = std::move(v);
      return true;
    case Mode::kModel:
      model_key_ = std::move(v);
      return true;
    case Mode::kVocab:
      token_ = std::move(v);
      return true;
    case Mode::kTree:
      tree_bytes_ += v.size();
      tree_keys_.back() = std::move(v);
      return true;
    default:
      return Fail("an object where none belongs");
  }
}

bool TokenizerJsonSax::Scalar(Json value) {
  switch (mode_) {
    case Mode::kTree:
      return TreeValue(std::move(value), false);
    case Mode::kTop:
      return depth_ == 1 || Fail("not a tokenizer.json");
    case Mode::kModel:
      out_.model[model_key_] = std::move(value);
      return true;
    case Mode::kAddedList:
      return Fail("an added token that is no object");
    case Mode::kVocab:
      return Fail("a token id that is no id: " + ToValidUtf8(token_.substr(0, 64)));
    default:
      return Fail("a merge that is no text");
  }
}

// A container begins: which of the streams does it belong to?
bool TokenizerJsonSax::Open(Json container) {
  const bool object = container.is_object();
  if (mode_ == Mode::kTree) return TreeValue(std::move(container), true);
  if (depth_ == 0) {
    ++depth_;
    return object || Fail("not a tokenizer.json");
  }
  if (mode_ == Mode::kTop && section_ == "model" && object) {
    mode_ = Mode::kModel;
    out_.model = Json::object();
  } else if (mode_ == Mode::kTop && section_ == "added_tokens" && !object) {
    mode_ = Mode::kAddedList;
  } else if (mode_ == Mode::kModel && model_key_ == "vocab") {
    if (!object)
      return Fail("unsupported tokenizer model: a vocabulary with probabilities (Unigram)");
    mode_ = Mode::kVocab;
    out_.has_vocab = true;
  } else if (mode_ == Mode::kModel && model_key_ == "merges" && !object) {
    mode_ = Mode::kMerges;
    out_.has_merges = true;
    if (out_.has_vocab) out_.vocab.IndexRaw();
  } else if (mode_ == Mode::kMerges && !object) {
    mode_ = Mode::kMergePair;
    pair_.clear();
  } else if (mode_ == Mode::kTop || mode_ == Mode::kAddedList || mode_ == Mode::kModel) {
    after_tree_ = mode_;
    mode_ = Mode::kTree;
    tree_bytes_ = 0;
    return TreeValue(std::move(container), true);
  } else {
    return Fail("nested data where none belongs");
  }
  ++depth_;
  return true;
}

bool TokenizerJsonSax::Close() {
  if (mode_ == Mode::kTree) {
    tree_path_.pop_back();
    tree_keys_.pop_back();
    return !tree_path_.empty() || TreeDone();
  }
  --depth_;
  switch (mode_) {
    case Mode::kMergePair:
      mode_ = Mode::kMerges;
      if (pair_.size() != 2) return Fail("a merge that is no pair");
      return AddMerge(pair_[0], pair_[1]);
    case Mode::kMerges:
    case Mode::kVocab:
      mode_ = Mode::kModel;
      return true;
    default:
      mode_ = Mode::kTop;
      return true;
  }
}

bool TokenizerJsonSax::TreeValue(Json value, bool opens) {
  tree_bytes_ += 16 + (value.is_string() ? value.get_ref<const std::string&>().size() : 0);
  if (tree_bytes_ > kSmallBytesMax)
    return Fail("section '" + ToValidUtf8(section_) + "' is too large");
  if (tree_path_.size() > limits::kJsonDepthMax) return Fail("JSON nested too deeply");
  Json* slot = &tree_;
  if (tree_path_.empty()) {
    tree_ = std::move(value);
  } else if (tree_path_.back()->is_array()) {
    tree_path_.back()->push_back(std::move(value));
    slot = &tree_path_.back()->back();
  } else {
    slot = &(*tree_path_.back())[tree_keys_.back()];
    *slot = std::move(value);
  }
  if (opens) {
    tree_path_.push_back(slot);
    tree_keys_.emplace_back();
  }
  return true;
}

bool TokenizerJsonSax::TreeDone() {
  mode_ = after_tree_;
  Json tree = std::move(tree_);
  tree_ = nullptr;
  if (mode_ == Mode::kAddedList) return AddToken(tree);
  if (mode_ == Mode::kModel) {
    out_.model[model_key_] = std::move(tree);
  } else if (section_ == "normalizer") {
    out_.normalizer = std::move(tree);
  } else if (section_ == "pre_tokenizer") {
    out_.pre_tokenizer = std::move(tree);
  } else if (section_ == "post_processor") {
    out_.post_processor = std::move(tree);
  } else if (section_ == "decoder") {
    out_.decoder = std::move(tree);
  }
  return true;
}

bool TokenizerJsonSax::AddToken(const Json& t) {
  auto flag = [&t](const char* name) {
    const auto it = t.find(name);
    return it != t.end() && it->is_boolean() && it->get<bool>();
  };
  const auto id = t.find("id"), content = t.find("content");
  if (!t.is_object() || id == t.end() || !id->is_number_unsigned() || content == t.end() ||
      !content->is_string()) {
    return Fail("an added token without id or content");
  }
  const uint64_t value = id->get<uint64_t>();
  if (value >= limits::kVocabMax) return Fail(fmt::format("added token id {} is too large", value));
  AddedToken token;
  token.id = static_cast<TokenId>(value);
  token.content = content->get<std::string>();
  token.control = flag("special");
  token.single_word = flag("single_word");
  token.lstrip = flag("lstrip");
  token.rstrip = flag("rstrip");
  token.normalized = flag("normalized");
  if (out_.added.size() >= limits::kVocabMax) return Fail("too many added tokens");
  if (!token.content.empty()) out_.added.push_back(std::move(token));
  return true;
}

bool TokenizerJsonSax::AddMergeLine(std::string_view line) {
  const size_t space = line.find(' ', 1);
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return Fail(fmt::format("merge {} is no pair: '{}'", out_.merges.size(),
                            ToValidUtf8(line.substr(0, 64))));
  }
  return AddMerge(line.substr(0, space), line.substr(space + 1));
}

bool TokenizerJsonSax::AddMerge(std::string_view left, std::string_view right) {
  if (!out_.has_vocab) {
    early_merges_.emplace_back(left, right);
    return early_merges_.size() <= limits::kVocabMax || Fail("too many merges");
  }
  const TokenId a = out_.vocab.FindRaw(left), b = out_.vocab.FindRaw(right);
  token_.assign(left).append(right);
  const TokenId merged = out_.vocab.FindRaw(token_);
  if (a < 0 || b < 0 || merged < 0) {
    return Fail(fmt::format("merge {} names a text that is no token: '{}' + '{}'",
                            out_.merges.size(), ToValidUtf8(left.substr(0, 64)),
                            ToValidUtf8(right.substr(0, 64))));
  }
  if (out_.merges.size() >= uint64_t{limits::kVocabMax} * 2) return Fail("too many merges");
  out_.merges.Add(a, b, merged);
  return true;
}

Status TokenizerJsonSax::Finish() {
  if (!status_.ok()) return status_;
  if (!early_merges_.empty()) {
    if (!out_.has_vocab) Fail("a merge list without a vocabulary");
    out_.vocab.IndexRaw();
    for (const auto& [left, right] : early_merges_) {
      if (!status_.ok() || !AddMerge(left, right)) break;
    }
    early_merges_ = {};
  }
  return status_;
}

}  // namespace sluice::text
