#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "text/bpe_tokenizer.h"
#include "text/tokenizer_source.h"
#include "text/unicode.h"

namespace sluice {
namespace {

using text::BpeTokenizer;

Status BadTokens(const TokenizerSource& s, std::string what, std::string_view key) {
  return Status(Code::kBadModel, std::move(what), fmt::format("{}: {}", s.origin, key));
}

TokenKind KindOf(int64_t type) {
  return type >= 1 && type <= 6 ? static_cast<TokenKind>(type) : TokenKind::kNormal;
}

// End marks that no converter means as ordinary text: a file that types them as such is mistyped.
bool IsUnmistakableMark(std::string_view text) {
  static constexpr std::string_view kMarks[] = {
      "<|im_end|>",        "<|im_start|>",    "<|eot_id|>",        "<|eom_id|>",
      "<|endoftext|>",     "<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>",
      "<|end_header_id|>", "<|end|>",         "<|return|>",        "<|call|>"};
  return std::find(std::begin(kMarks), std::end(kMarks), text) != std::end(kMarks);
}

Status ReadTokens(const TokenizerSource& s, BpeTokenizer::Parts* parts) {
  if (!s.tokens.next || s.tokens.count == 0) {
    return BadTokens(s, "the vocabulary has no tokens", "tokenizer.ggml.tokens");
  }
  if (s.tokens.count > limits::kVocabMax) {
    return BadTokens(s, fmt::format("{} tokens are too many", s.tokens.count),
                     "tokenizer.ggml.tokens");
  }
  if (s.type && s.type_count != s.tokens.count) {
    return BadTokens(s, fmt::format("{} token types for {} tokens", s.type_count, s.tokens.count),
                     "tokenizer.ggml.token_type");
  }
  parts->vocab.Reserve(s.tokens.count);
  std::string_view text;
  for (uint64_t i = 0; i < s.tokens.count; ++i) {
    if (!s.tokens.next(&text))
      return BadTokens(s, fmt::format("token {} is missing", i), "tokenizer.ggml.tokens");
    SLUICE_TRY(parts->vocab.Put(i, text));
    TokenKind kind = s.type ? KindOf(s.type(i)) : TokenKind::kNormal;
    const bool plain = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
    if (plain && IsUnmistakableMark(text)) kind = TokenKind::kControl;
    const auto id = static_cast<TokenId>(i);
    parts->vocab.SetKind(id, kind);
    if (text.empty()) continue;
    if (kind == TokenKind::kControl || kind == TokenKind::kUserDefined ||
        kind == TokenKind::kUnknown) {
      text::AddedToken added;
      added.id = id;
      added.content = std::string(text);
      added.control = kind != TokenKind::kUserDefined;
      parts->added.Add(added);
    }
  }
  return {};
}

Status ReadMerges(const TokenizerSource& s, BpeTokenizer::Parts* parts) {
  if (!s.merges.next) {
    return BadTokens(s, "byte-pair merges are missing", "tokenizer.ggml.merges");
  }
  if (s.merges.count > uint64_t{limits::kVocabMax} * 2) {
    return BadTokens(s, fmt::format("{} merges are too many", s.merges.count),
                     "tokenizer.ggml.merges");
  }
  parts->vocab.IndexRaw();
  parts->merges.Reserve(s.merges.count);
  std::string_view line;
  std::string joined;
  uint64_t unusable = 0;
  for (uint64_t i = 0; i < s.merges.count; ++i) {
    if (!s.merges.next(&line))
      return BadTokens(s, fmt::format("merge {} is missing", i), "tokenizer.ggml.merges");
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos) {
      return BadTokens(s, fmt::format("merge {} has no space", i), "tokenizer.ggml.merges");
    }
    joined.assign(line.substr(0, space)).append(line.substr(space + 1));
    const TokenId left = parts->vocab.FindRaw(line.substr(0, space));
    const TokenId right = parts->vocab.FindRaw(line.substr(space + 1));
    const TokenId merged = parts->vocab.FindRaw(joined);
    if (left < 0 || right < 0 || merged < 0) {
      ++unusable;
    } else {
      parts->merges.Add(left, right, merged);
    }
  }
  if (unusable > 0) {
    Log(LogLevel::kWarning,
        fmt::format("{}: {} of {} merges name texts that are no tokens; ignored "
                    "(tokenizer.ggml.merges)",
                    s.origin, unusable, s.merges.count));
  }
  return {};
}

Status SetUpBytePairs(const TokenizerSource& s, BpeTokenizer::Parts* parts, bool* add_bos) {
  std::string_view pre = s.pre.value_or("");
  if (s.model == "gemma4" && pre.empty()) pre = "gemma4";
  if (pre.empty()) {
    Log(LogLevel::kWarning,
        fmt::format("{}: no pre-tokenizer named; the default rule may give other ids "
                    "than the model was trained with (tokenizer.ggml.pre)",
                    s.origin));
  }
  auto family = text::MakePreFamily(pre);
  if (!family.ok()) {
    const Status& e = family.status();
    return Status(e.code(), e.what(), s.origin + ": " + e.where(), e.hint());
  }
  parts->pre = std::move(family->pre);
  parts->ignore_merges = family->ignore_merges;
  parts->spelling = family->byte_level ? text::Spelling::kByteLevel : text::Spelling::kSpaceMark;
  parts->byte_fallback = !family->byte_level;
  *add_bos = family->add_bos;
  if (s.add_space_prefix.value_or(false)) parts->normalizer.AddPrepend(" ");
  return ReadMerges(s, parts);
}

Status SetUpScores(const TokenizerSource& s, BpeTokenizer::Parts* parts) {
  if (!s.score) return BadTokens(s, "token scores are missing", "tokenizer.ggml.scores");
  if (s.score_count != s.tokens.count) {
    return BadTokens(s, fmt::format("{} scores for {} tokens", s.score_count, s.tokens.count),
                     "tokenizer.ggml.scores");
  }
  parts->spelling = text::Spelling::kSpaceMark;
  parts->rule = text::MergeRule::kScore;
  parts->byte_fallback = true;
  parts->scores.resize(s.tokens.count);
  for (uint64_t i = 0; i < s.tokens.count; ++i) parts->scores[i] = s.score(i);
  if (s.add_space_prefix.value_or(true)) {
    parts->normalizer.AddPrepend(" ");
    parts->strip_first_space = true;
  }
  return {};
}

void SetSpecial(const TokenizerSource& s, bool add_bos, Tokenizer* tokenizer) {
  SpecialTokens& special = tokenizer->mutable_special();
  for (const TokenizerSource::Id& entry : s.ids) {
    const TokenId id = CheckedTokenId(entry.value, tokenizer->vocab_size(), entry.key, s.origin);
    if (id < 0) continue;
    switch (entry.role) {
      case TokenizerSource::Role::kBos:
        special.bos = id;
        break;
      case TokenizerSource::Role::kEos:
        special.eos = id;
        break;
      case TokenizerSource::Role::kUnknown:
        special.unk = id;
        break;
      case TokenizerSource::Role::kPad:
        special.pad = id;
        break;
      case TokenizerSource::Role::kEndOfGeneration:
        special.eog.push_back(id);
        break;
    }
  }
  special.add_bos = s.add_bos.value_or(add_bos);
  special.add_eos = s.add_eos.value_or(false);
  if (special.bos >= 0) special.prefix = {special.bos};
  FindEndTokens(tokenizer);
}

}  // namespace

