// Which model an engine runs, told apart by content: a moved or renamed file is the same model,
// another quantisation or fine-tune is not.
//
// Contract: a ModelDigest is taken while the source still has its headers and costs no reads.
// ModelHash adds samples of the weights (64 reads of 256 bytes). Options that change the numbers
// (KV format, positions by option) are not part of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/model_source.h"
#include "text/tokenizer.h"

namespace sluice {

struct ModelDigest {
  struct Sample {
    uint32_t file = 0;
    uint64_t offset = 0, bytes = 0;
  };
  std::string name;          // of the file or folder
  std::string label;         // general.name, or the config's model_type; "" without
  uint64_t header_hash = 0;  // metadata or config, and what every tensor is
  std::vector<std::string> files;
  std::vector<Sample> samples;
};

ModelDigest DigestOf(const ModelSource& source);
// 32 hex digits; kIo when the weights cannot be read any more.
Result<std::string> ModelHash(const ModelDigest& digest);
// Of every token's text, in order; null is a vocabulary of none.
std::string VocabularyHash(const Tokenizer* tokenizer);

}  // namespace sluice
