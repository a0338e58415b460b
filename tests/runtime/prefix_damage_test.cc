// Whatever lies in the folder: an entry that is not exactly the one wanted is never returned, and
// is deleted.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/log.h"
#include "runtime/prefix_entry.h"
#include "runtime/prefix_format.h"
#include "tests/runtime/prefix_support.h"

namespace sluice::test {
namespace {

class PrefixDamageTest : public PrefixFolderTest {
 protected:
  // Thousands of small files: in memory where that is possible.
  PrefixDamageTest()
      : PrefixFolderTest(InMemory() ? "/dev/shm" : std::filesystem::temp_directory_path()) {}
  static bool InMemory() { return access("/dev/shm", W_OK) == 0; }
  // Plants bytes as the entry at path and asks for it: it must not come back, and be deleted.
  template <typename Get>
  ::testing::AssertionResult Refused(PrefixStore* store, const std::string& path,
                                     const std::string& bytes, const Get& get) {
    Write(path, bytes);
    store->Refresh();
    if (get() != Got::kNothing) return ::testing::AssertionFailure() << "it came back";
    if (std::filesystem::exists(path)) return ::testing::AssertionFailure() << "it is still there";
    return ::testing::AssertionSuccess();
  }
};

TEST_F(PrefixDamageTest, EveryFlippedByteAndEveryCutOfAPage) {
  auto store = Open();
  ASSERT_TRUE(PutPageOf(store.get(), 1).ok());
  const std::string path = Files().at(0), good = Read(path);
  ASSERT_EQ(good.size(), prefix_format::kAlignment + kTestPageBytes);
  const auto get = [&] { return GetPageOf(store.get(), 1); };
  // On a disk, not all of the zeros that fill the head (NoFlipInAHeadIsParsed has them).
  const size_t zeros_from = 600, zeros_to = prefix_format::kAlignment - 20;
  for (size_t at = 0; at < good.size(); ++at) {
    if (!InMemory() && at > zeros_from && at < zeros_to && at % 13 != 0) continue;
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    ASSERT_TRUE(Refused(store.get(), path, bad, get)) << "byte " << at;
    ASSERT_TRUE(Refused(store.get(), path, good.substr(0, at), get)) << "cut at " << at;
  }
  ASSERT_TRUE(Refused(store.get(), path, good + '\0', get));
  Write(path, good);
  store->Refresh();
  EXPECT_EQ(get(), Got::kRight);
}

TEST_F(PrefixDamageTest, FlippedBytesAndCutsOfACheckpoint) {
  auto store = Open();
  ASSERT_TRUE(PutCheckpointOf(store.get(), 1, 5).ok());
  const std::string path = Files().at(0), good = Read(path);
  const auto get = [&] { return GetCheckpointOf(store.get(), 1, 5); };
  const Result<PrefixHead> head =
      ParsePrefixHead({reinterpret_cast<const uint8_t*>(good.data()), good.size()}, good.size());
  ASSERT_TRUE(head.ok());
  ASSERT_EQ(head->sections.size(), 2u);  // of three pieces, two follow each other
  const uint64_t state_end = head->state_end(), page = head->page_offset();
  for (size_t at = 0; at < good.size();
       at += at < 400 || (at + 3 > state_end && at < state_end + 3) || at + 3 > page ? 1 : 37) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (0x80 >> at % 8));
    ASSERT_TRUE(Refused(store.get(), path, bad, get)) << "byte " << at;
    if (at % 2 == 0) {
      ASSERT_TRUE(Refused(store.get(), path, good.substr(0, at), get)) << "cut at " << at;
    }
  }
  Write(path, good);
  store->Refresh();
  EXPECT_EQ(get(), Got::kRight);
}

TEST_F(PrefixDamageTest, NoFlipInAHeadIsParsed) {
  ASSERT_TRUE(PutCheckpointOf(Open().get(), 1, 5).ok());
  const std::string good = Read(Files().at(0));
  std::vector<uint8_t> bytes(good.begin(), good.end());
  const uint64_t head_bytes = PeekPrefixHeadBytes(bytes).value();
  for (uint64_t at = 0; at < head_bytes; ++at) {
    bytes[at] ^= 1 << at % 8;
    ASSERT_FALSE(ParsePrefixHead(bytes, bytes.size()).ok()) << at;
    bytes[at] ^= 1 << at % 8;
  }
  for (uint64_t size = 0; size < head_bytes; size += size < 200 ? 1 : 13)
    ASSERT_FALSE(ParsePrefixHead(ByteSpan(bytes).first(size), size).ok()) << size;
  EXPECT_TRUE(ParsePrefixHead(bytes, bytes.size()).ok());
  EXPECT_FALSE(ParsePrefixHead(bytes, bytes.size() + 1).ok());
}

