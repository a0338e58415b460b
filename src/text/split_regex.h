// A pre-tokenizer's regular expression as a table: no backtracking, no recursion on the text.
//
// Contract: immutable after Compile, safe to share. The pattern becomes a deterministic automaton
// over character classes that keeps the leftmost-first (Perl) choice: a state is the ordered list
// of threads still alive, and a match cuts the threads behind it. A one-character lookahead is
// decided when the next character is seen. Matching one token is linear in what it scans; a failed
// long scan leaves a trace so that the next start does not repeat it (50 k spaces before a letter
// stay linear). Broken UTF-8 bytes are characters of the class of U+FFFD. Memory: some 40 KB of
// class table plus states x classes x 2 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"

namespace sluice::text {

constexpr uint32_t kSplitStatesMax = 8192;

class SplitRegex {
 public:
  static Result<SplitRegex> Compile(std::string_view pattern);

  // Cuts the text into matches and the gaps between them, in order, nothing empty. mapped: every
  // byte stands for its character in the GPT-2 byte alphabet (steps that run after byte-level
  // mapping).
  void Split(std::string_view text, bool mapped,
             FunctionRef<void(size_t begin, size_t end, bool match)> out) const;

  uint64_t memory_bytes() const;
  uint32_t states() const { return static_cast<uint32_t>(table_.size() / stride_); }

 private:
  struct Trace;
  friend class SplitCompiler;
  SplitRegex() = default;
  uint32_t ClassOf(uint32_t code_point) const {
    return class_blocks_[static_cast<size_t>(block_of_[code_point >> 7]) << 7 | (code_point & 127)];
  }
  // Bytes matched at text[at..]; 0 when nothing (or only the empty string) matches.
  template <bool kMapped>
  size_t MatchAt(std::string_view text, size_t at, Trace* trace) const;
  template <bool kMapped>
  void SplitAs(std::string_view text, FunctionRef<void(size_t, size_t, bool)> out) const;

  static constexpr uint16_t kMatchBit = 0x8000;  // a match ended before the character just read
  static constexpr uint16_t kDead = 0;           // state 0
  static constexpr uint16_t kStart = 1;

  uint32_t stride_ = 1;                  // classes + 1; the last column is the end of the text
  std::vector<uint16_t> table_;          // [state * stride + class] -> next state | kMatchBit
  std::vector<uint16_t> block_of_;       // code point >> 7
  std::vector<uint8_t> class_blocks_;    // 128 classes each
  std::array<uint8_t, 256> byte_class_;  // of the GPT-2 byte alphabet
};

// The printable stand-ins byte-level BPE writes for the 256 bytes (GPT-2): '!'..'~', U+00A1..U+00AC
// and U+00AE..U+00FF stand for themselves, the other 68 bytes are U+0100 upward in order.
uint32_t ByteToMapped(uint8_t byte);
int MappedToByte(uint32_t code_point);  // -1: not of the alphabet

}  // namespace sluice::text
