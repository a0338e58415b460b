#include "text/pretokenizer.h"

namespace sluice::text {
namespace {

// Folds the stream of matches and gaps into pieces, holding back at most one of them.
class Folder {
 public:
  Folder(SplitBehavior behavior, bool invert, std::string_view text,
         FunctionRef<void(std::string_view)> out)
      : behavior_(behavior), invert_(invert), text_(text), out_(out) {}

  void Add(size_t begin, size_t end, bool match) {
    match = match != invert_;
    switch (behavior_) {
      case SplitBehavior::kIsolated:
        Emit(begin, end);
        return;
      case SplitBehavior::kRemoved:
        if (!match) Emit(begin, end);
        return;
      case SplitBehavior::kContiguous:
        Hold(begin, end, has_ && match == held_match_);
        break;
      case SplitBehavior::kMergedWithPrevious:
        Hold(begin, end, has_ && match && !held_match_);
        break;
      case SplitBehavior::kMergedWithNext:
        Hold(begin, end, has_ && !match && held_match_);
        break;
    }
    held_match_ = match;
  }
  void Finish() {
    if (has_) Emit(begin_, end_);
  }

 private:
  void Emit(size_t begin, size_t end) { out_(text_.substr(begin, end - begin)); }
  void Hold(size_t begin, size_t end, bool join) {
    if (!join) {
      Finish();
      begin_ = begin;
    }
    end_ = end;
    has_ = true;
  }

  SplitBehavior behavior_;
  bool invert_;
  std::string_view text_;
  FunctionRef<void(std::string_view)> out_;
  size_t begin_ = 0, end_ = 0;
  bool has_ = false, held_match_ = false;
};

}  // namespace

Status PreTokenizer::AddSplit(std::string_view pattern, SplitBehavior behavior, bool invert) {
  if (steps_.size() >= kPreStepsMax) return Status(Code::kBadModel, "too many pre-tokenizer steps");
  SLUICE_ASSIGN(SplitRegex regex, SplitRegex::Compile(pattern));
  steps_.push_back({std::move(regex), behavior, invert});
  return {};
}

Status PreTokenizer::AddLiteral(std::string_view literal, SplitBehavior behavior, bool invert) {
  std::string pattern;
  for (char c : literal) {
    const bool ascii_mark = static_cast<uint8_t>(c) < 0x80 && !(c >= 'a' && c <= 'z') &&
                            !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9');
    if (ascii_mark) pattern += '\\';
    pattern += c;
  }
  return AddSplit(pattern, behavior, invert);
}

void PreTokenizer::RunStep(size_t index, std::string_view text,
                           FunctionRef<void(std::string_view)> out) const {
  if (text.empty()) return;
  if (index == steps_.size()) {
    out(text);
    return;
  }
  const Step& step = steps_[index];
  auto next = [&](std::string_view piece) { RunStep(index + 1, piece, out); };
  Folder folder(step.behavior, step.invert, text, next);
  step.regex.Split(text, index >= mapped_from_,
                   [&](size_t begin, size_t end, bool match) { folder.Add(begin, end, match); });
  folder.Finish();
}

void PreTokenizer::Run(std::string_view text, FunctionRef<void(std::string_view piece)> out) const {
  RunStep(0, text, out);
}

uint64_t PreTokenizer::memory_bytes() const {
  uint64_t bytes = 0;
  for (const Step& step : steps_) bytes += step.regex.memory_bytes();
  return bytes;
}

}  // namespace sluice::text
