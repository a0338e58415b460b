// GGUF keys to ModelConfig; numbers worked out by hand from docs/architectures.md.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "formats/gguf.h"
#include "formats/hf_folder.h"
#include "model/config.h"
#include "tests/formats/gguf_builder.h"

namespace sluice {
namespace {

using testing::CommonKeys;
using testing::GgufBuilder;

Result<ModelConfig> FromKeys(const GgufBuilder& b) {
  const std::string file = b.Build();
  Result<GgufParse> parse = ParseGguf(testing::Bytes(file), file.size(), "x.gguf");
  if (!parse.ok()) return parse.status();
  Catalog catalog;
  for (const TensorInfo& t : parse->header.tensors) {
    catalog.by_name[t.name] = static_cast<uint32_t>(catalog.tensors.size());
    catalog.tensors.push_back(t);
  }
  return ConfigFromGguf(parse->header.metadata, catalog, "x.gguf");
}
ModelConfig Must(const GgufBuilder& b) {
  Result<ModelConfig> c = FromKeys(b);
  EXPECT_TRUE(c.ok()) << c.status().ToString();
  return c.ok() ? *c : ModelConfig();
}
GgufBuilder Keys(const std::string& arch) {
  GgufBuilder b = CommonKeys(arch, 4, 64, 4, 2, 96);
  b.Add("token_embd.weight", {64, 320});
  return b;
}

TEST(ConfigGguf, Llama) {
  const ModelConfig c = Must(Keys("llama"));
  EXPECT_EQ(c.arch, Arch::kLlama);
  EXPECT_EQ(c.name, "tiny llama");
  EXPECT_EQ(c.vocab, 320u);
  EXPECT_EQ(c.head_dim, 16u);
  EXPECT_EQ(c.rope.dims, 16u);
  EXPECT_TRUE(c.rope.adjacent);
  EXPECT_FALSE(c.norm_plus_one);
  EXPECT_TRUE(c.tied_head);
  EXPECT_FLOAT_EQ(c.attention_scale, 0.25f);
  EXPECT_FLOAT_EQ(c.rms_eps, 1e-5f);
  EXPECT_FALSE(Must(Keys("llama").Add("output.weight", {64, 320})).tied_head);
  EXPECT_EQ(Must(Keys("llama").Drop("llama.attention.head_count_kv")).kv_heads[0], 4u);
}

TEST(ConfigGguf, PerLayerLists) {
  GgufBuilder b = Keys("llama");
  b.List<uint32_t>("llama.attention.head_count_kv", 4, {1, 2, 4, 2});
  b.List<int32_t>("llama.feed_forward_length", 5, {96, 32, 64, 128});
  const ModelConfig c = Must(b);
  EXPECT_EQ(c.kv_heads, (std::vector<uint32_t>{1, 2, 4, 2}));
  EXPECT_EQ(c.layer_ff, (std::vector<uint32_t>{96, 32, 64, 128}));
  EXPECT_EQ(c.ff, 128u);
}

TEST(ConfigGguf, RopeScaling) {
  GgufBuilder linear = Keys("llama");
  linear.Text("llama.rope.scaling.type", "linear").F32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(Must(linear).rope.scaling, RopeScaling::kLinear);
  EXPECT_FLOAT_EQ(Must(linear).rope.factor, 4);
  EXPECT_FLOAT_EQ(Must(Keys("llama").F32("llama.rope.scale_linear", 2)).rope.factor, 2);
  linear.Text("llama.rope.scaling.type", "none");
  EXPECT_EQ(Must(linear).rope.scaling, RopeScaling::kNone);

  GgufBuilder yarn = Keys("qwen3");
  yarn.Text("qwen3.rope.scaling.type", "yarn").F32("qwen3.rope.scaling.factor", 4);
  yarn.U32("qwen3.rope.scaling.original_context_length", 32);
  yarn.F32("qwen3.rope.scaling.yarn_beta_fast", 16);
  const RopeConfig rope = Must(yarn).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_FALSE(rope.adjacent);
  EXPECT_TRUE(rope.truncate);
  EXPECT_FLOAT_EQ(rope.attn_factor, static_cast<float>(0.1 * std::log(4.0) + 1));
  EXPECT_FLOAT_EQ(rope.beta_fast, 16);
  EXPECT_EQ(rope.original_context, 32u);
  yarn.F32("qwen3.rope.scaling.yarn_attn_factor", 1.25f);
  EXPECT_FLOAT_EQ(Must(yarn).rope.attn_factor, 1.25f);
}

TEST(ConfigGguf, Gemma3) {
  GgufBuilder b = Keys("gemma3");
  b.U32("gemma3.block_count", 7).U32("gemma3.attention.sliding_window", 8);
  b.F32("gemma3.rope.freq_base", 1e6f).F32("gemma3.rope.scaling.factor", 8);
  ModelConfig c = Must(b);
  EXPECT_EQ(c.kinds[4], LayerKind::kSliding);
  EXPECT_EQ(c.kinds[5], LayerKind::kFull);
  EXPECT_EQ(c.kinds[6], LayerKind::kSliding);
  EXPECT_FLOAT_EQ(c.rope.theta, 1e6f);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kLinear);
  EXPECT_FLOAT_EQ(c.rope_sliding.theta, 10000);
  EXPECT_EQ(c.rope_sliding.scaling, RopeScaling::kNone);
  EXPECT_FLOAT_EQ(c.embedding_scale, 8);
  EXPECT_FLOAT_EQ(c.attention_scale, 0.25f);
  b.U32("gemma3.attention.sliding_window_pattern", 2).F32("gemma3.rope.freq_base_swa", 5000);
  c = Must(b);
  EXPECT_EQ(c.kinds[1], LayerKind::kFull);
  EXPECT_EQ(c.kinds[6], LayerKind::kSliding);
  EXPECT_FLOAT_EQ(c.rope_sliding.theta, 5000);
  b.List<uint8_t>("gemma3.attention.sliding_window_pattern", 7, {0, 1, 1, 0, 0, 0, 1});
  EXPECT_EQ(Must(b).kinds[0], LayerKind::kFull);
  EXPECT_EQ(Must(b).kinds[1], LayerKind::kSliding);
  b.Drop("gemma3.attention.sliding_window_pattern").U32("gemma3.block_count", 62);
  b.U32("gemma3.attention.key_length", 32).U32("gemma3.attention.value_length", 32);
  EXPECT_FLOAT_EQ(Must(b).attention_scale, 0.25f);  // 27B: hidden / heads, not the head size
}

TEST(ConfigGguf, Experts) {
  const auto moe = [](const std::string& arch) {
    GgufBuilder b = Keys(arch);
    b.U32(arch + ".expert_count", 8).U32(arch + ".expert_used_count", 3);
    return b;
  };
  const ModelConfig mixtral = Must(moe("llama"));
  EXPECT_EQ(mixtral.moe.expert_ff, 96u);
  EXPECT_TRUE(mixtral.moe.normalise);
  EXPECT_TRUE(mixtral.rope.adjacent);
  const ModelConfig qwen = Must(moe("qwen3moe").U32("qwen3moe.expert_feed_forward_length", 48));
  EXPECT_EQ(qwen.moe.expert_ff, 48u);
  EXPECT_TRUE(qwen.moe.normalise);
  EXPECT_FALSE(Must(moe("olmoe")).moe.normalise);
  const ModelConfig granite = Must(moe("granitemoe")
                                       .F32("granitemoe.attention.scale", 0.11f)
                                       .F32("granitemoe.logit_scale", 0.3f)
                                       .F32("granitemoe.residual_scale", 0.8f)
                                       .F32("granitemoe.embedding_scale", 6));
  EXPECT_EQ(granite.moe.scores, RouterScores::kSoftmaxChosen);
  EXPECT_FLOAT_EQ(granite.attention_scale, 0.11f);
  EXPECT_FLOAT_EQ(granite.logit_scale, 0.3f);
  EXPECT_FLOAT_EQ(granite.residual_scale, 0.8f);
  EXPECT_FLOAT_EQ(granite.embedding_scale, 6);
  GgufBuilder oss = moe("gpt-oss");
  oss.U32("gpt-oss.attention.sliding_window", 8).Text("gpt-oss.rope.scaling.type", "yarn");
  oss.F32("gpt-oss.rope.scaling.factor", 32)
      .U32("gpt-oss.rope.scaling.original_context_length", 64);
  const ModelConfig c = Must(oss);
  EXPECT_EQ(c.kinds[0], LayerKind::kSliding);
  EXPECT_EQ(c.kinds[1], LayerKind::kFull);
  EXPECT_FALSE(c.rope.truncate);
  EXPECT_TRUE(c.moe.router_bias);
}

TEST(ConfigGguf, Hybrids) {
  const auto hybrid = [](const std::string& a) {
    GgufBuilder b = Keys(a);
    b.U32(a + ".expert_count", 8).U32(a + ".expert_used_count", 3);
    b.U32(a + ".expert_feed_forward_length", 32);
    b.U32(a + ".expert_shared_feed_forward_length", 48);
    b.U32(a + ".ssm.conv_kernel", 4).U32(a + ".ssm.state_size", 32).U32(a + ".ssm.group_count", 2);
    b.U32(a + ".ssm.time_step_rank", 4).U32(a + ".ssm.inner_size", 64);
    b.U32(a + ".rope.dimension_count", 4).Drop(a + ".feed_forward_length");
    return b;
  };
  const ModelConfig c = Must(
      hybrid("qwen35moe").U32("qwen35moe.block_count", 5).U32("qwen35moe.nextn_predict_layers", 1));
  EXPECT_EQ(c.layers, 4u);
  EXPECT_EQ(c.mtp_layers, 1u);
  EXPECT_EQ(c.kinds, (std::vector<LayerKind>{LayerKind::kDeltaNet, LayerKind::kDeltaNet,
                                             LayerKind::kDeltaNet, LayerKind::kFull}));
  EXPECT_TRUE(c.delta.tiled_heads);
  EXPECT_EQ(c.delta.value_dim, 16u);
  EXPECT_EQ(c.rope.dims, 4u);
  EXPECT_TRUE(c.moe.shared_gated);
  EXPECT_EQ(c.moe.shared_ff, 48u);
  GgufBuilder next = hybrid("qwen3next");
  next.List<uint8_t>("qwen3next.attention.recurrent_layers", 7, {0, 1, 0, 1});
  next.List<uint32_t>("qwen3next.attention.head_count_kv", 4, {2, 0, 2, 0});
  next.Add("blk.1.ssm_ba.weight", {64, 8}).Add("blk.1.ssm_in.weight", {64, 256});
  const ModelConfig n = Must(next);
  EXPECT_FALSE(n.delta.tiled_heads);
  EXPECT_TRUE(n.delta.grouped_ba);
  EXPECT_TRUE(n.delta.grouped_qkvz);
  EXPECT_EQ(n.kinds[0], LayerKind::kFull);
  EXPECT_EQ(n.kinds[1], LayerKind::kDeltaNet);
  EXPECT_EQ(n.kv_heads[1], 2u);
}

GgufBuilder Deepseek() {
  GgufBuilder b = Keys("deepseek2");
  const std::string a = "deepseek2.";
  b.U32(a + "attention.kv_lora_rank", 32).U32(a + "rope.dimension_count", 16);
  b.U32(a + "attention.key_length", 48).U32(a + "attention.value_length", 32);
  b.U32(a + "attention.key_length_mla", 40).U32(a + "attention.value_length_mla", 20);
  b.U32(a + "expert_count", 8).U32(a + "expert_used_count", 3).U32(a + "expert_shared_count", 2);
  b.U32(a + "expert_feed_forward_length", 32).U32(a + "leading_dense_block_count", 1);
  b.Text(a + "rope.scaling.type", "yarn").F32(a + "rope.scaling.factor", 8);
  b.U32(a + "rope.scaling.original_context_length", 64);
  b.F32(a + "rope.scaling.yarn_log_multiplier", 0.0707f);
  return b;
}
TEST(ConfigGguf, Deepseek) {
  const ModelConfig c = Must(Deepseek());
  EXPECT_EQ(c.mla.nope_dim, 24u);
  EXPECT_EQ(c.mla.rope_dim, 16u);
  EXPECT_EQ(c.mla.value_dim, 20u);
  EXPECT_EQ(c.head_dim, 40u);
  EXPECT_EQ(c.kv_heads[0], 1u);
  EXPECT_FLOAT_EQ(c.rope.attn_factor, 1);
  const double m = 0.0707 * std::log(8.0) + 1;
  EXPECT_NEAR(c.attention_scale, m * m / std::sqrt(40.0), 1e-6);
  EXPECT_EQ(c.moe.shared_ff, 64u);
  EXPECT_FALSE(c.IsMoeLayer(0));
  EXPECT_TRUE(c.IsMoeLayer(1));
  EXPECT_FALSE(c.moe.normalise);
  GgufBuilder v3 = Deepseek();
  v3.U32("deepseek2.expert_gating_func", 2).Flag("deepseek2.expert_weights_norm", true);
  v3.U32("deepseek2.expert_group_count", 4).U32("deepseek2.expert_group_used_count", 2);
  v3.F32("deepseek2.expert_weights_scale", 2.5f).Add("blk.1.exp_probs_b.bias", {8});
  EXPECT_EQ(Must(v3).moe.scores, RouterScores::kSigmoid);
  EXPECT_TRUE(Must(v3).moe.groups_by_top2);
  EXPECT_TRUE(Must(v3).moe.router_bias);
  EXPECT_FLOAT_EQ(Must(v3).moe.weights_scale, 2.5f);
  // Before the absorbed form: plain head sizes, all heads in the cache.
  GgufBuilder old_file = Deepseek();
  old_file.Drop("deepseek2.attention.key_length_mla").Drop("deepseek2.attention.value_length_mla");
  old_file.U32("deepseek2.attention.key_length", 40).U32("deepseek2.attention.value_length", 20);
  EXPECT_EQ(Must(old_file).mla.nope_dim, 24u);
  EXPECT_EQ(Must(old_file).mla.value_dim, 20u);
}

TEST(ConfigGguf, BadKeysAreNamed) {
  const auto refused = [](const std::function<void(GgufBuilder&)>& edit, const char* word,
                          const char* arch = "llama") {
    GgufBuilder b = Keys(arch);
    edit(b);
    const Result<ModelConfig> c = FromKeys(b);
    ASSERT_FALSE(c.ok()) << word;
    EXPECT_EQ(c.status().code(), Code::kBadModel);
    EXPECT_NE(c.status().ToString().find(word), std::string::npos) << c.status().ToString();
  };
  refused([](auto& b) { b.Drop("general.architecture"); }, "general.architecture");
  refused([](auto& b) { b.U32("general.architecture", 1); }, "general.architecture");
  refused([](auto& b) { b.Text("general.architecture", "quuxnet"); },
          "unsupported architecture 'quuxnet'");
  for (const char* key : {"block_count", "embedding_length", "context_length",
                          "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    refused([&](auto& b) { b.Drop(std::string("llama.") + key); }, key);
    refused([&](auto& b) { b.Text(std::string("llama.") + key, "x"); }, key);
  }
  refused([](auto& b) { b.U32("llama.block_count", 0); }, "block_count");
  refused([](auto& b) { b.U32("llama.block_count", UINT32_MAX); }, "block_count");
  refused([](auto& b) { b.Put("llama.block_count", 5, testing::Raw<int32_t>(-1)); }, "block_count");
  refused([](auto& b) { b.U32("llama.embedding_length", 0); }, "");
  refused([](auto& b) { b.U32("llama.context_length", 0); }, "context_length");
  refused([](auto& b) { b.U32("llama.attention.head_count", 0); }, "head_count");
  refused([](auto& b) { b.U32("llama.attention.head_count_kv", 0); }, "head_count_kv");
  refused([](auto& b) { b.U32("llama.attention.head_count_kv", 3); }, "head_count_kv");
  refused(
      [](auto& b) {
        b.template List<uint32_t>("llama.attention.head_count_kv", 4, {1, 2});
      },
      "head_count_kv");
  refused([](auto& b) { b.F32("llama.attention.layer_norm_rms_epsilon", NAN); }, "epsilon");
  refused([](auto& b) { b.F32("llama.rope.freq_base", INFINITY); }, "rope.freq_base");
  refused([](auto& b) { b.F32("llama.rope.freq_base", 0); }, "RoPE base");
  refused([](auto& b) { b.U32("llama.rope.dimension_count", 15); }, "rope.dimension_count");
  refused([](auto& b) { b.U32("llama.rope.dimension_count", 1000); }, "rope.dimension_count");
  refused([](auto& b) { b.Text("llama.rope.scaling.type", "longrope"); }, "longrope");
  refused([](auto& b) { b.U32("llama.nextn_predict_layers", 4); }, "nextn_predict_layers");
  refused([](auto& b) { b.Drop("llama.feed_forward_length"); }, "feed_forward_length");
  refused([](auto& b) { b.U32("llama.expert_count", 4); }, "expert_used_count");
  refused([](auto& b) { b.U32("llama.expert_count", 4).U32("llama.expert_used_count", 5); },
          "expert_used_count");
  refused([](auto& b) { b.U32("llama.expert_count", 1u << 31).U32("llama.expert_used_count", 1); },
          "expert_count");
  refused([](auto&) {}, "expert_count", "qwen3moe");
  refused([](auto& b) { b.F32("granite.logit_scale", INFINITY); }, "logit_scale", "granite");
  refused(
      [](auto& b) {
        b.U32("gemma3.attention.sliding_window", 8)
            .U32("gemma3.attention.sliding_window_pattern", 0);
      },
      "sliding_window_pattern", "gemma3");
}

}  // namespace
}  // namespace sluice
