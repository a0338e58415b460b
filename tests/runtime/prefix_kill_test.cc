// The two halves of tests/tree/prefix_kill_test.py: one writes until it is killed, one looks at
// what is left. Disabled here because neither means anything alone; the folder comes by
// SLUICE_PREFIX_KILL_DIR.
#include <stdio.h>
#include <stdlib.h>

#include <random>

#include "tests/runtime/prefix_support.h"

namespace sluice::test {
namespace {

constexpr uint64_t kSeeds = 24, kBytesMax = 6 << 20;

// Large enough that a kill falls into the middle of a file.
PrefixIdentity Large() {
  PrefixIdentity id = TestIdentity();
  id.page_bytes = 150'000;
  id.state_bytes = 1'000'000;
  return id;
}

std::unique_ptr<PrefixStore> OpenLarge() {
  const char* dir = getenv("SLUICE_PREFIX_KILL_DIR");
  PrefixStore::Options options;
  options.dir = dir != nullptr ? dir : "";
  options.bytes_max = kBytesMax;
  options.identity = Large();
  Result<std::unique_ptr<PrefixStore>> store = PrefixStore::Open(options);
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  return store.ok() ? std::move(*store) : nullptr;
}

TEST(PrefixKill, DISABLED_WritesForEver) {
  auto store = OpenLarge();
  ASSERT_NE(store, nullptr);
  puts("ready");
  fflush(stdout);
  for (std::mt19937 random(std::random_device{}());;) {
    const uint64_t seed = random() % kSeeds;
    const Status status = random() % 3 == 0
                              ? PutCheckpointOf(store.get(), 100 + seed, seed % 3, Large())
                              : PutPageOf(store.get(), seed, Large().page_bytes);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
}

TEST(PrefixKill, DISABLED_LooksAtWhatIsLeft) {
  auto store = OpenLarge();
  ASSERT_NE(store, nullptr);
  int whole = 0, listed = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const bool page = store->HasPage(KeyOf(seed));
    const bool checkpoint = store->HasCheckpoint(KeyOf(100 + seed, seed % 3));
    listed += page + checkpoint;
    // What is there under its name is whole: a kill leaves no torn entry to be caught by a
    // checksum.
    EXPECT_EQ(GetPageOf(store.get(), seed, Large().page_bytes), page ? Got::kRight : Got::kNothing);
    EXPECT_EQ(GetCheckpointOf(store.get(), 100 + seed, seed % 3, Large()),
              checkpoint ? Got::kRight : Got::kNothing);
    whole += page + checkpoint;
  }
  EXPECT_LE(store->bytes(), kBytesMax);
  printf("whole %d of %d\n", whole, listed);
}

}  // namespace
}  // namespace sluice::test
