// The tiny reference models: both forms of each bind, and mean the same model.
#include <gtest/gtest.h>

#include <cmath>

#include "formats/gguf.h"
#include "formats/hf_folder.h"
#include "model/model_map.h"
#include "tests/formats/shared_files.h"

namespace sluice {
namespace {

void Near(float a, float b, const char* what) {
  EXPECT_NEAR(a, b, 1e-6 * std::max(1.0f, std::fabs(b))) << what;
}

void ExpectSameRope(const RopeConfig& a, const RopeConfig& b) {
  EXPECT_EQ(a.dims, b.dims);
  Near(a.theta, b.theta, "theta");
  Near(a.attn_factor, b.attn_factor, "attn_factor");
  EXPECT_EQ(a.truncate, b.truncate);
  // llama3 scaling arrives as a tensor in GGUF.
  if (b.scaling == RopeScaling::kLlama3) return;
  EXPECT_EQ(a.scaling, b.scaling);
  Near(a.factor, b.factor, "factor");
  if (b.scaling == RopeScaling::kYarn) {
    EXPECT_EQ(a.original_context, b.original_context);
  }
}

void ExpectSameMoe(const MoeConfig& a, const MoeConfig& b) {
  EXPECT_EQ(a.experts, b.experts);
  EXPECT_EQ(a.used, b.used);
  EXPECT_EQ(a.expert_ff, b.expert_ff);
  EXPECT_EQ(a.shared_ff, b.shared_ff);
  EXPECT_EQ(a.shared_gated, b.shared_gated);
  EXPECT_EQ(a.scores, b.scores);
  EXPECT_EQ(a.normalise, b.normalise);
  EXPECT_EQ(a.router_bias, b.router_bias);
  EXPECT_EQ(std::max(1u, a.groups), std::max(1u, b.groups));
  EXPECT_EQ(a.dense_layer, b.dense_layer);
  Near(a.weights_scale, b.weights_scale, "weights_scale");
}

void ExpectSameConfig(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.arch, b.arch);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.hidden, b.hidden);
  EXPECT_EQ(a.vocab, b.vocab);
  EXPECT_EQ(a.context, b.context);
  EXPECT_EQ(a.heads, b.heads);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.head_dim_v, b.head_dim_v);
  EXPECT_EQ(a.kinds, b.kinds);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
  EXPECT_EQ(a.tied_head, b.tied_head);
  EXPECT_EQ(a.mtp_layers, b.mtp_layers);
  Near(a.rms_eps, b.rms_eps, "rms_eps");
  Near(a.attention_scale, b.attention_scale, "attention_scale");
  Near(a.embedding_scale, b.embedding_scale, "embedding_scale");
  Near(a.residual_scale, b.residual_scale, "residual_scale");
  Near(a.logit_scale, b.logit_scale, "logit_scale");
  ExpectSameRope(a.rope, b.rope);
  if (a.sliding_window > 0) ExpectSameRope(a.rope_sliding, b.rope_sliding);
  ExpectSameMoe(a.moe, b.moe);
  EXPECT_EQ(a.delta.key_heads, b.delta.key_heads);
  EXPECT_EQ(a.delta.value_heads, b.delta.value_heads);
  EXPECT_EQ(a.delta.key_dim, b.delta.key_dim);
  EXPECT_EQ(a.delta.value_dim, b.delta.value_dim);
  EXPECT_EQ(a.delta.conv_kernel, b.delta.conv_kernel);
  EXPECT_EQ(a.mla.kv_rank, b.mla.kv_rank);
  EXPECT_EQ(a.mla.q_rank, b.mla.q_rank);
  EXPECT_EQ(a.mla.nope_dim, b.mla.nope_dim);
  EXPECT_EQ(a.mla.rope_dim, b.mla.rope_dim);
  EXPECT_EQ(a.mla.value_dim, b.mla.value_dim);
}

uint64_t Elements(const ExpertPart& part) {
  return uint64_t{part.first.rows} * part.first.cols * (part.each.empty() ? 1 : part.each.size());
}

class GoldenFolder : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenFolder, BothFormsBindAlike) {
  const std::string path = testing::SharedPath(std::string("golden/") + GetParam());
  if (testing::ReadAll(path + "/config.json").empty())
    GTEST_SKIP() << "SHARED FILES ABSENT: " << path;
  Result<HfFolder> folder = OpenHfFolder(path, true);
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  const Result<ModelMap> hf = BindHf(std::move(*folder));
  ASSERT_TRUE(hf.ok()) << hf.status().ToString();
  EXPECT_EQ(hf->layers.size(), hf->config.layers);
  for (uint32_t i = 0; i < hf->config.layers; ++i) {
    EXPECT_EQ(hf->layers[i].experts.has_value(), hf->config.IsMoeLayer(i));
  }
  const std::string gguf_path = path + "/model.gguf";
  if (testing::ReadAll(gguf_path).empty()) return;  // this model has no GGUF form
  Result<GgufFileSet> set = OpenGguf(gguf_path);
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  const Result<ModelMap> gguf = BindGguf(std::move(*set), gguf_path);
  ASSERT_TRUE(gguf.ok()) << gguf.status().ToString();
  ExpectSameConfig(gguf->config, hf->config);
  for (uint32_t i = 0; i < hf->config.layers; ++i) {
    if (!hf->layers[i].experts || hf->layers[i].experts->layout != ExpertLayout::kPlain) continue;
    for (int p = 0; p < 3; ++p) {
      const ExpertPart &a = gguf->layers[i].experts->part[p], &b = hf->layers[i].experts->part[p];
      EXPECT_EQ(a.first.rows, b.first.rows);
      EXPECT_EQ(a.first.cols, b.first.cols);
      EXPECT_GT(Elements(a), 0u);
      EXPECT_EQ(a.At(1).bytes, a.first.extent.bytes);
      EXPECT_EQ(b.At(1).bytes, b.first.extent.bytes);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, GoldenFolder,
                         ::testing::Values("llama", "llama_tied", "qwen2", "qwen3", "gemma3",
                                           "gemma3_qpas", "qwen3_moe", "olmoe", "granitemoe",
                                           "gpt_oss", "gpt_oss_l7", "qwen3_next", "qwen3_5_moe",
                                           "deepseek_v2"));

TEST(GoldenQuant, Bind) {
  for (const char* name : {"llama_mix", "qwen3_moe_q4km", "qwen3_5_moe_q4km"}) {
    const std::string path =
        testing::SharedPath(std::string("golden/gguf_quant/") + name + "/model.gguf");
    if (testing::ReadAll(path).empty()) GTEST_SKIP() << "SHARED FILES ABSENT: " << path;
    Result<GgufFileSet> set = OpenGguf(path);
    ASSERT_TRUE(set.ok()) << set.status().ToString();
    const Result<ModelMap> map = BindGguf(std::move(*set), path);
    ASSERT_TRUE(map.ok()) << map.status().ToString();
  }
}

}  // namespace
}  // namespace sluice