// Heads that are whole but make no sense: the checksum is right, the numbers are not.
TEST_F(PrefixDamageTest, SensibleNumbersOnly) {
  ASSERT_TRUE(PutCheckpointOf(Open().get(), 1, 5).ok());
  const std::string good = Read(Files().at(0));
  const std::vector<uint8_t> bytes(good.begin(), good.end());
  const PrefixHead head = ParsePrefixHead(bytes, bytes.size()).value();
  const std::function<void(PrefixHead*)> changes[] = {
      [](PrefixHead* h) { h->checkpoint = false; },
      [](PrefixHead* h) { h->length += 1; },
      [](PrefixHead* h) { h->length = 4; },
      [](PrefixHead* h) { h->tokens.resize(64), h->length = 128; },
      [](PrefixHead* h) { h->tokens.clear(), h->length = 128; },
      [](PrefixHead* h) { h->state_bytes = 0; },
      [](PrefixHead* h) { h->state_bytes = uint64_t{1} << 63; },
      [](PrefixHead* h) { h->page_bytes = UINT64_MAX - 100; },
      [](PrefixHead* h) { h->sections.clear(); },
      [](PrefixHead* h) { h->sections.pop_back(); },
      [](PrefixHead* h) { h->sections[0].bytes = 0; },
      [](PrefixHead* h) { h->sections[1].bytes = UINT64_MAX; },
      [](PrefixHead* h) {
        h->sections.resize(1025, {1, 0, 0});
      },
  };
  int number = 0;
  for (const auto& change : changes) {
    PrefixHead bad = head;
    change(&bad);
    const std::vector<uint8_t> encoded = EncodePrefixHead(bad);
    EXPECT_FALSE(ParsePrefixHead(encoded, bad.file_bytes()).ok()) << "change " << number++;
  }
  EXPECT_TRUE(ParsePrefixHead(EncodePrefixHead(head), head.file_bytes()).ok());
}

TEST_F(PrefixDamageTest, AnotherIdentityUnderTheSameNameIsForeign) {
  for (int field = 0; field < 5; ++field) {
    PrefixIdentity other = TestIdentity();
    if (field == 0) other.model = "another";
    if (field == 1) other.kv_format = "q8";
    if (field == 2) other.arithmetic = "scalar q8 1";
    if (field == 3) other.state_bytes += 8;
    if (field == 4) other.page_bytes += 8;
    ASSERT_TRUE(PutCheckpointOf(Open(64 << 20, other).get(), 1, 5, other).ok());
    auto store = Open();
    EXPECT_TRUE(store->HasCheckpoint(KeyOf(1, 5)));
    EXPECT_EQ(GetCheckpointOf(store.get(), 1, 5), Got::kNothing);
    EXPECT_FALSE(store->HasCheckpoint(KeyOf(1, 5)));
    EXPECT_TRUE(Files().empty());
  }
}

TEST_F(PrefixDamageTest, OtherTokensUnderTheSameKeyAreCaught) {
  auto store = Open();
  std::vector<TokenId> tokens = TokensOf(1);
  std::vector<uint8_t> page = BytesOf(1, kTestPageBytes);
  ASSERT_TRUE(store->PutPage(KeyOf(2), tokens, page).ok());
  tokens.back() += 1;
  EXPECT_FALSE(store->GetPage(KeyOf(2), tokens, page));
  EXPECT_FALSE(store->HasPage(KeyOf(2)));
  EXPECT_TRUE(Files().empty());
  // A checkpoint of the same key at another length.
  ASSERT_TRUE(PutCheckpointOf(store.get(), 1, 5).ok());
  std::vector<uint8_t> state(kTestStateBytes);
  EXPECT_FALSE(store->GetCheckpoint(KeyOf(1, 5), kKvPageTokens + 5, TokensOf(1, 5), page, state));
  EXPECT_TRUE(Files().empty());
}

TEST_F(PrefixDamageTest, AnEntryUnderAnothersNameIsForeign) {
  auto store = Open();
  ASSERT_TRUE(PutPageOf(store.get(), 1).ok());
  const std::string bytes = Read(Files().at(0));
  ASSERT_TRUE(PutPageOf(store.get(), 2).ok());
  for (const std::string& file : Files()) {
    if (Read(file) != bytes) Write(file, bytes);
  }
  EXPECT_EQ(GetPageOf(store.get(), 2), Got::kNothing);
  EXPECT_EQ(GetPageOf(store.get(), 1), Got::kRight);
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(PrefixDamageTest, ItIsSaidOnceAndNamesTheFile) {
  auto store = Open();
  ASSERT_TRUE(PutPageOf(store.get(), 1).ok());
  const std::string path = Files().at(0);
  std::vector<std::string> said;
  SetLogSink([&](LogLevel, std::string_view text) { said.emplace_back(text); });
  EXPECT_TRUE(Refused(store.get(), path, "x", [&] { return GetPageOf(store.get(), 1); }));
  EXPECT_TRUE(Refused(store.get(), path, "y", [&] { return GetPageOf(store.get(), 1); }));
  SetLogSink({});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find(path), std::string::npos) << said[0];
}

