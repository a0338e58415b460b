#include "formats/route_trace.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/test_data.h"

namespace sluice {
namespace {

Result<RouteTrace> Parse(const std::string& text) {
  return ParseRouteTrace({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "trace.csv");
}

constexpr const char* kGood =
    "# route_trace v1\n# model=m.gguf arch=a n_layer=2 n_expert=4 n_expert_used=1\n# layer=1 "
    "expert_bytes=77 "
    "dense_bytes=5\nturn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n0,0,0,0,0,3,0."
    "5,0,77\r\n"
    "0,1,1,1,0,2,0.25,0,77";

TEST(RouteTraceTest, ReadsShapeAndRows) {
  auto trace = Parse(kGood);
  ASSERT_TRUE(trace.ok()) << trace.status().ToString();
  EXPECT_EQ(trace->model, "m.gguf");
  EXPECT_EQ(trace->layers, 2u);
  EXPECT_EQ(trace->experts, 4u);
  EXPECT_EQ(trace->expert_bytes, (std::vector<uint64_t>{0, 77}));
  ASSERT_EQ(trace->rows.size(), 2u);
  EXPECT_EQ(trace->rows[0].expert, 3u);
  EXPECT_TRUE(trace->rows[1].decode);
  EXPECT_EQ(trace->rows[1].weight, 0.25f);
}

TEST(RouteTraceTest, WithoutAHeaderTheRowsGiveTheShape) {
  auto trace = Parse("0,0,0,6,0,3,0.5,0,77\n");
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->layers, 7u);
  EXPECT_EQ(trace->experts, 4u);
}

TEST(RouteTraceTest, FaultsNameTheLine) {
  const std::string header = "# n_layer=2 n_expert=4\n";
  for (const char* bad :
       {"0,0,0,0,0,3,0.5,0", "0,0,0,0,0,3,0.5,0,7,7", "0,0,0,2,0,3,0.5,0,7", "0,0,0,0,0,4,0.5,0,7",
        "x,0,0,0,0,3,0.5,0,7", "0,0,0,0,0,-3,0.5,0,7", "0,2,0,0,0,3,0.5,0,7",
        "0,0,0,99999999999,0,3,0.5,0,7", "0,0,0,5000,0,3,0.5,0,7"}) {
    const Status status = Parse(header + bad + "\n").status();
    EXPECT_EQ(status.code(), Code::kBadModel) << bad;
    EXPECT_EQ(status.where(), "trace.csv, line 2") << bad;
  }
  EXPECT_FALSE(Parse("").ok());
  EXPECT_FALSE(Parse("# n_layer=-1\n").ok());
  EXPECT_FALSE(Parse("# n_layer=4096 n_expert=65536\n0,0,0,0,0,3,0.5,0,7\n").ok());
  EXPECT_FALSE(Parse("# layer=4294967295 expert_bytes=5\n").ok());
}

TEST(RouteTraceTest, EveryCutIsReadOrRefused) {
  const std::string text = kGood;
  for (size_t n = 0; n <= text.size(); ++n) {
    auto trace = Parse(text.substr(0, n));
    if (trace.ok()) {
      EXPECT_LE(trace->rows.size(), 2u);
    }
  }
}

TEST(RouteTraceTest, ReadsTheRecordedTraces) {
  std::ifstream file(test::SharedPath("traces/qwen3-30b-a3b.top6.route.csv"), std::ios::binary);
  if (!file) GTEST_SKIP() << "SKIP: no recorded traces (set SLUICE_SHARED)";
  auto trace = Parse(std::string(std::istreambuf_iterator<char>(file), {}));
  ASSERT_TRUE(trace.ok()) << trace.status().ToString();
  EXPECT_EQ(trace->rows.size(), 44766u);
  EXPECT_EQ(trace->layers, 48u);
  EXPECT_EQ(trace->experts, 128u);
  EXPECT_EQ(trace->expert_bytes.size(), 48u);
  EXPECT_EQ(trace->expert_bytes[47], 3059712u);
}

}  // namespace
}  // namespace sluice
