#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/limits.h"
#include "text/bpe_tokenizer.h"
#include "text/tokenizer_json_sax.h"
#include "text/tokenizer_source.h"
#include "text/unicode.h"

namespace sluice {
namespace {

// \w+|[^\w\s]+ with the \w of UTS 18, which the reference uses for this one step.
#define SLUICE_UTS_WORD                                             \
  R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\u24B6-\u24E9\x{1F130}-\x{1F149})" \
  R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}\u200C\u200D)"
constexpr char kWords[] = "[" SLUICE_UTS_WORD "]+|[^\\s" SLUICE_UTS_WORD "]+";

using nlohmann::json;
using text::BpeTokenizer;
using text::SplitBehavior;

// Feeds the JSON lexer one byte at a time out of a 64 KiB buffer.
class PullStream {
 public:
  explicit PullStream(const PullBytes& pull) : pull_(pull), buffer_(64 * 1024, '\0') { Refill(); }
  bool at_end() const { return at_ == size_; }
  char value() const { return buffer_[at_]; }
  void Advance() {
    if (++at_ == size_) Refill();
  }
  bool failed() const { return failed_; }

 private:
  void Refill() {
    const int64_t n = pull_(buffer_.data(), buffer_.size());
    failed_ = failed_ || n < 0;
    at_ = 0;
    size_ = n > 0 ? std::min(static_cast<size_t>(n), buffer_.size()) : 0;
  }
  const PullBytes& pull_;
  std::string buffer_;
  size_t at_ = 0, size_ = 0;
  bool failed_ = false;
};

class PullIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;
  PullIterator() = default;
  explicit PullIterator(PullStream* stream) : stream_(stream) {}
  char operator*() const { return stream_->value(); }
  PullIterator& operator++() {
    stream_->Advance();
    return *this;
  }
  bool operator==(const PullIterator& o) const { return done() == o.done(); }
  bool operator!=(const PullIterator& o) const { return !(*this == o); }

 private:
  bool done() const { return stream_ == nullptr || stream_->at_end(); }
  PullStream* stream_ = nullptr;
};

// Field access that never throws, whatever the tree holds.
std::string Text(const json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  return j.is_object() && it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}
bool Flag(const json& j, const char* key, bool fallback = false) {
  if (!j.is_object()) return fallback;
  const auto it = j.find(key);
  return it != j.end() && it->is_boolean() ? it->get<bool>() : fallback;
}
const json& Child(const json& j, const char* key) {
  static const json none;
  if (!j.is_object()) return none;
  const auto it = j.find(key);
  return it != j.end() ? *it : none;
}

// Turns the sections into the parts of a tokenizer, each by its "type".
class Builder {
 public:
  Builder(text::TokenizerJson file, std::string origin)
      : file_(std::move(file)), origin_(std::move(origin)) {}

  Result<std::unique_ptr<Tokenizer>> Run() {
    SLUICE_TRY(Model());
    SLUICE_TRY(Decoder(file_.decoder));
    SLUICE_TRY(PreTokenizer(file_.pre_tokenizer, 0));
    SLUICE_TRY(Normalizer(file_.normalizer, 0));
    if (byte_level_ != byte_level_decoder_)
      return Unsupported("decoder", "one that does not fit the pre-tokenizer");
    parts_.spelling = byte_level_ ? text::Spelling::kByteLevel : text::Spelling::kSpaceMark;
    SLUICE_TRY(Added());
    parts_.vocab = std::move(file_.vocab);
    parts_.merges = std::move(file_.merges);
    SLUICE_ASSIGN(std::unique_ptr<BpeTokenizer> made,
                  BpeTokenizer::Make(std::move(parts_), origin_));
    std::unique_ptr<Tokenizer> tokenizer = std::move(made);
    SLUICE_TRY(PostProcessor(file_.post_processor, tokenizer.get(), 0));
    return tokenizer;
  }

 private:
  Status Unsupported(const std::string& section, std::string what) const {
    return Status(
        Code::kBadModel,
        fmt::format("unsupported {}: {}", section, text::ToValidUtf8(what.substr(0, 200))),
        origin_);
  }

