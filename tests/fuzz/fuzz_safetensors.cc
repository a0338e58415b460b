// The first bytes of a safetensors file, as it is and with the data its header speaks of taken to
// exist.
#include <cstddef>
#include <cstdint>

#include "formats/catalog_build.h"
#include "formats/hf_folder.h"

namespace {

using namespace sluice;

void Parse(ByteSpan bytes, uint64_t file_bytes) {
  Result<std::vector<TensorInfo>> tensors = ParseSafetensors(bytes, file_bytes, "fuzz");
  if (!tensors.ok()) return;
  for (const TensorInfo& t : *tensors) {
    if (t.extent.offset > file_bytes || t.extent.bytes > file_bytes - t.extent.offset) {
      __builtin_trap();
    }
  }
  Catalog catalog;
  if (!AppendFile("fuzz", file_bytes, std::move(*tensors), &catalog).ok()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan bytes(data, size);
  Parse(bytes, size);
  // The last two bytes stand for the size of the data.
  if (size > 2) Parse(bytes.first(size - 2), size - 2 + data[size - 1] * 256u + data[size - 2]);
  return 0;
}
