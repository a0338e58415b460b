// The tokenizer section of a forged file.
//
// Contract: pure. A byte-level BPE of the given size: the 256 bytes, then one token per merge (two
// existing tokens joined; frequent letter pairs first), then special tokens of kind control at
// text_tokens, then unused filler up to vocab. The chat template is ChatML.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pack/gguf_writer.h"

namespace sluice {

struct ForgeVocabulary {
  std::vector<std::string> tokens;  // in the spelling of byte-level BPE
  std::vector<int32_t> types;       // 1 normal, 3 control, 5 unused
  std::vector<std::string> merges;  // "left right"
  uint32_t end_of_text = 0, end_of_turn = 0;
};

// 256 <= text_tokens, and room for the special tokens between it and vocab (CheckShape).
ForgeVocabulary MakeForgeVocabulary(uint32_t text_tokens, uint32_t vocab);

void PutForgeTokenizer(const ForgeVocabulary& vocabulary, GgufHeaderWriter* header);

}  // namespace sluice