TEST_F(PrefixDamageTest, VerifyFindsWhatIsDamaged) {
  auto store = Open();
  for (uint64_t seed = 0; seed < 4; ++seed) ASSERT_TRUE(PutPageOf(store.get(), seed).ok());
  ASSERT_TRUE(PutCheckpointOf(store.get(), 9, 0).ok());
  std::string hit;
  for (const std::string& file : Files()) {
    if (!file.ends_with(".state")) continue;
    hit = std::filesystem::path(file).filename();
    std::string bytes = Read(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    Write(file, bytes);
  }
  const auto entries = ListPrefixStore(dir_, true);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 5u);
  for (const PrefixEntry& e : *entries) EXPECT_EQ(e.damaged, e.name == hit) << e.name;
  const auto quick = ListPrefixStore(dir_, false);
  ASSERT_TRUE(quick.ok());
  for (const PrefixEntry& e : *quick) EXPECT_FALSE(e.damaged);
}

TEST_F(PrefixDamageTest, WhatIsNotOursIsLeftAlone) {
  ASSERT_TRUE(PutPageOf(Open().get(), 1).ok());
  const std::filesystem::path entry = Files().at(0);
  const std::string shard = entry.parent_path();
  Write(dir_ + "/README", "x");
  Write(shard + "/notes.txt", "x");
  Write(shard + "/notes.tmp", "x");
  Write(dir_ + "/" + std::string(entry.filename()), Read(entry));  // not in its shard
  const std::string key = KeyOf(5).Hex();
  const std::string folder = dir_ + "/" + key.substr(0, 2) + "/" + key + ".page";
  std::filesystem::create_directories(folder);
  auto store = Open(prefix_format::kAlignment + kTestPageBytes);
  EXPECT_FALSE(store->HasPage(KeyOf(5)));
  EXPECT_EQ(PutPageOf(store.get(), 5).code(), Code::kIo);  // its name is taken by a folder
  EXPECT_EQ(GetPageOf(store.get(), 1), Got::kNothing);     // made room
  EXPECT_EQ(RemoveFromPrefixStore(dir_, {}).value(), 0u);
  EXPECT_EQ(Files().size(), 4u);
  EXPECT_TRUE(std::filesystem::is_directory(folder));
}

TEST_F(PrefixDamageTest, ALinkIsNotFollowed) {
  ASSERT_TRUE(PutPageOf(Open().get(), 1).ok());
  const std::string path = Files().at(0), outside = folder_ / "outside";
  std::filesystem::rename(path, outside);
  std::filesystem::create_symlink(outside, path);
  auto store = Open();
  EXPECT_EQ(GetPageOf(store.get(), 1), Got::kNothing);
  EXPECT_TRUE(std::filesystem::exists(outside));
}

TEST_F(PrefixDamageTest, TemporariesOfTheDeadAreSwept) {
  auto store = Open();
  auto alive = store->BeginCheckpoint(KeyOf(1, 0), 128, {});
  ASSERT_TRUE(alive.ok());
  ASSERT_EQ(Files().size(), 1u);
  const std::string mine = Files().at(0);
  const pid_t child = fork();
  if (child == 0) {
    auto own = Open();
    auto writer = own->BeginCheckpoint(KeyOf(2, 0), 128, {});
    _exit(writer.ok() ? 0 : 1);  // without a destructor: as if killed
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(Files().size(), 2u);
  Open();
  ASSERT_EQ(Files().size(), 1u);
  EXPECT_EQ(Files().at(0), mine);
  // Where locks cannot tell, an hour does.
  const timespec old[2] = {{time(nullptr) - 3700, 0}, {time(nullptr) - 3700, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, mine.c_str(), old, 0), 0);
  Open();
  EXPECT_TRUE(Files().empty());
  ASSERT_TRUE((*alive)->WriteState(0, BytesOf(1, kTestStateBytes)).ok());
  EXPECT_EQ((*alive)->Commit({}).code(), Code::kIo);  // a Status, and nothing else
  EXPECT_TRUE(Files().empty());
}

}  // namespace
}  // namespace sluice::test