TokenId CheckedTokenId(uint64_t value, uint32_t vocab_size, std::string_view key,
                       const std::string& origin) {
  if (value < vocab_size) return static_cast<TokenId>(value);
  Log(LogLevel::kWarning, fmt::format("{}: {} is {}, but there are {} tokens; ignored", origin, key,
                                      value, vocab_size));
  return -1;
}

void FindEndTokens(Tokenizer* tokenizer) {
  static constexpr std::string_view kEndMarks[] = {
      "<|eot_id|>",
      "<|im_end|>",
      "<|end|>",
      "<|return|>",
      "<|call|>",
      "<|flush|>",
      "<|calls|>",
      "<end_of_turn>",
      "<|endoftext|>",
      "</s>",
      "<|eom_id|>",
      "<EOT>",
      "_<EOT>",
      "[EOT]",
      "[EOS]",
      "<|end_of_text|>",
      "<end_of_utterance>",
      "<eos>",
      "<turn|>",
      "<|tool_response>",
      "<\xEF\xBD\x9C"
      "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
      "[e~[",
      "<|fim_pad|>",
      "<|repo_name|>",
      "<|file_sep|>"};
  SpecialTokens& special = tokenizer->mutable_special();
  std::vector<TokenId>& eog = special.eog;
  if (special.eos >= 0) eog.push_back(special.eos);
  auto control = [tokenizer](std::string_view text) {
    const TokenId id = tokenizer->FindToken(text);
    return id >= 0 && tokenizer->kind(id) == TokenKind::kControl ? id : -1;
  };
  // In the harmony format <|end|> closes one message of several; <|return|> and <|call|> end the
  // turn.
  const bool harmony = control("<|return|>") >= 0 && control("<|call|>") >= 0;
  for (std::string_view mark : kEndMarks) {
    const TokenId id = control(mark);
    if (id < 0 || (harmony && mark == "<|end|>")) continue;
    eog.push_back(id);
  }
  std::sort(eog.begin(), eog.end());
  eog.erase(std::unique(eog.begin(), eog.end()), eog.end());
}

Result<std::unique_ptr<Tokenizer>> BuildTokenizer(const TokenizerSource& s) {
  BpeTokenizer::Parts parts;
  const bool byte_pairs = s.model == "gpt2" || s.model == "gemma4";
  if (!byte_pairs && s.model != "llama") {
    return Status(
        Code::kBadModel,
        fmt::format("unsupported tokenizer model '{}'", text::ToValidUtf8(s.model.substr(0, 64))),
        s.origin + ": tokenizer.ggml.model",
        "supported: gpt2 (byte-level BPE), llama (SentencePiece BPE)");
  }
  SLUICE_TRY(ReadTokens(s, &parts));
  bool add_bos = false;
  if (byte_pairs) {
    SLUICE_TRY(SetUpBytePairs(s, &parts, &add_bos));
  } else {
    SLUICE_TRY(SetUpScores(s, &parts));
    add_bos = true;
  }
  if (s.model == "gemma4") add_bos = true;
  for (const TokenizerSource::Id& entry : s.ids) {
    if (entry.role == TokenizerSource::Role::kUnknown && entry.value < s.tokens.count) {
      // Byte-level vocabularies name one too, but none of their bytes is ever unknown.
      if (parts.spelling == text::Spelling::kSpaceMark)
        parts.unknown = static_cast<TokenId>(entry.value);
    }
  }
  SLUICE_ASSIGN(std::unique_ptr<BpeTokenizer> made, BpeTokenizer::Make(std::move(parts), s.origin));
  std::unique_ptr<Tokenizer> tokenizer = std::move(made);
  SetSpecial(s, add_bos, tokenizer.get());
  return tokenizer;
}

}  // namespace sluice
