// Cuts text into the pieces that BPE merges inside: a short list of steps, each applied to every
// piece of the one before.
//
// Contract: built once, then immutable and safe to share; Run is linear in the text, allocates
// nothing that grows with it except a trace of failed scans, and nests as deep as there are steps
// (<= kPreStepsMax).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "text/split_regex.h"

namespace sluice::text {

constexpr size_t kPreStepsMax = 16;

// What happens to the matches of a step (names of the tokenizers library).
enum class SplitBehavior : uint8_t {
  kIsolated,
  kRemoved,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous
};

class PreTokenizer {
 public:
  Status AddSplit(std::string_view pattern, SplitBehavior behavior = SplitBehavior::kIsolated,
                  bool invert = false);
  Status AddLiteral(std::string_view literal, SplitBehavior behavior, bool invert = false);
  // From here on the characters are those of the byte alphabet (see SplitRegex::Split).
  void AddByteMapping() { mapped_from_ = steps_.size(); }

  void Run(std::string_view text, FunctionRef<void(std::string_view piece)> out) const;

  bool empty() const { return steps_.empty(); }
  uint64_t memory_bytes() const;

 private:
  struct Step {
    SplitRegex regex;
    SplitBehavior behavior;
    bool invert;
  };
  void RunStep(size_t index, std::string_view text, FunctionRef<void(std::string_view)> out) const;

  std::vector<Step> steps_;
  size_t mapped_from_ = SIZE_MAX;
};

// The pre-tokenizers GGUF files name in tokenizer.ggml.pre, and what else the name decides.
struct PreFamily {
  PreTokenizer pre;
  bool byte_level = true;
  bool ignore_merges = false;
  bool add_bos = false;  // when the file does not say
};
// Empty name: llama.cpp's default. Unknown: kBadModel naming it.
Result<PreFamily> MakePreFamily(std::string_view name);

extern const char kGpt2Pattern[];  // what ByteLevel(use_regex) splits with

}  // namespace sluice::text