  Status Model() {
    const json& m = file_.model;
    const std::string type = Text(m, "type");
    if (type != "BPE" && !(type.empty() && file_.has_merges)) {
      return Unsupported("tokenizer model", type.empty() ? "none" : type);
    }
    if (!file_.has_vocab || file_.vocab.size() == 0)
      return Status(Code::kBadModel, "the vocabulary has no tokens", origin_ + ": model.vocab");
    if (!file_.has_merges)
      return Status(Code::kBadModel, "byte-pair merges are missing", origin_ + ": model.merges");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!Text(m, key).empty()) return Unsupported("tokenizer model", key);
    }
    const json& dropout = Child(m, "dropout");
    if (dropout.is_number() && dropout.get<double>() != 0)
      return Unsupported("tokenizer model", "dropout");
    parts_.byte_fallback = Flag(m, "byte_fallback");
    parts_.fuse_unknown = Flag(m, "fuse_unk");
    parts_.ignore_merges = Flag(m, "ignore_merges");
    unknown_ = Text(m, "unk_token");
    return {};
  }

  Status Decoder(const json& d) {
    const std::string type = Text(d, "type");
    if (d.is_null() || type == "ByteFallback" || type == "Fuse") return {};
    if (type == "ByteLevel") {
      byte_level_decoder_ = true;
    } else if (type == "Sequence") {
      for (const json& part : Child(d, "decoders")) SLUICE_TRY(DecoderPart(part));
    } else {
      return DecoderPart(d);
    }
    return {};
  }

  Status DecoderPart(const json& d) {
    const std::string type = Text(d, "type");
    if (type == "ByteLevel") {
      byte_level_decoder_ = true;
    } else if (type == "Replace") {
      const bool marks = Text(Child(d, "pattern"), "String") == kMark && Text(d, "content") == " ";
      if (!marks) return Unsupported("decoder", "Replace of other than the space mark");
    } else if (type == "Strip") {
      const json &start = Child(d, "start"), &stop = Child(d, "stop");
      const bool one = Text(d, "content") == " " && start.is_number_unsigned() &&
                       start.get<uint64_t>() <= 1 && stop.is_number_unsigned() &&
                       stop.get<uint64_t>() == 0;
      if (!one) return Unsupported("decoder", "Strip of other than one leading space");
      parts_.strip_first_space = start.get<uint64_t>() == 1;
    } else if (type == "Metaspace") {
      parts_.strip_first_space = Scheme(d) != BpeTokenizer::Parts::Metaspace::kNever;
    } else if (type != "ByteFallback" && type != "Fuse") {
      return Unsupported("decoder", type.empty() ? "without a type" : type);
    }
    return {};
  }

  static BpeTokenizer::Parts::Metaspace Scheme(const json& m) {
    const std::string scheme = Text(m, "prepend_scheme");
    if (scheme == "first") return BpeTokenizer::Parts::Metaspace::kFirst;
    if (scheme == "never" || (scheme.empty() && !Flag(m, "add_prefix_space", true))) {
      return BpeTokenizer::Parts::Metaspace::kNever;
    }
    return BpeTokenizer::Parts::Metaspace::kAlways;
  }

  Status Normalizer(const json& n, int depth) {
    if (n.is_null()) return {};
    const std::string type = Text(n, "type");
    if (type == "NFC") {
      parts_.normalizer.AddForm(text::NormalForm::kNfc);
    } else if (type == "NFD") {
      parts_.normalizer.AddForm(text::NormalForm::kNfd);
    } else if (type == "NFKC") {
      parts_.normalizer.AddForm(text::NormalForm::kNfkc);
    } else if (type == "NFKD") {
      parts_.normalizer.AddForm(text::NormalForm::kNfkd);
    } else if (type == "Prepend") {
      parts_.normalizer.AddPrepend(Text(n, "prepend"));
    } else if (type == "Replace" && !Text(Child(n, "pattern"), "String").empty()) {
      parts_.normalizer.AddReplace(Text(Child(n, "pattern"), "String"), Text(n, "content"));
    } else if (type == "Sequence" && depth < 8) {
      for (const json& part : Child(n, "normalizers")) SLUICE_TRY(Normalizer(part, depth + 1));
    } else {
      return Unsupported("normalizer", type.empty() ? "without a type" : type);
    }
    return {};
  }

  Status PreTokenizer(const json& p, int depth) {
    if (p.is_null()) return {};
    const std::string type = Text(p, "type");
    if (type == "Sequence" && depth < 8) {
      for (const json& part : Child(p, "pretokenizers")) SLUICE_TRY(PreTokenizer(part, depth + 1));
      return {};
    }
    Status status = PreTokenizerPart(p, type);
    if (status.ok()) return status;
    return Status(status.code(), status.what(), origin_ + ": pre_tokenizer: " + status.where(),
                  status.hint());
  }

  Status PreTokenizerPart(const json& p, const std::string& type) {
    if (type == "Split") return Split(p);
    if (type == "ByteLevel") return ByteLevel(p);
    if (type == "Metaspace") return Metaspace(p);
    if (type == "Digits") {
      return parts_.pre.AddSplit(Flag(p, "individual_digits") ? R"(\p{N})" : R"(\p{N}+)");
    }
    if (type == "Punctuation") {
      SplitBehavior behavior = SplitBehavior::kIsolated;
      SLUICE_TRY(Behavior(p, &behavior));
      return parts_.pre.AddSplit(R"([\p{P}!-/:-@\[-`{-~])", behavior);
    }
    if (type == "Whitespace") return parts_.pre.AddSplit(kWords, SplitBehavior::kRemoved, true);
    if (type == "WhitespaceSplit") return parts_.pre.AddSplit(R"(\s)", SplitBehavior::kRemoved);
    return Unsupported("pre-tokenizer", type.empty() ? "without a type" : type);
  }

  Status Behavior(const json& p, SplitBehavior* out) const {
    const std::string name = Text(p, "behavior");
    if (name == "Isolated" || name.empty()) {
      *out = SplitBehavior::kIsolated;
    } else if (name == "Removed") {
      *out = SplitBehavior::kRemoved;
    } else if (name == "MergedWithPrevious") {
      *out = SplitBehavior::kMergedWithPrevious;
    } else if (name == "MergedWithNext") {
      *out = SplitBehavior::kMergedWithNext;
    } else if (name == "Contiguous") {
      *out = SplitBehavior::kContiguous;
    } else {
      return Unsupported("split behavior", name);
    }
    return {};
  }

  Status Split(const json& p) {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    SLUICE_TRY(Behavior(p, &behavior));
    const bool invert = Flag(p, "invert");
    const std::string regex = Text(Child(p, "pattern"), "Regex");
    if (!regex.empty()) return parts_.pre.AddSplit(regex, behavior, invert);
    const std::string literal = Text(Child(p, "pattern"), "String");
    if (literal.empty()) return Unsupported("pre-tokenizer", "Split without a pattern");
    return parts_.pre.AddLiteral(literal, behavior, invert);
  }

  Status ByteLevel(const json& p) {
    byte_level_ = true;
    if (Flag(p, "add_prefix_space", true)) {
      if (!parts_.pre.empty())
        return Unsupported("pre-tokenizer", "ByteLevel with add_prefix_space after another");
      parts_.prefix_space = true;
    }
    if (Flag(p, "use_regex", true)) SLUICE_TRY(parts_.pre.AddSplit(text::kGpt2Pattern));
    parts_.pre.AddByteMapping();
    return {};
  }

  Status Metaspace(const json& p) {
    if (!parts_.pre.empty()) return Unsupported("pre-tokenizer", "Metaspace after another");
    if (Text(p, "replacement") != kMark)
      return Unsupported("pre-tokenizer", "Metaspace with another mark");
    parts_.metaspace = Scheme(p);
    if (!Flag(p, "split", true)) return {};
    return parts_.pre.AddLiteral(" ", SplitBehavior::kMergedWithNext);  // marks are spaces inside
  }

  // Added tokens may lie outside the model's vocabulary, and give their kind to those inside.
  Status Added() {
    for (text::AddedToken& token : file_.added) {
      const auto id = static_cast<uint64_t>(token.id);
      if (id >= file_.vocab.size() || file_.vocab.RawText(token.id) != token.content) {
        if (id < file_.vocab.size() && !file_.vocab.RawText(token.id).empty()) {
          return Status(Code::kBadModel,
                        fmt::format("added token '{}' has the id of another token: {}",
                                    text::ToValidUtf8(token.content.substr(0, 64)), id),
                        origin_ + ": added_tokens");
        }
        SLUICE_TRY(file_.vocab.Put(id, token.content));
      }
      if (token.normalized) {
        // Such a token stands for its normalised text: with a prefix step its match includes the
        // prefix.
        std::string buffer;
        const std::string_view normal = parts_.normalizer.Apply(token.content, &buffer);
        if (normal != token.content) SLUICE_TRY(file_.vocab.Put(id, normal));
      }
      file_.vocab.SetKind(token.id, token.control ? TokenKind::kControl : TokenKind::kUserDefined);
      parts_.added.Add(token);
    }
    file_.added = {};
    if (unknown_.empty()) return {};
    file_.vocab.IndexRaw();
    parts_.unknown = file_.vocab.FindRaw(unknown_);
    if (parts_.unknown >= 0 && file_.vocab.kind(parts_.unknown) == TokenKind::kNormal) {
      file_.vocab.SetKind(parts_.unknown, TokenKind::kUnknown);
    }
    return {};
  }

  Status PostProcessor(const json& p, Tokenizer* tokenizer, int depth) {
    const std::string type = Text(p, "type");
    if (p.is_null() || type == "ByteLevel") return {};
    if (type == "Sequence" && depth < 8) {
      for (const json& part : Child(p, "processors"))
        SLUICE_TRY(PostProcessor(part, tokenizer, depth + 1));
      return {};
    }
    if (type != "TemplateProcessing")
      return Unsupported("post-processor", type.empty() ? "without a type" : type);
    SpecialTokens& special = tokenizer->mutable_special();
    bool before = true;
    for (const json& item : Child(p, "single")) {
      if (!Child(item, "Sequence").is_null()) {
        before = false;
        continue;
      }
      const std::string name = Text(Child(item, "SpecialToken"), "id");
      const json& ids = Child(Child(Child(p, "special_tokens"), name.c_str()), "ids");
      for (const json& id : ids) {
        if (!id.is_number_unsigned()) continue;
        const TokenId checked = CheckedTokenId(id.get<uint64_t>(), tokenizer->vocab_size(),
                                               "post_processor.special_tokens", origin_);
        if (checked < 0) continue;
        if (before) special.prefix.push_back(checked);
        if (!before) special.add_eos = true;
      }
    }
    special.add_bos = !special.prefix.empty();
    if (special.add_bos) special.bos = special.prefix[0];
    return {};
  }

  static constexpr std::string_view kMark = "\xE2\x96\x81";
  text::TokenizerJson file_;
  std::string origin_;
  BpeTokenizer::Parts parts_;
  std::string unknown_;
  bool byte_level_ = false, byte_level_decoder_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> ParseTokenizerJson(const PullBytes& pull,
                                                      const std::string& origin) {
  text::TokenizerJsonSax sax(origin);
  PullStream stream(pull);
  const bool done = json::sax_parse(PullIterator(&stream), PullIterator(), &sax);
  if (stream.failed()) return Status(Code::kIo, "reading failed", origin);
  SLUICE_TRY(sax.Finish());
  if (!done) return Status(Code::kBadModel, "broken JSON", origin);
  return Builder(std::move(sax.result()), origin).Run();
}

Result<std::unique_ptr<Tokenizer>> ParseTokenizerJson(std::string_view text,
                                                      const std::string& origin) {
  return ParseTokenizerJson(
      [text](char* buffer, size_t capacity) mutable {
        const size_t n = std::min(capacity, text.size());
        std::memcpy(buffer, text.data(), n);
        text.remove_prefix(n);
        return static_cast<int64_t>(n);
      },
      origin);
}

}  // namespace sluice
