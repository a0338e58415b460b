// A model folder in one input: config.json text, a zero byte, a safetensors header as JSON text
// (its data is taken to exist). Reaches the config and binding code of every architecture.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "formats/catalog_build.h"
#include "formats/hf_folder.h"
#include "model/model_map.h"

namespace {

using namespace sluice;
using nlohmann::json;

// Bytes that the header's offsets need; 0 when they are nonsense anyway.
uint64_t DataBytes(std::string_view header) {
  const Result<json> parsed = ParseJson(header, "fuzz");
  uint64_t end = 0;
  if (!parsed.ok() || !parsed->is_object()) return 0;
  for (const auto& [name, entry] : parsed->items()) {
    if (!entry.is_object() || !entry.contains("data_offsets")) continue;
    const json& offsets = entry["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[1].is_number_unsigned()) continue;
    end = std::max(end, offsets[1].get<uint64_t>());
  }
  return end;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  HfFolder folder;
  folder.path = "fuzz";
  Result<json> config = ParseJson(input.substr(0, cut), "fuzz");
  if (!config.ok()) return 0;
  folder.config = std::move(*config);
  if (cut != std::string_view::npos) {
    const std::string_view header = input.substr(cut + 1);
    const uint64_t length = header.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    file += header;
    const uint64_t data_bytes = DataBytes(header);
    if (data_bytes > (uint64_t{1} << 60)) return 0;
    Result<std::vector<TensorInfo>> tensors =
        ParseSafetensors(ByteSpan(reinterpret_cast<const uint8_t*>(file.data()), file.size()),
                         file.size() + data_bytes, "fuzz");
    if (!tensors.ok()) return 0;
    if (!AppendFile("fuzz", file.size() + data_bytes, std::move(*tensors), &folder.catalog).ok()) {
      __builtin_trap();
    }
  }
  (void)BindHf(std::move(folder));
  return 0;
}
