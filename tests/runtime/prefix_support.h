// A prefix store to play with: its folder, small sizes, and contents that follow from the key.
//
// Contract: the folder is removed with the object. PageOf, StateOf and TokensOf are pure, so that
// what comes back can be checked by any process.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "memory/kv_pages.h"
#include "runtime/prefix_store.h"
#include "tests/temp_folder.h"

namespace sluice::test {

constexpr uint64_t kTestPageBytes = 100, kTestStateBytes = 5000;

inline PrefixIdentity TestIdentity() {
  return {"0123abcd tiny", "f16", "avx2 q8 1", kTestPageBytes, kTestStateBytes};
}

inline std::vector<TokenId> TokensOf(uint64_t seed, uint32_t count = kKvPageTokens) {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>(seed * 1000 + i);
  return tokens;
}

inline std::vector<uint8_t> BytesOf(uint64_t seed, uint64_t bytes) {
  std::vector<uint8_t> out(bytes);
  uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
  for (uint8_t& b : out) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    b = static_cast<uint8_t>(x >> 32);
  }
  return out;
}

inline PrefixKey KeyOf(uint64_t seed) { return ChainKey(RootKey(TestIdentity()), TokensOf(seed)); }
inline PrefixKey KeyOf(uint64_t seed, uint32_t tail) {
  return ChainKey(KeyOf(seed), TokensOf(seed, tail));
}

inline Status PutPageOf(PrefixStore* store, uint64_t seed, uint64_t page_bytes = kTestPageBytes) {
  return store->PutPage(KeyOf(seed), TokensOf(seed), BytesOf(seed, page_bytes));
}

// What came back: nothing, the right bytes, or (never) others.
enum class Got { kNothing, kRight, kWrong };

inline Got GetPageOf(PrefixStore* store, uint64_t seed, uint64_t page_bytes = kTestPageBytes) {
  std::vector<uint8_t> page(page_bytes);
  if (!store->GetPage(KeyOf(seed), TokensOf(seed), page)) return Got::kNothing;
  return page == BytesOf(seed, page_bytes) ? Got::kRight : Got::kWrong;
}

// A prefix of two pages and a tail, its state written in three pieces, last to first.
inline Status PutCheckpointOf(PrefixStore* store, uint64_t seed, uint32_t tail,
                              const PrefixIdentity& id = TestIdentity()) {
  Result<std::unique_ptr<CheckpointWriter>> writer =
      store->BeginCheckpoint(KeyOf(seed, tail), 2 * kKvPageTokens + tail, TokensOf(seed, tail));
  if (!writer.ok()) return writer.status();
  const std::vector<uint8_t> state = BytesOf(seed + 1, id.state_bytes);
  const ByteSpan bytes(state);
  const uint64_t third = state.size() / 3;
  for (const auto& [offset, size] : {std::pair{2 * third, state.size() - 2 * third},
                                     std::pair{uint64_t{0}, third}, std::pair{third, third}}) {
    const Status status = (*writer)->WriteState(offset, bytes.subspan(offset, size));
    if (!status.ok()) return status;
  }
  return (*writer)->Commit(BytesOf(seed, tail > 0 ? id.page_bytes : 0));
}

inline Got GetCheckpointOf(PrefixStore* store, uint64_t seed, uint32_t tail,
                           const PrefixIdentity& id = TestIdentity()) {
  std::vector<uint8_t> state(id.state_bytes), page(tail > 0 ? id.page_bytes : 0);
  if (!store->GetCheckpoint(KeyOf(seed, tail), 2 * kKvPageTokens + tail, TokensOf(seed, tail), page,
                            state)) {
    return Got::kNothing;
  }
  const bool right =
      state == BytesOf(seed + 1, id.state_bytes) && page == BytesOf(seed, page.size());
  return right ? Got::kRight : Got::kWrong;
}

class PrefixFolderTest : public testing::Test {
 protected:
  explicit PrefixFolderTest(
      const std::filesystem::path& base = std::filesystem::temp_directory_path())
      : folder_(base) {}

  std::unique_ptr<PrefixStore> Open(uint64_t bytes_max = 64 << 20,
                                    const PrefixIdentity& id = TestIdentity(),
                                    bool ephemeral = false) {
    PrefixStore::Options options;
    options.dir = dir_;
    options.bytes_max = bytes_max;
    options.identity = id;
    options.ephemeral = ephemeral;
    Result<std::unique_ptr<PrefixStore>> store = PrefixStore::Open(options);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? std::move(*store) : nullptr;
  }

  // Every file below the folder.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    if (!std::filesystem::exists(dir_)) return files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    return files;
  }
  uint64_t FileBytes() const {
    uint64_t sum = 0;
    for (const std::string& file : Files()) sum += std::filesystem::file_size(file);
    return sum;
  }
  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  const TempFolder folder_;
  const std::string dir_ = folder_ / "state/prefix";
};

}  // namespace sluice::test
