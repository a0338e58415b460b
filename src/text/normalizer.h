// What happens to a stretch of text before it is cut into pieces: Unicode normal forms, literal
// replacements, a prefix.
//
// Contract: built once, then immutable and safe to share. Apply is O(n log n) for any input (runs
// of combining marks are sorted, not bubbled) and keeps bytes that are no UTF-8 as they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

class Normalizer {
 public:
  void AddForm(NormalForm form) { steps_.push_back({Kind::kForm, form, {}, {}}); }
  void AddReplace(std::string from, std::string to) {
    steps_.push_back({Kind::kReplace, NormalForm::kNfc, std::move(from), std::move(to)});
  }
  // Only in front of text that is not empty.
  void AddPrepend(std::string text) {
    steps_.push_back({Kind::kPrepend, NormalForm::kNfc, {}, std::move(text)});
  }

  bool empty() const { return steps_.empty(); }
  // The result is `text` itself or lives in *buffer.
  std::string_view Apply(std::string_view text, std::string* buffer) const;

 private:
  enum class Kind : uint8_t { kForm, kReplace, kPrepend };
  struct Step {
    Kind kind;
    NormalForm form;
    std::string from, to;
  };
  std::vector<Step> steps_;
};

std::string Normalize(std::string_view text, NormalForm form);
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

}  // namespace sluice::text
