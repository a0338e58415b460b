// `bench --kernels`: every kernel has a rate, and the ceilings are measured, without any model.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/process.h"

namespace sluice::test {
namespace {

TEST(KernelBench, MeasuresEveryKernelWithoutAModel) {
  const ProcessResult run =
      Sluice({"bench", "--kernels", "--seconds", "1", "--threads", "1", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  for (const char* peak : {"memory_gb_s", "memory_one_gb_s", "int8_gop_s", "f32_gop_s"}) {
    EXPECT_GT(json[peak].get<double>(), 0) << peak;
    EXPECT_LT(json[peak].get<double>(), 1e5) << peak;  // a loop that the compiler emptied
  }
  EXPECT_EQ(json["threads"], 1);
  std::map<std::string, std::set<std::string>> variants;
  for (const auto& kernel : json["kernels"]) {
    const std::string name = kernel["kernel"], variant = kernel["variant"], unit = kernel["unit"];
    EXPECT_TRUE(variants[name].insert(variant).second) << name << " " << variant << " twice";
    EXPECT_GT(kernel["value"].get<double>(), 0) << name << " " << variant;
    if (unit != "us") EXPECT_GT(kernel["fraction"].get<double>(), 0) << name << " " << variant;
    // No product is faster than the loop that only multiplies (a busy machine measures both low).
    if (unit == "GOP/s") EXPECT_LT(kernel["fraction"].get<double>(), 1.5) << name << " " << variant;
  }
  EXPECT_EQ(variants["matmul, 1 token"], variants["matmul, 128 tokens"]);
  for (const char* type : {"Q4_K", "Q6_K", "Q4_0", "Q8_0", "MXFP4", "F16", "BF16", "F32"})
    EXPECT_TRUE(variants["matmul, 1 token"].contains(type)) << type;
  for (const char* name :
       {"attention, 4 heads per KV head", "delta_step, read and written", "conv_step", "rms_norm",
        "quantise", "rope", "silu_mul", "softmax", "sampler"})
    EXPECT_TRUE(variants.contains(name)) << name;
}

}  // namespace
}  // namespace sluice::test
