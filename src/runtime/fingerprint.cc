#include "runtime/fingerprint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace sluice {
namespace {

constexpr uint64_t kHeadBytes = 256 * kKiB, kSampleBytes = 4 * kKiB, kSamples = 64;

}  // namespace

Result<std::string> FingerprintFiles(const std::vector<std::unique_ptr<File>>& files) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash(XXH3_createState(),
                                                                             XXH3_freeState);
  XXH3_128bits_reset(hash.get());
  std::vector<uint8_t> bytes;
  const auto add = [&](const File& file, uint64_t offset, uint64_t length) -> Status {
    if (offset >= file.size()) return {};
    bytes.resize(std::min(length, file.size() - offset));
    SLUICE_TRY(file.ReadExact(offset, bytes));
    XXH3_128bits_update(hash.get(), bytes.data(), bytes.size());
    return {};
  };
  for (const std::unique_ptr<File>& file : files) {
    const uint64_t size = file->size();
    XXH3_128bits_update(hash.get(), &size, sizeof(size));
    SLUICE_TRY(add(*file, 0, kHeadBytes));
    for (uint64_t i = 1; i <= kSamples; ++i)
      SLUICE_TRY(add(*file, size / (kSamples + 1) * i, kSampleBytes));
  }
  const XXH128_hash_t digest = XXH3_128bits_digest(hash.get());
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

}  // namespace sluice
