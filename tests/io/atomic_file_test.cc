#include "io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "tests/temp_folder.h"

namespace sluice {
namespace {

ByteSpan Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class AtomicFileTest : public testing::Test {
 protected:
  const test::TempFolder folder_;
};

TEST_F(AtomicFileTest, ReplacesTheWholeFile) {
  const std::string path = folder_ / "a";
  ASSERT_TRUE(WriteFileAtomically(path, Bytes("a long first version")).ok());
  ASSERT_TRUE(WriteFileAtomically(path, Bytes("second")).ok());
  const Result<std::string> text = ReadSmallFile(path, 100);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "second");
  EXPECT_EQ(folder_.files(), 1u);
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

TEST_F(AtomicFileTest, AFullDeviceLeavesTheOldFileAndNoTemporary) {
  const Status full = WriteFileAtomically("/dev/full/x", Bytes("x"));
  EXPECT_EQ(full.code(), Code::kIo);
  // A folder where the file should be: the rename fails after the whole temporary is written.
  ASSERT_EQ(mkdir((folder_ / "d").c_str(), 0700), 0);
  ASSERT_TRUE(WriteFileAtomically(folder_ / "d/inner", Bytes("keep")).ok());
  EXPECT_EQ(WriteFileAtomically(folder_ / "d", Bytes("x")).code(), Code::kIo);
  EXPECT_EQ(folder_.files(), 1u);
  EXPECT_EQ(*ReadSmallFile(folder_ / "d/inner", 10), "keep");
}

TEST_F(AtomicFileTest, WritersDoNotMix) {
  const std::string path = folder_ / "shared";
  std::vector<std::thread> writers;
  for (char c : {'a', 'b', 'c', 'd'}) {
    writers.emplace_back([&, c] {
      for (int i = 0; i < 20; ++i)
        ASSERT_TRUE(WriteFileAtomically(path, Bytes(std::string(5000, c))).ok());
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = *ReadSmallFile(path, 10000);
  EXPECT_EQ(text, std::string(5000, text[0]));
  EXPECT_EQ(folder_.files(), 1u);
}

TEST_F(AtomicFileTest, FoldersAndLimits) {
  ASSERT_TRUE(MakeFolders(folder_ / "x/y/z").ok());
  ASSERT_TRUE(MakeFolders(folder_ / "x/y/z").ok());
  ASSERT_TRUE(WriteFileAtomically(folder_ / "file", Bytes("0123456789")).ok());
  EXPECT_EQ(MakeFolders(folder_ / "file").code(), Code::kIo);
  EXPECT_EQ(MakeFolders(folder_ / "file/under").code(), Code::kIo);
  EXPECT_EQ(ReadSmallFile(folder_ / "file", 9).status().code(), Code::kIo);
  EXPECT_EQ(ReadSmallFile(folder_ / "none", 9).status().code(), Code::kIo);
}

}  // namespace
}  // namespace sluice
