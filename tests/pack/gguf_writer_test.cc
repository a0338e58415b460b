// The streaming file: whole or absent, whatever the sizes.
#include "pack/gguf_writer.h"

#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

using testing::Slurp;
using testing::TempFolder;

std::vector<uint8_t> Pattern(uint64_t n) {
  std::vector<uint8_t> bytes(n);
  for (uint64_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(i * 31 + (i >> 12));
  return bytes;
}

TEST(StreamFileTest, EverySizeArrives) {
  const TempFolder folder;
  for (uint64_t n : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, 8 * kMiB, 20 * kMiB + 7}) {
    const std::vector<uint8_t> bytes = Pattern(n);
    auto file = StreamFile::Create(folder / "f", n, 0);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    ByteSpan rest = bytes;
    for (uint64_t piece = 1; !rest.empty(); piece = piece * 5 + 3) {
      const uint64_t take = std::min<uint64_t>(piece, rest.size());
      ASSERT_TRUE((*file)->Append(rest.subspan(0, take)).ok());
      rest = rest.subspan(take);
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "f") && n == 0);
    ASSERT_TRUE((*file)->Commit().ok());
    const std::string got = Slurp(folder / "f");
    EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin(), bytes.end(),
                           [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; }))
        << n;
  }
  EXPECT_EQ(folder.files(), 1u);
}

TEST(StreamFileTest, WithoutCommitNothingIsLeft) {
  const TempFolder folder;
  {
    auto file = StreamFile::Create(folder / "f", 100, 0);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append(Pattern(50)).ok());
    EXPECT_EQ(folder.files(), 1u);
  }
  EXPECT_EQ(folder.files(), 0u);
}

TEST(StreamFileTest, TooFewBytesAreNoFile) {
  const TempFolder folder;
  auto file = StreamFile::Create(folder / "f", 100, 0);
  ASSERT_TRUE((*file)->Append(Pattern(99)).ok());
  EXPECT_EQ((*file)->Commit().code(), Code::kFailed);
  file->reset();
  EXPECT_EQ(folder.files(), 0u);
}

TEST(StreamFileTest, ASecondWriterIsRefusedAndAStaleFileTakenOver) {
  const TempFolder folder;
  std::ofstream(folder / "f.tmp") << std::string(100'000, 'x');  // of a run that was killed
  auto first = StreamFile::Create(folder / "f", 3, 0);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(StreamFile::Create(folder / "f", 3, 0).status().code(), Code::kIo);
  ASSERT_TRUE((*first)->Append(Pattern(3)).ok());
  ASSERT_TRUE((*first)->Commit().ok());
  EXPECT_EQ(std::filesystem::file_size(folder / "f"), 3u);
  EXPECT_EQ(folder.files(), 1u);
}

TEST(StreamFileTest, FoldersAreRefused) {
  const TempFolder folder;
  EXPECT_EQ(StreamFile::Create(folder / "", 3, 0).status().code(), Code::kUsage);
  EXPECT_EQ(StreamFile::Create(folder / "no/such/f", 3, 0).status().code(), Code::kIo);
  EXPECT_EQ(folder.files(), 0u);
}

}  // namespace
}  // namespace sluice
