// DRY sequence breakers from text, on a real vocabulary.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "sluice/generate.h"
#include "tests/test_data.h"

namespace sluice {
namespace {

TEST(DryBreakers, TokensThatContainTheTextOrBeginIt) {
  const std::string path = test::SharedPath("cases/dev/gguf/ok-llama-f32.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "SKIP: no " << path;
  auto text = TextModel::Open(path);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  const TokenId hello = (*text)->Encode("hello", false, false)[0];
  const TokenId line = (*text)->Encode("\n", false, false)[0];

  SamplingOptions options;
  AddDryBreakers(**text, {"\n", "ell"}, &options);
  const auto& single = options.dry_breakers;
  EXPECT_TRUE(std::count(single.begin(), single.end(), line));
  EXPECT_TRUE(std::count(single.begin(), single.end(), hello));
  EXPECT_FALSE(std::count(single.begin(), single.end(), (*text)->Encode("x", false, false)[0]));
  // "e" followed by the tokens of "ll".
  std::vector<TokenId> sequence = (*text)->Encode("ll", false, false);
  sequence.insert(sequence.begin(), (*text)->Encode("e", false, false)[0]);
  const auto& several = options.dry_breaker_sequences;
  EXPECT_TRUE(std::find(several.begin(), several.end(), sequence) != several.end());
  EXPECT_TRUE(ValidateSampling(options, (*text)->vocab_size()).ok());
}

}  // namespace
}  // namespace sluice
