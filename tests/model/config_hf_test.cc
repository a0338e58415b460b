// config.json in both spellings to ModelConfig; numbers worked out by hand from
// docs/architectures.md.
#include <gtest/gtest.h>

#include <cmath>

#include "formats/hf_folder.h"
#include "model/config.h"

namespace sluice {
namespace {

using nlohmann::json;

Result<ModelConfig> FromJson(const json& config) {
  HfFolder folder;
  folder.path = "/models/tiny";
  folder.config = config;
  return ConfigFromHf(folder);
}
ModelConfig Must(const json& config) {
  Result<ModelConfig> c = FromJson(config);
  EXPECT_TRUE(c.ok()) << c.status().ToString();
  return c.ok() ? *c : ModelConfig();
}
void ExpectRefused(const json& config, const char* word) {
  const Result<ModelConfig> c = FromJson(config);
  ASSERT_FALSE(c.ok()) << word;
  EXPECT_EQ(c.status().code(), Code::kBadModel);
  EXPECT_NE(c.status().ToString().find(word), std::string::npos) << c.status().ToString();
}

json Base(const char* type, const char* model_class) {
  return {{"architectures", {model_class}}, {"model_type", type},
          {"num_hidden_layers", 4},         {"hidden_size", 64},
          {"intermediate_size", 96},        {"vocab_size", 320},
          {"num_attention_heads", 4},       {"num_key_value_heads", 2},
          {"max_position_embeddings", 512}, {"rms_norm_eps", 1e-5},
          {"rope_theta", 50000.0}};
}
json Llama() { return Base("llama", "LlamaForCausalLM"); }
json With(json config, const json& changes) {
  config.update(changes);
  return config;
}

TEST(ConfigHf, Llama) {
  const ModelConfig c = Must(Llama());
  EXPECT_EQ(c.arch, Arch::kLlama);
  EXPECT_EQ(c.arch_name, "LlamaForCausalLM");
  EXPECT_EQ(c.name, "tiny");
  EXPECT_EQ(c.layers, 4u);
  EXPECT_EQ(c.head_dim, 16u);
  EXPECT_EQ(c.kv_heads, (std::vector<uint32_t>{2, 2, 2, 2}));
  EXPECT_FALSE(c.rope.adjacent);
  EXPECT_EQ(c.rope.dims, 16u);
  EXPECT_FLOAT_EQ(c.rope.theta, 50000);
  EXPECT_FLOAT_EQ(c.attention_scale, 0.25f);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(c.kinds, std::vector<LayerKind>(4, LayerKind::kFull));
  EXPECT_TRUE(c.tied_head);
  EXPECT_EQ(Must(With(Llama(), {{"num_key_value_heads", nullptr}})).kv_heads[0], 4u);
}

TEST(ConfigHf, RopeInBothSpellings) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}};
  const ModelConfig old_spelling = Must(With(Llama(), {{"rope_scaling", scaling}}));
  json v5 = Llama();
  v5.erase("rope_theta");
  v5["rope_parameters"] = With(scaling, {{"rope_theta", 50000.0}});
  const ModelConfig new_spelling = Must(v5);
  for (const ModelConfig* c : {&old_spelling, &new_spelling}) {
    EXPECT_EQ(c->rope.scaling, RopeScaling::kLlama3);
    EXPECT_FLOAT_EQ(c->rope.factor, 8);
    EXPECT_FLOAT_EQ(c->rope.high_freq_factor, 4);
    EXPECT_EQ(c->rope.original_context, 64u);
    EXPECT_FLOAT_EQ(c->rope.theta, 50000);
    EXPECT_FLOAT_EQ(c->rope.attn_factor, 1);
  }
  const ModelConfig linear =
      Must(With(Llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}));
  EXPECT_EQ(linear.rope.scaling, RopeScaling::kLinear);
  EXPECT_FLOAT_EQ(linear.rope.factor, 2);
  for (const char* type : {"dynamic", "longrope", "su"}) {
    ExpectRefused(With(Llama(), {{"rope_scaling", {{"type", type}, {"factor", 2}}}}), type);
  }
  ExpectRefused(With(Llama(), {{"rope_scaling", {{"type", "linear"}}}}), "factor");
}

