#include "runtime/prefix_store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>

#include "runtime/prefix_format.h"
#include "tests/runtime/prefix_support.h"

namespace sluice::test {
namespace {

class PrefixStoreTest : public PrefixFolderTest {};

TEST(PrefixKeyTest, NamesTheTextAndWhatItWasComputedWith) {
  std::set<std::string> keys;
  const PrefixIdentity id = TestIdentity();
  std::vector<PrefixIdentity> others(6, id);
  others[1].model += "x";
  others[2].kv_format = "q8";
  others[3].arithmetic = "scalar q8 1";
  others[4].page_bytes += 1;
  others[5].state_bytes += 1;
  for (const PrefixIdentity& other : others) keys.insert(RootKey(other).Hex());
  EXPECT_EQ(keys.size(), others.size());
  // Fields do not run into each other.
  EXPECT_NE(RootKey({"ab", "c", "", 0, 0}), RootKey({"a", "bc", "", 0, 0}));
  const PrefixKey root = RootKey(id);
  const std::vector<TokenId> a = TokensOf(1), b = TokensOf(2);
  EXPECT_EQ(ChainKey(root, a), ChainKey(RootKey(TestIdentity()), TokensOf(1)));
  EXPECT_NE(ChainKey(root, a), ChainKey(root, b));
  EXPECT_NE(ChainKey(ChainKey(root, a), b), ChainKey(ChainKey(root, b), a));
  EXPECT_NE(ChainKey(root, {}), root);
  EXPECT_NE(ChainKey(root, std::span(a).first(63)), ChainKey(root, a));
  EXPECT_EQ(root.Hex().size(), 32u);
}

TEST_F(PrefixStoreTest, PagesComeBackAlsoInAnotherProcess) {
  {
    auto store = Open();
    for (uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_FALSE(store->HasPage(KeyOf(seed)));
      ASSERT_TRUE(PutPageOf(store.get(), seed).ok());
      EXPECT_TRUE(store->HasPage(KeyOf(seed)));
      EXPECT_FALSE(store->HasCheckpoint(KeyOf(seed)));
      EXPECT_EQ(GetPageOf(store.get(), seed), Got::kRight);
    }
    EXPECT_EQ(store->bytes(), FileBytes());
  }
  auto store = Open();
  EXPECT_EQ(store->bytes(), FileBytes());
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_TRUE(store->HasPage(KeyOf(seed)));
    EXPECT_EQ(GetPageOf(store.get(), seed), Got::kRight);
  }
  EXPECT_EQ(GetPageOf(store.get(), 20), Got::kNothing);
  struct stat info {};
  ASSERT_EQ(stat(dir_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  for (const std::string& file : Files()) {
    ASSERT_EQ(stat(file.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << file;
  }
}

TEST_F(PrefixStoreTest, AnOldFolderThatOthersMayReadIsNarrowed) {
  std::filesystem::create_directories(dir_);
  ASSERT_EQ(chmod(dir_.c_str(), 0755), 0);
  auto store = Open();
  struct stat info {};
  ASSERT_EQ(stat(dir_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(PrefixStoreTest, CheckpointsComeBackForEveryTail) {
  for (const uint64_t state_bytes : {kTestStateBytes, uint64_t{0}, uint64_t{4096}}) {
    PrefixIdentity id = TestIdentity();
    id.state_bytes = state_bytes;
    for (const uint32_t tail : {0u, 1u, 63u}) {
      auto store = Open(64 << 20, id);
      const uint64_t seed = state_bytes * 64 + tail;
      ASSERT_TRUE(PutCheckpointOf(store.get(), seed, tail, id).ok());
      EXPECT_TRUE(store->HasCheckpoint(KeyOf(seed, tail)));
      EXPECT_FALSE(store->HasPage(KeyOf(seed, tail)));
      EXPECT_EQ(GetCheckpointOf(store.get(), seed, tail, id), Got::kRight);
      EXPECT_EQ(GetCheckpointOf(Open(64 << 20, id).get(), seed, tail, id), Got::kRight);
    }
  }
}

TEST_F(PrefixStoreTest, AStateComesInAnyOrderAndWhole) {
  auto store = Open();
  const std::vector<uint8_t> state = BytesOf(1, kTestStateBytes);
  const auto begin = [&](uint32_t length) {
    auto writer = store->BeginCheckpoint(KeyOf(0, 0), length, {});
    EXPECT_TRUE(writer.ok());
    return std::move(*writer);
  };
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<uint64_t> cuts = {0, kTestStateBytes};
    for (int i = 0; i < round; ++i) cuts.push_back(random() % kTestStateBytes);
    std::sort(cuts.begin(), cuts.end());
    std::vector<size_t> order(cuts.size() - 1);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    auto writer = begin(128);
    for (const size_t i : order) {
      const ByteSpan piece = ByteSpan(state).subspan(cuts[i], cuts[i + 1] - cuts[i]);
      ASSERT_TRUE(writer->WriteState(cuts[i], piece).ok());
    }
    ASSERT_TRUE(writer->Commit({}).ok());
    EXPECT_FALSE(writer->Commit({}).ok());
    EXPECT_EQ(GetCheckpointOf(store.get(), 0, 0), Got::kRight);
  }
  // Twice, beyond the end, not at all: refused, and nothing is left.
  store->Refresh();
  ASSERT_EQ(RemoveFromPrefixStore(dir_, {}).value(), 1u);
  EXPECT_FALSE(begin(128)->WriteState(1, state).ok());
  EXPECT_FALSE(begin(128)->WriteState(UINT64_MAX, ByteSpan(state).first(1)).ok());
  auto twice = begin(128);
  ASSERT_TRUE(twice->WriteState(0, state).ok());
  ASSERT_TRUE(twice->WriteState(10, ByteSpan(state).first(10)).ok());
  EXPECT_FALSE(twice->Commit({}).ok());
  twice.reset();
  auto part = begin(128);
  ASSERT_TRUE(part->WriteState(1, ByteSpan(state).subspan(1)).ok());
  EXPECT_FALSE(part->Commit({}).ok());
  part.reset();
  auto paged = begin(128);
  ASSERT_TRUE(paged->WriteState(0, state).ok());
  EXPECT_FALSE(paged->Commit(BytesOf(1, kTestPageBytes)).ok());  // it has no tail
  paged.reset();
  EXPECT_FALSE(store->BeginCheckpoint(KeyOf(0, 0), 129, {}).ok());
  EXPECT_TRUE(Files().empty());
}

TEST_F(PrefixStoreTest, ManySmallPiecesInOrderAreOneSection) {
  PrefixIdentity id = TestIdentity();
  id.state_bytes = 3 * prefix_format::kSectionsMax;
  auto store = Open(64 << 20, id);
  const std::vector<uint8_t> state = BytesOf(1, id.state_bytes);
  auto writer = store->BeginCheckpoint(KeyOf(0, 0), 128, {});
  ASSERT_TRUE(writer.ok());
  for (uint64_t at = 0; at < state.size(); ++at)
    ASSERT_TRUE((*writer)->WriteState(at, ByteSpan(state).subspan(at, 1)).ok());
  ASSERT_TRUE((*writer)->Commit({}).ok());
  EXPECT_EQ(GetCheckpointOf(store.get(), 0, 0, id), Got::kRight);
  auto back = store->BeginCheckpoint(KeyOf(5, 0), 128, {});
  ASSERT_TRUE(back.ok());
  Status status;
  for (uint64_t at = state.size(); at-- > 0 && status.ok();)
    status = (*back)->WriteState(at, ByteSpan(state).subspan(at, 1));
  EXPECT_FALSE(status.ok());  // a piece for every byte
}

TEST_F(PrefixStoreTest, TheLeastRecentlyUsedGoesFirst) {
  const uint64_t entry_bytes = prefix_format::kAlignment + kTestPageBytes;
  auto store = Open(4 * entry_bytes);
  for (uint64_t seed = 0; seed < 4; ++seed) ASSERT_TRUE(PutPageOf(store.get(), seed).ok());
  EXPECT_EQ(GetPageOf(store.get(), 0), Got::kRight);  // now 1 is the oldest
  ASSERT_TRUE(PutPageOf(store.get(), 2).ok());        // there already: used
  auto other = Open(4 * entry_bytes);
  EXPECT_EQ(GetPageOf(other.get(), 1), Got::kRight);  // another process uses it: 3 is the oldest
  ASSERT_TRUE(PutPageOf(store.get(), 4).ok());
  ASSERT_TRUE(PutPageOf(store.get(), 5).ok());  // and then 0
  EXPECT_LE(FileBytes(), 4 * entry_bytes);
  EXPECT_EQ(store->bytes(), FileBytes());
  for (const uint64_t seed : {0, 3}) EXPECT_EQ(GetPageOf(store.get(), seed), Got::kNothing);
  for (const uint64_t seed : {1, 2, 4, 5}) EXPECT_EQ(GetPageOf(store.get(), seed), Got::kRight);
  other->Refresh();
  EXPECT_FALSE(other->HasPage(KeyOf(0)));
  EXPECT_TRUE(other->HasPage(KeyOf(5)));
}

TEST_F(PrefixStoreTest, WhatIsLargerThanTheStoreIsRefused) {
  const uint64_t entry_bytes = prefix_format::kAlignment + kTestPageBytes;
  auto store = Open(entry_bytes);
  ASSERT_TRUE(PutPageOf(store.get(), 1).ok());
  EXPECT_EQ(PutCheckpointOf(store.get(), 2, 0).code(), Code::kIo);
  EXPECT_EQ(GetPageOf(store.get(), 1), Got::kRight);
  ASSERT_TRUE(PutPageOf(store.get(), 2).ok());
  EXPECT_EQ(GetPageOf(store.get(), 1), Got::kNothing);
  EXPECT_FALSE(PutPageOf(Open(0).get(), 3).ok());
  // A checkpoint may replace itself where two have no room.
  const uint64_t checkpoint_bytes = 8 * prefix_format::kAlignment + kTestStateBytes;
  auto wide = Open(checkpoint_bytes);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(PutCheckpointOf(wide.get(), 2, 0).ok());
  EXPECT_EQ(GetCheckpointOf(wide.get(), 2, 0), Got::kRight);
  EXPECT_LE(FileBytes(), checkpoint_bytes);
}

TEST_F(PrefixStoreTest, WrongSizesAreRefused) {
  auto store = Open();
  EXPECT_FALSE(store->PutPage(KeyOf(1), TokensOf(1, 63), BytesOf(1, kTestPageBytes)).ok());
  EXPECT_FALSE(store->PutPage(KeyOf(1), TokensOf(1), BytesOf(1, kTestPageBytes - 1)).ok());
  EXPECT_TRUE(Files().empty());
}

// --- what stands in the way ---

// A small disk of its own where the test may mount one.
class PrefixDiskTest : public PrefixFolderTest {
 protected:
  bool Mount(const char* options) {
    std::filesystem::create_directories(dir_);
    mounted_ = mount("tmpfs", dir_.c_str(), "tmpfs", 0, options) == 0;
    return mounted_;
  }
  void TearDown() override {
    if (mounted_) umount2(dir_.c_str(), MNT_DETACH);
    PrefixFolderTest::TearDown();
  }
  bool mounted_ = false;
};

TEST_F(PrefixDiskTest, AFullDiskIsAStatusAndNothingElse) {
  if (!Mount("size=64k")) GTEST_SKIP() << "SKIP: a tmpfs cannot be mounted here";
  auto store = Open();
  uint64_t count = 0;
  Status status;
  for (; count < 64 && status.ok(); ++count) status = PutPageOf(store.get(), count);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.ToString().find("No space left"), std::string::npos) << status.ToString();
  EXPECT_EQ(Files().size(), count - 1);
  EXPECT_FALSE(PutCheckpointOf(store.get(), 1000, 5).ok());
  EXPECT_EQ(Files().size(), count - 1);
  for (uint64_t seed = 0; seed + 1 < count; ++seed)
    EXPECT_EQ(GetPageOf(store.get(), seed), Got::kRight);
  EXPECT_EQ(store->bytes(), FileBytes());
  // Room again: as if nothing had been.
  ASSERT_TRUE(RemoveFromPrefixStore(dir_, {}).ok());
  EXPECT_TRUE(PutPageOf(store.get(), 2000).ok());
}

TEST_F(PrefixDiskTest, AReadOnlyFolderIsReadAndNotWritten) {
  if (!Mount("size=256k")) GTEST_SKIP() << "SKIP: a tmpfs cannot be mounted here";
  ASSERT_TRUE(PutPageOf(Open().get(), 1).ok());
  chmod(dir_.c_str(), 0700);
  ASSERT_EQ(mount("tmpfs", dir_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0);
  auto store = Open();
  EXPECT_EQ(GetPageOf(store.get(), 1), Got::kRight);
  EXPECT_EQ(PutPageOf(store.get(), 2).code(), Code::kIo);
  EXPECT_EQ(Open(1)->bytes(), store->bytes());
  auto full = Open(prefix_format::kAlignment + kTestPageBytes);
  EXPECT_EQ(PutPageOf(full.get(), 2).code(), Code::kIo);  // there is no way to make room
}

TEST_F(PrefixStoreTest, AFileSizeLimitIsAStatus) {
  ASSERT_TRUE(PutPageOf(Open().get(), 1).ok());
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2048, 2048};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    auto store = Open();
    if (PutPageOf(store.get(), 2).code() != Code::kIo) _exit(2);
    if (GetPageOf(store.get(), 1) != Got::kRight) _exit(3);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(PrefixStoreTest, AFolderThatWentAwayIsAStatus) {
  auto store = Open();
  ASSERT_TRUE(PutPageOf(store.get(), 1).ok());
  auto writer = store->BeginCheckpoint(KeyOf(0, 0), 128, {});
  ASSERT_TRUE(writer.ok());
  std::filesystem::remove_all(dir_);
  EXPECT_EQ(GetPageOf(store.get(), 1), Got::kNothing);
  EXPECT_EQ(PutPageOf(store.get(), 2).code(), Code::kIo);
  ASSERT_TRUE((*writer)->WriteState(0, BytesOf(1, kTestStateBytes)).ok());
  EXPECT_EQ((*writer)->Commit({}).code(), Code::kIo);
  store->Refresh();
  EXPECT_EQ(store->bytes(), 0u);
  EXPECT_FALSE(store->HasPage(KeyOf(1)));
  std::filesystem::create_directories(dir_);
  EXPECT_TRUE(PutPageOf(store.get(), 3).ok());
}

TEST_F(PrefixStoreTest, AFolderThatCannotBeIsAStatus) {
  PrefixStore::Options options;
  options.dir = "/proc/sluice-no-such";
  options.bytes_max = 1 << 20;
  EXPECT_EQ(PrefixStore::Open(options).status().code(), Code::kIo);
  options.ephemeral = true;
  EXPECT_EQ(PrefixStore::Open(options).status().code(), Code::kIo);
}

// --- without a trace ---

TEST_F(PrefixStoreTest, AnEphemeralStoreLeavesNothing) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = descriptors();
  {
    auto store = Open(64 << 20, TestIdentity(), /*ephemeral=*/true);
    for (uint64_t seed = 0; seed < 50; ++seed) ASSERT_TRUE(PutPageOf(store.get(), seed).ok());
    ASSERT_TRUE(PutCheckpointOf(store.get(), 100, 5).ok());
    { auto abandoned = store->BeginCheckpoint(KeyOf(0, 0), 128, {}); }
    store->Refresh();
    for (uint64_t seed = 0; seed < 50; ++seed) EXPECT_EQ(GetPageOf(store.get(), seed), Got::kRight);
    EXPECT_EQ(GetCheckpointOf(store.get(), 100, 5), Got::kRight);
    EXPECT_TRUE(Files().empty());
    EXPECT_EQ(descriptors(), before + 1);
    EXPECT_EQ(GetPageOf(Open().get(), 1), Got::kNothing);
  }
  EXPECT_EQ(descriptors(), before);
  EXPECT_TRUE(Files().empty());
}

TEST_F(PrefixStoreTest, AnEphemeralStoreStaysWithinItsBytes) {
  const uint64_t bytes_max = 64 * 1024;
  auto store = Open(bytes_max, TestIdentity(), /*ephemeral=*/true);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    ASSERT_TRUE(PutPageOf(store.get(), seed).ok());
    if (seed % 7 == 0) {
      ASSERT_TRUE(PutCheckpointOf(store.get(), seed, seed % 14 / 7).ok());
    }
    EXPECT_EQ(GetPageOf(store.get(), seed), Got::kRight);
    ASSERT_LE(store->bytes(), bytes_max);
  }
  EXPECT_EQ(GetPageOf(store.get(), 0), Got::kNothing);
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(fd, error);
    struct stat info {};
    if (target.rfind(dir_, 0) != 0 || stat(fd.path().c_str(), &info) != 0) continue;
    EXPECT_LE(static_cast<uint64_t>(info.st_blocks) * 512, 2 * bytes_max) << target;
    EXPECT_LE(static_cast<uint64_t>(info.st_size), 3 * bytes_max) << target;
  }
}

// --- several at once ---

int WriteReadEvict(PrefixStore* store, uint32_t seed) {
  std::mt19937 random(seed);
  int got = 0;
  for (int step = 0; step < 150; ++step) {
    const uint64_t which = random() % 40;
    const uint32_t tail = which % 3;
    if (step % 10 == 0) store->Refresh();
    Got result = Got::kNothing;
    switch (random() % 4) {
      case 0:
        if (!PutPageOf(store, which).ok()) return 2;
        break;
      case 1:
        if (which < 6 && !PutCheckpointOf(store, 100 + which, tail).ok()) return 3;
        break;
      case 2:
        result = GetPageOf(store, which);
        break;
      default:
        result = GetCheckpointOf(store, 100 + which % 6, which % 6 % 3);
    }
    if (result == Got::kWrong) return 4;
    got += result == Got::kRight ? 1 : 0;
  }
  return got > 0 ? 0 : 5;
}

TEST_F(PrefixStoreTest, SeveralProcessesShareAFolder) {
  const uint64_t bytes_max = 200 * 1024;
  Open(bytes_max);
  std::vector<pid_t> children;
  for (uint32_t i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(WriteReadEvict(Open(bytes_max).get(), i));
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << (WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  EXPECT_LE(FileBytes(), bytes_max);
  EXPECT_GT(Files().size(), 5u);
  for (const std::string& file : Files()) EXPECT_FALSE(file.ends_with(".tmp")) << file;
  const auto entries = ListPrefixStore(dir_, /*verify=*/true);
  ASSERT_TRUE(entries.ok());
  for (const PrefixEntry& entry : *entries) EXPECT_FALSE(entry.damaged) << entry.name;
}

// --- the keeper's view ---

TEST_F(PrefixStoreTest, TheFolderIsListedAndCleared) {
  EXPECT_TRUE(ListPrefixStore(dir_, true)->empty());
  EXPECT_EQ(RemoveFromPrefixStore(dir_, {}).value(), 0u);
  EXPECT_FALSE(std::filesystem::exists(dir_));
  auto store = Open();
  ASSERT_TRUE(PutPageOf(store.get(), 1).ok());
  ASSERT_TRUE(PutCheckpointOf(store.get(), 2, 7).ok());
  uint64_t reported = 0;
  auto entries = ListPrefixStore(dir_, true, [&](const Progress& p) { reported = p.done; }).value();
  EXPECT_EQ(reported, FileBytes());
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.checkpoint < b.checkpoint; });
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, KeyOf(1).Hex() + ".page");
  EXPECT_EQ(entries[1].name, KeyOf(2, 7).Hex() + ".state");
  EXPECT_EQ(entries[0].length, 64u);
  EXPECT_EQ(entries[1].length, 135u);
  for (const PrefixEntry& entry : entries) {
    EXPECT_EQ(entry.model, "0123abcd tiny");
    EXPECT_EQ(entry.kv_format, "f16");
    EXPECT_FALSE(entry.damaged);
    EXPECT_NEAR(static_cast<double>(entry.used_unix_s), static_cast<double>(time(nullptr)), 60);
  }
  EXPECT_EQ(RemoveFromPrefixStore(dir_, {entries[0].name, "../x"}).status().code(), Code::kUsage);
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_EQ(RemoveFromPrefixStore(dir_, {entries[0].name}).value(), 1u);
  EXPECT_EQ(RemoveFromPrefixStore(dir_, {entries[0].name}).value(), 0u);
  EXPECT_EQ(RemoveFromPrefixStore(dir_, {}).value(), 1u);
  EXPECT_TRUE(Files().empty());
}

}  // namespace
}  // namespace sluice::test
