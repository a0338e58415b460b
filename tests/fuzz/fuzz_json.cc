// JSON text. Whatever is accepted must be valid for an independent reader too, and survive a round
// trip.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/hf_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<nlohmann::json> value = ParseJson(text, "fuzz");
  if (!value.ok()) return 0;
  if (!nlohmann::json::accept(text.begin(), text.end())) __builtin_trap();
  const Result<nlohmann::json> again = ParseJson(value->dump(), "fuzz");
  if (!again.ok() || *again != *value) __builtin_trap();
  return 0;
}