TEST(ConfigHf, YarnAttentionFactor) {
  const auto yarn = [](const json& extra) {
    json s = {{"type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 64}};
    s.update(extra);
    return Must(With(Llama(), {{"rope_scaling", s}})).rope;
  };
  const double ln = std::log(8.0);
  EXPECT_FLOAT_EQ(yarn(json::object()).attn_factor, static_cast<float>(0.1 * ln + 1));
  EXPECT_TRUE(yarn(json::object()).truncate);
  EXPECT_FALSE(yarn({{"truncate", false}}).truncate);
  EXPECT_FLOAT_EQ(yarn({{"attention_factor", 1.5}}).attn_factor, 1.5f);
  EXPECT_FLOAT_EQ(yarn({{"mscale", 2.0}, {"mscale_all_dim", 0.5}}).attn_factor,
                  static_cast<float>((0.2 * ln + 1) / (0.05 * ln + 1)));
  EXPECT_FLOAT_EQ(yarn({{"mscale", 2.0}, {"mscale_all_dim", 0}}).attn_factor,
                  static_cast<float>(0.1 * ln + 1));
  EXPECT_FLOAT_EQ(yarn({{"beta_fast", 16}}).beta_fast, 16);
}

TEST(ConfigHf, MistralAndMixtral) {
  const ModelConfig mistral =
      Must(With(Base("mistral", "MistralForCausalLM"), {{"sliding_window", 32}}));
  EXPECT_EQ(mistral.arch, Arch::kLlama);
  EXPECT_EQ(mistral.kinds, std::vector<LayerKind>(4, LayerKind::kSliding));
  EXPECT_EQ(mistral.sliding_window, 32u);
  const ModelConfig plain =
      Must(With(Base("mistral", "MistralForCausalLM"), {{"sliding_window", nullptr}}));
  EXPECT_EQ(plain.kinds, std::vector<LayerKind>(4, LayerKind::kFull));
  const ModelConfig mixtral = Must(With(Base("mixtral", "MixtralForCausalLM"),
                                        {{"num_local_experts", 8}, {"num_experts_per_tok", 2}}));
  EXPECT_EQ(mixtral.arch, Arch::kLlama);
  EXPECT_EQ(mixtral.moe.experts, 8u);
  EXPECT_EQ(mixtral.moe.expert_ff, 96u);
  EXPECT_TRUE(mixtral.moe.normalise);
}

TEST(ConfigHf, Qwen) {
  const ModelConfig q2 = Must(With(Base("qwen2", "Qwen2ForCausalLM"),
                                   {{"use_sliding_window", false}, {"sliding_window", 32}}));
  EXPECT_EQ(q2.arch, Arch::kQwen2);
  EXPECT_EQ(q2.sliding_window, 0u);
  const ModelConfig windowed =
      Must(With(Base("qwen2", "Qwen2ForCausalLM"),
                {{"use_sliding_window", true}, {"sliding_window", 32}, {"max_window_layers", 3}}));
  EXPECT_EQ(windowed.kinds[2], LayerKind::kFull);
  EXPECT_EQ(windowed.kinds[3], LayerKind::kSliding);
  const ModelConfig q3 = Must(With(Base("qwen3", "Qwen3ForCausalLM"), {{"head_dim", 32}}));
  EXPECT_EQ(q3.arch, Arch::kQwen3);
  EXPECT_EQ(q3.head_dim, 32u);
}

json Qwen3Moe() {
  return With(Base("qwen3_moe", "Qwen3MoeForCausalLM"), {{"num_experts", 8},
                                                         {"num_experts_per_tok", 3},
                                                         {"moe_intermediate_size", 48},
                                                         {"norm_topk_prob", true}});
}
TEST(ConfigHf, Qwen3MoeAndDenseLayers) {
  const ModelConfig c = Must(Qwen3Moe());
  EXPECT_EQ(c.moe.expert_ff, 48u);
  EXPECT_TRUE(c.moe.normalise);
  EXPECT_EQ(c.moe.scores, RouterScores::kSoftmaxAll);
  EXPECT_TRUE(c.IsMoeLayer(0));
  json other = Qwen3Moe();
  other.erase("num_experts");
  other["num_local_experts"] = 8;
  EXPECT_EQ(Must(other).moe.experts, 8u);
  const ModelConfig mixed =
      Must(With(Qwen3Moe(), {{"mlp_only_layers", json::array({3})}, {"decoder_sparse_step", 2}}));
  EXPECT_EQ(mixed.moe.dense_layer, (std::vector<uint8_t>{1, 0, 1, 1}));
  EXPECT_FALSE(mixed.IsMoeLayer(0));
  EXPECT_TRUE(mixed.IsMoeLayer(1));
  EXPECT_FALSE(Must(With(Qwen3Moe(), {{"norm_topk_prob", false}})).moe.normalise);
  ExpectRefused(With(Qwen3Moe(), {{"num_experts_per_tok", 9}}), "expert_used_count");
  ExpectRefused(With(Qwen3Moe(), {{"decoder_sparse_step", 0}}), "decoder_sparse_step");
}

TEST(ConfigHf, OlmoeAndGranite) {
  const ModelConfig olmoe =
      Must(With(Base("olmoe", "OlmoeForCausalLM"),
                {{"num_experts", 8}, {"num_experts_per_tok", 3}, {"clip_qkv", 8.0}}));
  EXPECT_FALSE(olmoe.moe.normalise);
  EXPECT_EQ(olmoe.moe.expert_ff, 96u);
  EXPECT_FLOAT_EQ(olmoe.clamp_qkv, 8);
  const json factors = {{"attention_multiplier", 0.11},  {"embedding_multiplier", 6.0},
                        {"residual_multiplier", 0.8},    {"logits_scaling", 0.3},
                        {"num_local_experts", 8},        {"num_experts_per_tok", 3},
                        {"shared_intermediate_size", 40}};
  const ModelConfig granite =
      Must(With(Base("granitemoeshared", "GraniteMoeSharedForCausalLM"), factors));
  EXPECT_EQ(granite.arch, Arch::kGraniteMoe);
  EXPECT_FLOAT_EQ(granite.attention_scale, 0.11f);
  EXPECT_FLOAT_EQ(granite.embedding_scale, 6);
  EXPECT_FLOAT_EQ(granite.residual_scale, 0.8f);
  EXPECT_FLOAT_EQ(granite.logit_scale, 0.3f);
  EXPECT_EQ(granite.moe.scores, RouterScores::kSoftmaxChosen);
  EXPECT_EQ(granite.moe.shared_ff, 40u);
  EXPECT_FALSE(granite.moe.shared_gated);
  EXPECT_EQ(Must(Base("granite", "GraniteForCausalLM")).arch, Arch::kGranite);
  ExpectRefused(With(Base("granite", "GraniteForCausalLM"), {{"logits_scaling", 0.0}}),
                "logit_scale");
}

TEST(ConfigHf, Gemma3InBothSpellings) {
  const json shared = {{"head_dim", 32},
                       {"query_pre_attn_scalar", 20},
                       {"sliding_window", 8},
                       {"hidden_activation", "gelu_pytorch_tanh"}};
  const json old_spelling = With(With(Base("gemma3_text", "Gemma3ForCausalLM"), shared),
                                 {{"rope_local_base_freq", 5000.0},
                                  {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                                  {"sliding_window_pattern", 3}});
  json v5 = With(Base("gemma3_text", "Gemma3ForCausalLM"), shared);
  v5.erase("rope_theta");
  v5["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 50000.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5000.0}}}};
  v5["layer_types"] = {"sliding_attention", "sliding_attention", "full_attention",
                       "sliding_attention"};
  for (const json& config : {old_spelling, v5}) {
    const ModelConfig c = Must(config);
    EXPECT_EQ(c.kinds, (std::vector<LayerKind>{LayerKind::kSliding, LayerKind::kSliding,
                                               LayerKind::kFull, LayerKind::kSliding}));
    EXPECT_FLOAT_EQ(c.rope.theta, 50000);
    EXPECT_EQ(c.rope.scaling, RopeScaling::kLinear);
    EXPECT_FLOAT_EQ(c.rope_sliding.theta, 5000);
    EXPECT_EQ(c.rope_sliding.scaling, RopeScaling::kNone);
    EXPECT_FLOAT_EQ(c.attention_scale, static_cast<float>(1 / std::sqrt(20.0)));
    EXPECT_FLOAT_EQ(c.embedding_scale, 8);
    EXPECT_TRUE(c.norm_plus_one);
  }
  ExpectRefused(With(old_spelling, {{"hidden_activation", "relu"}}), "relu");
}

TEST(ConfigHf, Gemma3VisionLeavesDefaultsOut) {
  const json text = {
      {"model_type", "gemma3_text"}, {"hidden_size", 2560},
      {"intermediate_size", 10240},  {"num_hidden_layers", 34},
      {"sliding_window", 1024},      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}};
  const ModelConfig c = Must({{"architectures", {"Gemma3ForConditionalGeneration"}},
                              {"model_type", "gemma3"},
                              {"text_config", text}});
  EXPECT_EQ(c.heads[0], 8u);
  EXPECT_EQ(c.kv_heads[0], 4u);
  EXPECT_EQ(c.head_dim, 256u);
  EXPECT_EQ(c.vocab, 262208u);
  EXPECT_FLOAT_EQ(c.rope.theta, 1e6f);
  EXPECT_FLOAT_EQ(c.attention_scale, 1.0f / 16);
  EXPECT_EQ(c.kinds[5], LayerKind::kFull);
  EXPECT_EQ(c.kinds[4], LayerKind::kSliding);
}

TEST(ConfigHf, GptOss) {
  json config = With(Base("gpt_oss", "GptOssForCausalLM"),
                     {{"num_local_experts", 6},
                      {"num_experts_per_tok", 2},
                      {"head_dim", 32},
                      {"sliding_window", 8},
                      {"swiglu_limit", 2.5},
                      {"quantization_config", {{"quant_method", "mxfp4"}}},
                      {"rope_scaling",
                       {{"rope_type", "yarn"},
                        {"factor", 16.0},
                        {"original_max_position_embeddings", 64},
                        {"truncate", false}}}});
  const ModelConfig c = Must(config);
  EXPECT_EQ(c.kinds[0], LayerKind::kSliding);
  EXPECT_EQ(c.kinds[1], LayerKind::kFull);
  EXPECT_FALSE(c.rope.truncate);
  EXPECT_FLOAT_EQ(c.rope.attn_factor, static_cast<float>(0.1 * std::log(16.0) + 1));
  EXPECT_FLOAT_EQ(c.rope_sliding.attn_factor, c.rope.attn_factor);
  EXPECT_FLOAT_EQ(c.swiglu_limit, 2.5f);
  EXPECT_TRUE(c.moe.router_bias);
  EXPECT_EQ(c.moe.scores, RouterScores::kSoftmaxChosen);
  EXPECT_EQ(c.moe.expert_ff, 96u);
  config["quantization_config"]["quant_method"] = "fp8";
  ExpectRefused(config, "fp8");
}

json Hybrid(const char* type, const char* model_class) {
  return With(Base(type, model_class), {{"head_dim", 32},
                                        {"linear_num_key_heads", 2},
                                        {"linear_num_value_heads", 4},
                                        {"linear_key_head_dim", 32},
                                        {"linear_value_head_dim", 32},
                                        {"linear_conv_kernel_dim", 4},
                                        {"num_experts", 8},
                                        {"num_experts_per_tok", 3},
                                        {"moe_intermediate_size", 32},
                                        {"shared_expert_intermediate_size", 48}});
}
TEST(ConfigHf, Hybrids) {
  const ModelConfig next =
      Must(With(Hybrid("qwen3_next", "Qwen3NextForCausalLM"), {{"full_attention_interval", 2}}));
  EXPECT_EQ(next.kinds, (std::vector<LayerKind>{LayerKind::kDeltaNet, LayerKind::kFull,
                                                LayerKind::kDeltaNet, LayerKind::kFull}));
  EXPECT_EQ(next.rope.dims, 8u);  // a quarter of the head by default
  EXPECT_TRUE(next.delta.grouped_qkvz);
  EXPECT_TRUE(next.delta.grouped_ba);
  EXPECT_FALSE(next.delta.tiled_heads);
  EXPECT_TRUE(next.moe.shared_gated);
  EXPECT_EQ(next.moe.shared_ff, 48u);

  json text = Hybrid("qwen3_5_moe_text", "");
  text.erase("architectures");
  text["rope_parameters"] = {{"rope_theta", 2e6},
                             {"partial_rotary_factor", 0.5},
                             {"rope_type", "default"},
                             {"mrope_section", {3, 3, 2}}};
  text["mtp_num_hidden_layers"] = 1;
  const ModelConfig c = Must({{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                              {"model_type", "qwen3_5_moe"},
                              {"text_config", text}});
  EXPECT_EQ(c.arch, Arch::kQwen35Moe);
  EXPECT_EQ(c.layers, 4u);
  EXPECT_EQ(c.mtp_layers, 1u);
  EXPECT_EQ(c.rope.dims, 16u);
  EXPECT_FLOAT_EQ(c.rope.theta, 2e6f);
  EXPECT_TRUE(c.moe.normalise);
  EXPECT_FALSE(c.delta.grouped_qkvz);
  EXPECT_EQ(c.kinds[3], LayerKind::kFull);

  json dense = Hybrid("qwen3_5_text", "Qwen3_5ForCausalLM");
  dense.erase("num_experts");
  EXPECT_EQ(Must(dense).arch, Arch::kQwen35);
  EXPECT_EQ(Must(dense).moe.experts, 0u);
  ExpectRefused(With(dense, {{"attn_output_gate", false}}), "attn_output_gate");
  ExpectRefused(With(dense, {{"linear_num_value_heads", 3}}), "value heads");
  ExpectRefused(With(dense, {{"full_attention_interval", 0}}), "period");
}

json Deepseek(const char* type, const char* model_class) {
  return With(Base(type, model_class), {{"kv_lora_rank", 32},
                                        {"q_lora_rank", nullptr},
                                        {"qk_nope_head_dim", 24},
                                        {"qk_rope_head_dim", 16},
                                        {"v_head_dim", 20},
                                        {"n_routed_experts", 8},
                                        {"n_shared_experts", 2},
                                        {"num_experts_per_tok", 3},
                                        {"moe_intermediate_size", 32},
                                        {"first_k_dense_replace", 1},
                                        {"routed_scaling_factor", 2.5}});
}
TEST(ConfigHf, Deepseek) {
  const json yarn = {{"type", "yarn"},
                     {"factor", 8.0},
                     {"mscale", 0.707},
                     {"mscale_all_dim", 0.707},
                     {"original_max_position_embeddings", 64}};
  const ModelConfig v2 =
      Must(With(Deepseek("deepseek_v2", "DeepseekV2ForCausalLM"),
                {{"rope_scaling", yarn}, {"topk_method", "greedy"}, {"n_group", 1}}));
  EXPECT_EQ(v2.head_dim, 40u);
  EXPECT_EQ(v2.head_dim_v, 20u);
  EXPECT_EQ(v2.kv_heads[0], 1u);
  EXPECT_TRUE(v2.rope.adjacent);
  EXPECT_EQ(v2.rope.dims, 16u);
  EXPECT_FLOAT_EQ(v2.rope.attn_factor, 1);
  const double m = 0.0707 * std::log(8.0) + 1;
  EXPECT_NEAR(v2.attention_scale, m * m / std::sqrt(40.0), 1e-6);
  EXPECT_EQ(v2.moe.shared_ff, 64u);
  EXPECT_FALSE(v2.moe.normalise);
  EXPECT_FLOAT_EQ(v2.moe.weights_scale, 2.5);
  EXPECT_FALSE(v2.IsMoeLayer(0));
  EXPECT_TRUE(v2.IsMoeLayer(1));
  EXPECT_LE(v2.moe.groups, 1u);

  const json groups = {{"topk_method", "group_limited_greedy"}, {"n_group", 4}, {"topk_group", 2}};
  const ModelConfig limited = Must(With(Deepseek("deepseek_v2", "DeepseekV2ForCausalLM"), groups));
  EXPECT_EQ(limited.moe.groups, 4u);
  EXPECT_EQ(limited.moe.groups_used, 2u);
  EXPECT_FALSE(limited.moe.groups_by_top2);

  const ModelConfig v3 = Must(
      With(Deepseek("deepseek_v3", "DeepseekV3ForCausalLM"), {{"n_group", 4}, {"topk_group", 2}}));
  EXPECT_EQ(v3.moe.scores, RouterScores::kSigmoid);
  EXPECT_TRUE(v3.moe.router_bias);
  EXPECT_TRUE(v3.moe.groups_by_top2);
  EXPECT_TRUE(v3.moe.normalise);
  ExpectRefused(
      With(Deepseek("deepseek_v3", "DeepseekV3ForCausalLM"), {{"n_group", 3}, {"topk_group", 2}}),
      "groups");
}

TEST(ConfigHf, UnknownArchitectureIsNamed) {
  ExpectRefused(Base("quux", "QuuxForCausalLM"), "unsupported architecture 'QuuxForCausalLM'");
  ExpectRefused({{"model_type", "quux"}}, "unsupported architecture 'quux'");
  ExpectRefused(json::object(), "unsupported architecture");
  ExpectRefused(json::array(), "config.json");
  json only_class = Llama();
  only_class.erase("model_type");
  EXPECT_EQ(Must(only_class).arch, Arch::kLlama);
}

TEST(ConfigHf, BadFieldsAreNamed) {
  for (const char* field :
       {"num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"}) {
    ExpectRefused(With(Llama(), {{field, 0}}), field);
    ExpectRefused(With(Llama(), {{field, "4"}}), field);
    ExpectRefused(With(Llama(), {{field, -4}}), field);
    ExpectRefused(With(Llama(), {{field, 4.5}}), field);
    ExpectRefused(With(Llama(), {{field, uint64_t{1} << 40}}), field);
    json absent = Llama();
    absent.erase(field);
    ExpectRefused(absent, field);
  }
  ExpectRefused(With(Llama(), {{"num_hidden_layers", 100000}}), "num_hidden_layers");
  ExpectRefused(With(Llama(), {{"num_key_value_heads", 3}}), "head_count_kv");
  ExpectRefused(With(Llama(), {{"num_key_value_heads", 0}}), "head_count_kv");
  ExpectRefused(With(Llama(), {{"head_dim", 15}}), "rotated");
  ExpectRefused(With(Llama(), {{"rope_theta", 0.0}}), "RoPE base");
  ExpectRefused(With(Llama(), {{"rms_norm_eps", 1e300}}), "rms_norm_eps");
  ExpectRefused(With(Llama(), {{"rms_norm_eps", -1}}), "epsilon");
  ExpectRefused(With(Llama(), {{"hidden_act", "gelu"}}), "gelu");
  ExpectRefused(With(Llama(), {{"layer_types", json::array({"full_attention"})}}), "layer_types");
  ExpectRefused(With(Llama(), {{"layer_types", json::array({"a", "b", "c", "d"})}}), "layer_types");
  ExpectRefused(With(Llama(), {{"partial_rotary_factor", 2.0}}), "partial_rotary_factor");
  ExpectRefused(With(Llama(), {{"quantization_config", {{"quant_method", "gptq"}}}}), "gptq");
  EXPECT_EQ(Must(With(Llama(), {{"hidden_size", 64.0}})).hidden, 64u);
}

}  // namespace
}  // namespace sluice
