#include "runtime/model_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "formats/printable.h"
#include "io/file.h"

namespace sluice {
namespace {

constexpr size_t kSamples = 64;
constexpr uint64_t kSampleBytes = 256;

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  ~Hash() { XXH3_freeState(state_); }
  void Add(const void* data, size_t bytes) { XXH3_128bits_update(state_, data, bytes); }
  void Add(uint64_t number) { Add(&number, sizeof(number)); }
  // Its length first: "ab", "c" and "a", "bc" are not the same.
  void Add(std::string_view text) {
    Add(text.size());
    Add(text.data(), text.size());
  }
  uint64_t Short() const { return XXH3_128bits_digest(state_).low64; }
  std::string Hex() const {
    const XXH128_hash_t h = XXH3_128bits_digest(state_);
    return fmt::format("{:016x}{:016x}", h.high64, h.low64);
  }

 private:
  XXH3_state_t* state_;
};

// What a model calls itself in the headers that the hash covers; no path, no file name.
std::string LabelOf(const ModelSource& source) {
  if (source.gguf) {
    const auto name = source.gguf->header.metadata.String("general.name");
    return name ? Printable(*name) : std::string();
  }
  const auto type = source.folder->config.find("model_type");
  const bool known = type != source.folder->config.end() && type->is_string();
  return known ? Printable(type->get<std::string>()) : std::string();
}

}  // namespace

ModelDigest DigestOf(const ModelSource& source) {
  ModelDigest digest;
  digest.name = source.name;
  digest.label = LabelOf(source);
  const Catalog& catalog = source.gguf ? source.gguf->catalog : source.folder->catalog;
  Hash hash;
  if (source.gguf) {
    hash.Add(source.gguf->header_bytes.data(), source.gguf->header_bytes.size());
  } else {
    hash.Add(source.folder->config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  for (const TensorInfo& tensor : catalog.tensors) {
    hash.Add(tensor.name);
    hash.Add(static_cast<uint64_t>(tensor.type));
    for (uint64_t dim : tensor.dims) hash.Add(dim);
  }
  digest.header_hash = hash.Short();
  for (const Catalog::FileEntry& file : catalog.files) digest.files.push_back(file.path);
  const size_t tensors = catalog.tensors.size(), count = std::min(kSamples, tensors);
  for (size_t i = 0; i < count; ++i) {
    const Extent& extent = catalog.tensors[i * tensors / count].extent;
    const uint64_t bytes = std::min(kSampleBytes, extent.bytes);
    digest.samples.push_back({extent.file, extent.offset + (extent.bytes - bytes) / 2, bytes});
  }
  return digest;
}

Result<std::string> ModelHash(const ModelDigest& digest) {
  std::vector<std::unique_ptr<File>> files(digest.files.size());
  Hash hash;
  hash.Add(digest.header_hash);
  for (const ModelDigest::Sample& sample : digest.samples) {
    std::unique_ptr<File>& file = files[sample.file];
    if (!file) {
      SLUICE_ASSIGN(file, File::Open(digest.files[sample.file]));
    }
    uint8_t bytes[kSampleBytes];
    SLUICE_TRY(file->ReadExact(sample.offset, {bytes, sample.bytes}));
    hash.Add(bytes, sample.bytes);
  }
  return hash.Hex();
}

std::string VocabularyHash(const Tokenizer* tokenizer) {
  Hash hash;
  std::string scratch;
  const uint32_t known = tokenizer ? tokenizer->vocab_size() : 0;
  for (uint32_t id = 0; id < known; ++id) {
    hash.Add(tokenizer->TokenText(static_cast<TokenId>(id), /*special=*/true, &scratch));
  }
  return hash.Hex();
}

}  // namespace sluice
