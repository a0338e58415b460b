// An outline is the forged file with a hole for its data.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "formats/gguf.h"
#include "pack/forge.h"
#include "tests/temp_folder.h"

namespace sluice {
namespace {

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class ForgeOutlineTest : public ::testing::Test {
 protected:
  std::string Path(const char* name) const { return folder_ / name; }

  const test::TempFolder folder_;
};

TEST_F(ForgeOutlineTest, HeaderAndSizeAreTheForgedFilesOnes) {
  ForgeOptions o;
  o.shape = "qwen3-30b-a3b";
  o.overrides.layers = 2;
  o.overrides.experts = 8;
  o.overrides.used = 2;
  o.overrides.hidden = 256;
  o.overrides.expert_ff = 256;
  o.overrides.vocab = 640;
  ASSERT_TRUE(Forge(o, Path("whole")).ok());
  std::ofstream(Path("outline")) << "older content";
  const Status status = ForgeOutline(o, Path("outline"));
  ASSERT_TRUE(status.ok()) << status.ToString();
  const std::string whole = Slurp(Path("whole")), outline = Slurp(Path("outline"));
  ASSERT_EQ(outline.size(), whole.size());
  const size_t data = outline.find_last_not_of('\0') + 1;  // the header ends before this
  ASSERT_GT(data, 1000u);
  EXPECT_LT(data, whole.size() / 2);
  EXPECT_EQ(outline.substr(0, data), whole.substr(0, data));
  EXPECT_NE(whole, outline);
}

TEST_F(ForgeOutlineTest, TheDataTakesNoRoom) {
  ForgeOptions o;
  o.shape = "gpt-oss-120b";
  const Status status = ForgeOutline(o, Path("outline"));
  ASSERT_TRUE(status.ok()) << status.ToString();
  struct stat info {};
  ASSERT_EQ(stat(Path("outline").c_str(), &info), 0);
  EXPECT_GT(info.st_size, 63'000'000'000);
  EXPECT_LT(info.st_blocks * 512, 32 << 20);
  EXPECT_TRUE(OpenGguf(Path("outline")).ok());
}

TEST_F(ForgeOutlineTest, Refusals) {
  ForgeOptions o;
  o.shape = "nothing";
  EXPECT_EQ(ForgeOutline(o, Path("outline")).code(), Code::kUsage);
  EXPECT_FALSE(std::filesystem::exists(Path("outline")));
  o.shape = "olmoe-7b";
  EXPECT_EQ(ForgeOutline(o, Path("absent/outline")).code(), Code::kIo);
}

}  // namespace
}  // namespace sluice
