// Any bytes as tokenizer.json: an error or a tokenizer that encodes and decodes without harm.
#include <cstdint>

#include "text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  auto t = sluice::ParseTokenizerJson(json, "fuzz.json");
  if (!t.ok()) return 0;
  const sluice::Tokenizer& tokenizer = **t;
  for (std::string_view text :
       {std::string_view("Hello  wörld 123 \n\n <s> \xFF"), json.substr(0, 256)}) {
    (void)tokenizer.Decode(tokenizer.Encode(text, true, true));
  }
  return 0;
}
