// Binding: roles, shapes, fused tensors, and what is refused. All files are made here.
#include <gtest/gtest.h>

#include <functional>

#include "formats/gguf.h"
#include "formats/hf_folder.h"
#include "model/model_map.h"
#include "tests/formats/safetensors_builder.h"

namespace sluice {
namespace {

using nlohmann::json;
using testing::CommonKeys;
using testing::GgufBuilder;
using testing::SafetensorsBuilder;
using testing::TempFolder;
using testing::TinyLlama;
using testing::TinyQwen3Moe;
using M = MatrixRole;
using V = VectorRole;

Result<ModelMap> Bind(const GgufBuilder& b) {
  TempFolder folder;
  const std::string path = folder.Write("x.gguf", b.Build());
  SLUICE_ASSIGN(GgufFileSet set, OpenGguf(path));
  return BindGguf(std::move(set), "x.gguf");
}
Result<ModelMap> Bind(const json& config, const SafetensorsBuilder& tensors) {
  TempFolder folder;
  folder.Write("config.json", config.dump());
  folder.Write("model.safetensors", tensors.Build());
  SLUICE_ASSIGN(HfFolder hf, OpenHfFolder(folder.path(), true));
  return BindHf(std::move(hf));
}
template <typename... Args>
ModelMap Must(const Args&... args) {
  Result<ModelMap> map = Bind(args...);
  EXPECT_TRUE(map.ok()) << map.status().ToString();
  return map.ok() ? std::move(*map) : ModelMap();
}
void ExpectRefused(const Result<ModelMap>& map, const std::vector<std::string>& words) {
  ASSERT_FALSE(map.ok()) << words[0];
  EXPECT_EQ(map.status().code(), Code::kBadModel);
  for (const std::string& word : words) {
    EXPECT_NE(map.status().ToString().find(word), std::string::npos) << map.status().ToString();
  }
}

TEST(BindGguf, Llama) {
  const ModelMap map = Must(TinyLlama());
  EXPECT_EQ(map.embedding.rows, 24u);
  EXPECT_EQ(map.head.extent.offset, map.embedding.extent.offset);
  ASSERT_EQ(map.layers.size(), 2u);
  const auto& q = map.layers[1].Get(M::kQ);
  ASSERT_TRUE(q);
  EXPECT_EQ(q->name, "blk.1.attn_q.weight");
  EXPECT_EQ(q->row_bytes, 128u);
  EXPECT_EQ(q->extent.bytes, 32u * 128);
  EXPECT_EQ(map.layers[1].Get(M::kDown)->cols, 64u);
  EXPECT_FALSE(map.layers[1].Get(V::kQBias));
  EXPECT_FALSE(map.layers[1].experts);
  EXPECT_TRUE(map.skipped.empty());
}

TEST(BindGguf, UntiedHeadAndRopeFactors) {
  GgufBuilder b = TinyLlama();
  b.Add("output.weight", {32, 24}).Add("rope_freqs.weight", {4});
  const ModelMap map = Must(b);
  EXPECT_NE(map.head.extent.offset, map.embedding.extent.offset);
  ASSERT_TRUE(map.rope_factors);
  EXPECT_EQ(map.rope_factors->n, 4u);
}

TEST(BindGguf, FusedQkvBecomesRowSlices) {
  GgufBuilder b = TinyLlama();
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    b.DropTensor(name);
  }
  b.Add("blk.0.attn_qkv.weight", {32, 64}).Add("blk.0.attn_qkv.bias", {64});
  const ModelMap map = Must(b);
  const LayerMap& layer = map.layers[0];
  const uint64_t base = layer.Get(M::kQ)->extent.offset;
  EXPECT_EQ(layer.Get(M::kQ)->rows, 32u);
  EXPECT_EQ(layer.Get(M::kK)->extent.offset, base + 32 * 128);
  EXPECT_EQ(layer.Get(M::kV)->extent.offset, base + 48 * 128);
  EXPECT_EQ(layer.Get(M::kV)->extent.bytes, 16u * 128);
  EXPECT_EQ(layer.Get(V::kVBias)->extent.offset, layer.Get(V::kQBias)->extent.offset + 48 * 4);
  EXPECT_EQ(layer.Get(V::kVBias)->n, 16u);
}

TEST(BindGguf, ExpertsStacked) {
  const ModelMap map = Must(TinyQwen3Moe());
  ASSERT_TRUE(map.layers[0].experts);
  const ExpertSpec& e = *map.layers[0].experts;
  EXPECT_EQ(e.layout, ExpertLayout::kPlain);
  EXPECT_EQ(e.part[0].first.rows, 16u);
  EXPECT_EQ(e.part[2].first.rows, 32u);
  EXPECT_EQ(e.part[0].stride, 16u * 32 * 4);
  EXPECT_EQ(e.part[0].At(3).offset, e.part[0].first.extent.offset + 3 * 16 * 32 * 4);
}

TEST(BindGguf, ExpertsWithFusedGateUp) {
  GgufBuilder b = TinyQwen3Moe();
  b.DropTensor("blk.0.ffn_gate_exps.weight").DropTensor("blk.0.ffn_up_exps.weight");
  b.Add("blk.0.ffn_gate_up_exps.weight", {32, 32, 4});
  const ModelMap map = Must(b);
  const ExpertSpec& e = *map.layers[0].experts;
  EXPECT_EQ(e.part[0].stride, 32u * 32 * 4);
  EXPECT_EQ(e.part[0].first.extent.bytes, 16u * 32 * 4);
  EXPECT_EQ(e.part[1].At(2).offset, e.part[0].At(2).offset + 16 * 32 * 4);
}

TEST(BindGguf, ExpertsAsSeparateTensors) {
  GgufBuilder b = TinyLlama();
  b.U32("llama.expert_count", 2).U32("llama.expert_used_count", 1);
  for (int i = 0; i < 2; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    b.Add(p + "ffn_gate_inp.weight", {32, 2});
    for (const char* part : {"ffn_gate", "ffn_up", "ffn_down"}) {
      b.DropTensor(p + part + ".weight");
      for (int e = 0; e < 2; ++e) {
        const bool down = std::string(part) == "ffn_down";
        b.Add(fmt::format("{}{}.{}.weight", p, part, e),
              down ? std::vector<uint64_t>{64, 32} : std::vector<uint64_t>{32, 64});
      }
    }
  }
  const ModelMap map = Must(b);
  EXPECT_EQ(map.layers[1].experts->part[2].each.size(), 2u);
  EXPECT_TRUE(map.layers[1].Get(M::kRouter));
}

TEST(BindGguf, Refusals) {
  const auto edited = [](const std::function<void(GgufBuilder&)>& edit) {
    GgufBuilder b = TinyLlama();
    edit(b);
    return Bind(b);
  };
  ExpectRefused(edited([](auto& b) { b.DropTensor("blk.1.attn_k.weight"); }),
                {"missing tensor 'blk.1.attn_k.weight'", "x.gguf"});
  ExpectRefused(edited([](auto& b) { b.DropTensor("token_embd.weight"); }), {"token_embd.weight"});
  ExpectRefused(edited([](auto& b) { b.DropTensor("output_norm.weight"); }),
                {"output_norm.weight"});
  ExpectRefused(edited([](auto& b) { b.U32("llama.block_count", 3); }), {"blk.2.attn_norm.weight"});
  ExpectRefused(edited([](auto& b) { b.U32("llama.block_count", 1); }), {"unknown tensor 'blk.1."});
  ExpectRefused(edited([](auto& b) { b.U32("llama.embedding_length", 64); }),
                {"token_embd.weight", "[32, 24]", "[64, 24]"});
  ExpectRefused(edited([](auto& b) { b.U32("llama.feed_forward_length", 128); }),
                {"blk.0.ffn_gate.weight", "shape"});
  ExpectRefused(edited([](auto& b) { b.Add("blk.0.attn_q.weight_scale", {1}); }),
                {"unknown tensor 'blk.0.attn_q.weight_scale'"});
  ExpectRefused(edited([](auto& b) { b.Add("rope_freqs.weight", {5}); }), {"rope_freqs.weight"});
  for (WeightType type :
       {WeightType::kI8, WeightType::kI16, WeightType::kI32, WeightType::kI64, WeightType::kF64}) {
    ExpectRefused(edited([&](auto& b) {
                    b.DropTensor("blk.0.ffn_up.weight");
                    b.Add("blk.0.ffn_up.weight", {32, 64}, type);
                  }),
                  {"blk.0.ffn_up.weight", InfoOf(type).name});
    ExpectRefused(edited([&](auto& b) {
                    b.DropTensor("blk.0.attn_norm.weight");
                    b.Add("blk.0.attn_norm.weight", {32}, type);
                  }),
                  {"blk.0.attn_norm.weight"});
  }
  GgufBuilder few = TinyQwen3Moe();
  few.U32("qwen3moe.expert_count", 8);
  ExpectRefused(Bind(few), {"ffn_gate_inp.weight"});
  GgufBuilder short_exps = TinyQwen3Moe();
  short_exps.DropTensor("blk.0.ffn_down_exps.weight");
  short_exps.Add("blk.0.ffn_down_exps.weight", {16, 32, 3});
  ExpectRefused(Bind(short_exps), {"blk.0.ffn_down_exps.weight", "[16, 32, 3]"});
}

TEST(BindGguf, HybridRolesAndSkippedPrediction) {
  GgufBuilder b = CommonKeys("qwen35", 3, 32, 2, 1, 64);
  const std::string a = "qwen35.";
  b.U32(a + "attention.key_length", 16).U32(a + "attention.value_length", 16);
  b.U32(a + "full_attention_interval", 2).U32(a + "nextn_predict_layers", 1);
  b.U32(a + "ssm.conv_kernel", 4).U32(a + "ssm.state_size", 8).U32(a + "ssm.group_count", 1);
  b.U32(a + "ssm.time_step_rank", 2).U32(a + "ssm.inner_size", 16);
  b.U32(a + "rope.dimension_count", 4);
  b.Add("token_embd.weight", {32, 24}).Add("output_norm.weight", {32});
  for (const char* p : {"blk.0.", "blk.1."}) {
    const std::string l = p;
    b.Add(l + "attn_norm.weight", {32}).Add(l + "post_attention_norm.weight", {32});
    b.Add(l + "ffn_gate.weight", {32, 64}).Add(l + "ffn_up.weight", {32, 64});
    b.Add(l + "ffn_down.weight", {64, 32});
  }
  b.Add("blk.0.attn_qkv.weight", {32, 32}).Add("blk.0.attn_gate.weight", {32, 16});
  b.Add("blk.0.ssm_beta.weight", {32, 2}).Add("blk.0.ssm_alpha.weight", {32, 2});
  b.Add("blk.0.ssm_conv1d.weight", {4, 32}).Add("blk.0.ssm_dt.bias", {2}).Add("blk.0.ssm_a", {2});
  b.Add("blk.0.ssm_norm.weight", {8}).Add("blk.0.ssm_out.weight", {16, 32});
  b.Add("blk.1.attn_q.weight", {32, 64}).Add("blk.1.attn_k.weight", {32, 16});
  b.Add("blk.1.attn_v.weight", {32, 16}).Add("blk.1.attn_output.weight", {32, 32});
  b.Add("blk.1.attn_q_norm.weight", {16}).Add("blk.1.attn_k_norm.weight", {16});
  b.Add("blk.2.nextn.eh_proj.weight", {64, 32});
  const ModelMap map = Must(b);
  EXPECT_EQ(map.layers.size(), 2u);
  EXPECT_EQ(map.layers[0].Get(M::kDeltaQkv)->rows, 32u);
  EXPECT_EQ(map.layers[0].Get(M::kDeltaZ)->rows, 16u);
  EXPECT_EQ(map.layers[0].Get(V::kConv)->n, 128u);
  EXPECT_EQ(map.layers[0].Get(V::kDeltaA)->transform, VectorTransform::kNone);
  EXPECT_EQ(map.layers[1].Get(M::kQ)->rows, 64u);  // query and gate
  EXPECT_EQ(map.skipped, (std::vector<std::string>{"blk.2.nextn.eh_proj.weight"}));
}

// A folder of one layer, hidden 32, 4 heads of 8 over 2, ff 64, vocabulary 24.
json HfConfig(const char* type) {
  return {{"model_type", type},       {"num_hidden_layers", 1}, {"hidden_size", 32},
          {"intermediate_size", 64},  {"vocab_size", 24},       {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"head_dim", 8},          {"max_position_embeddings", 64},
          {"num_experts_per_tok", 1}, {"num_local_experts", 2}};
}
SafetensorsBuilder HfAttention(const std::string& model = "model.", const char* dtype = "BF16") {
  SafetensorsBuilder b;
  const std::string p = model + "layers.0.";
  b.Add(model + "embed_tokens.weight", {24, 32}, dtype).Add(model + "norm.weight", {32}, dtype);
  b.Add(p + "input_layernorm.weight", {32}, dtype);
  b.Add(p + "post_attention_layernorm.weight", {32}, dtype);
  b.Add(p + "self_attn.q_proj.weight", {32, 32}, dtype);
  b.Add(p + "self_attn.k_proj.weight", {16, 32}, dtype);
  b.Add(p + "self_attn.v_proj.weight", {16, 32}, dtype);
  b.Add(p + "self_attn.o_proj.weight", {32, 32}, dtype);
  return b;
}
SafetensorsBuilder HfDense(const std::string& model = "model.") {
  SafetensorsBuilder b = HfAttention(model);
  const std::string p = model + "layers.0.mlp.";
  b.Add(p + "gate_proj.weight", {64, 32}, "BF16").Add(p + "up_proj.weight", {64, 32}, "BF16");
  return b.Add(p + "down_proj.weight", {32, 64}, "BF16");
}

TEST(BindHf, LlamaWithAndWithoutHead) {
  const ModelMap tied = Must(HfConfig("llama"), HfDense());
  EXPECT_EQ(tied.head.extent.offset, tied.embedding.extent.offset);
  EXPECT_EQ(tied.layers[0].Get(M::kUp)->rows, 64u);
  EXPECT_EQ(tied.layers[0].Get(V::kAttnNorm)->transform, VectorTransform::kNone);
  json config = HfConfig("llama");
  config["tie_word_embeddings"] = true;  // both carried: the head's own tensor counts
  const ModelMap own = Must(config, HfDense().Add("lm_head.weight", {24, 32}, "F16"));
  EXPECT_EQ(own.head.type, WeightType::kF16);
}

TEST(BindHf, VisionPrefixAndSkippedParts) {
  json text = HfConfig("llama");
  const json config = {{"architectures", {"SomeForConditionalGeneration"}}, {"text_config", text}};
  for (const char* prefix : {"model.language_model.", "language_model.model."}) {
    SafetensorsBuilder b = HfDense(prefix);
    b.Add("model.visual.patch_embed.proj.weight", {2, 3, 2, 4, 4});
    const ModelMap map = Must(config, b);
    EXPECT_EQ(map.skipped.size(), 1u);
  }
}

TEST(BindHf, Refusals) {
  SafetensorsBuilder extra = HfDense();
  extra.Add("model.layers.0.self_attn.q_norm.weight", {8}, "BF16");
  ExpectRefused(Bind(HfConfig("llama"), extra), {"unknown tensor", "q_norm"});
  SafetensorsBuilder beyond = HfDense();
  beyond.Add("model.layers.1.input_layernorm.weight", {32}, "BF16");
  ExpectRefused(Bind(HfConfig("llama"), beyond), {"unknown tensor", "layers.1."});
  ExpectRefused(Bind(HfConfig("qwen2"), HfDense()), {"q_proj.bias"});
  ExpectRefused(Bind(HfConfig("llama"), HfAttention()), {"mlp.gate_proj.weight"});
  json wide = HfConfig("llama");
  wide["vocab_size"] = 25;
  ExpectRefused(Bind(wide, HfDense()), {"embed_tokens.weight", "[32, 24]"});
}

TEST(BindHf, Gemma3AddsOne) {
  SafetensorsBuilder b = HfDense();
  const std::string p = "model.layers.0.";
  for (const char* name : {"pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    b.Add(p + name + ".weight", {32}, "BF16");
  }
  b.Add(p + "self_attn.q_norm.weight", {8}, "BF16").Add(p + "self_attn.k_norm.weight", {8}, "BF16");
  const ModelMap map = Must(HfConfig("gemma3_text"), b);
  for (V role :
       {V::kAttnNorm, V::kFfnNorm, V::kPostAttnNorm, V::kPostFfnNorm, V::kQNorm, V::kKNorm}) {
    EXPECT_EQ(map.layers[0].Get(role)->transform, VectorTransform::kPlusOne);
  }
  EXPECT_EQ(map.output_norm.transform, VectorTransform::kPlusOne);
  EXPECT_EQ(map.layers[0].Get(V::kFfnNorm)->name, p + "pre_feedforward_layernorm.weight");
}

TEST(BindHf, MixtralBothSpellings) {
  SafetensorsBuilder b = HfAttention();
  const std::string p = "model.layers.0.block_sparse_moe.";
  b.Add(p + "gate.weight", {2, 32}, "BF16");
  for (int e = 0; e < 2; ++e) {
    const std::string x = p + "experts." + std::to_string(e) + ".";
    b.Add(x + "w1.weight", {64, 32}, "BF16").Add(x + "w2.weight", {32, 64}, "BF16");
    b.Add(x + "w3.weight", {64, 32}, "BF16");
  }
  const ModelMap map = Must(HfConfig("mixtral"), b);
  const ExpertSpec& e = *map.layers[0].experts;
  EXPECT_EQ(e.part[0].first.name, p + "experts.0.w1.weight");
  EXPECT_EQ(e.part[1].first.name, p + "experts.0.w3.weight");
  EXPECT_EQ(e.part[2].first.name, p + "experts.0.w2.weight");
  EXPECT_EQ(e.part[2].each.size(), 2u);
  SafetensorsBuilder fused = HfAttention();
  fused.Add("model.layers.0.mlp.gate.weight", {2, 32}, "BF16");
  fused.Add("model.layers.0.mlp.experts.gate_up_proj", {2, 128, 32}, "BF16");
  fused.Add("model.layers.0.mlp.experts.down_proj", {2, 32, 64}, "BF16");
  const ModelMap other = Must(HfConfig("mixtral"), fused);
  EXPECT_EQ(other.layers[0].experts->part[1].first.rows, 64u);
  EXPECT_EQ(other.layers[0].experts->part[1].stride, 128u * 64);
}

TEST(BindHf, GraniteSharedExpert) {
  SafetensorsBuilder b = HfAttention();
  const std::string p = "model.layers.0.";
  b.Add(p + "block_sparse_moe.router.layer.weight", {2, 32}, "BF16");
  b.Add(p + "block_sparse_moe.input_linear.weight", {2, 128, 32}, "BF16");
  b.Add(p + "block_sparse_moe.output_linear.weight", {2, 32, 64}, "BF16");
  b.Add(p + "shared_mlp.input_linear.weight", {80, 32}, "BF16");
  b.Add(p + "shared_mlp.output_linear.weight", {32, 40}, "BF16");
  json config = HfConfig("granitemoeshared");
  config["shared_intermediate_size"] = 40;
  const ModelMap map = Must(config, b);
  const LayerMap& layer = map.layers[0];
  EXPECT_EQ(layer.Get(M::kSharedUp)->extent.offset,
            layer.Get(M::kSharedGate)->extent.offset + 40 * 64);
  EXPECT_EQ(layer.experts->part[1].At(1).offset, layer.experts->part[0].At(1).offset + 64 * 64);
}

SafetensorsBuilder GptOss() {
  SafetensorsBuilder b = HfAttention();
  const std::string p = "model.layers.0.";
  b.Add(p + "self_attn.q_proj.bias", {32}, "BF16").Add(p + "self_attn.k_proj.bias", {16}, "BF16");
  b.Add(p + "self_attn.v_proj.bias", {16}, "BF16").Add(p + "self_attn.o_proj.bias", {32}, "BF16");
  b.Add(p + "self_attn.sinks", {4}, "BF16").Add(p + "mlp.router.weight", {2, 32}, "BF16");
  b.Add(p + "mlp.router.bias", {2}, "BF16");
  b.Add(p + "mlp.experts.gate_up_proj_bias", {2, 128}, "BF16");
  return b.Add(p + "mlp.experts.down_proj_bias", {2, 32}, "BF16");
}
TEST(BindHf, GptOssLayouts) {
  const std::string p = "model.layers.0.mlp.experts.";
  SafetensorsBuilder packed = GptOss();
  packed.Add(p + "gate_up_proj_blocks", {2, 128, 1, 16}, "U8");
  packed.Add(p + "gate_up_proj_scales", {2, 128, 1}, "U8");
  packed.Add(p + "down_proj_blocks", {2, 32, 2, 16}, "U8");
  packed.Add(p + "down_proj_scales", {2, 32, 2}, "U8");
  const ModelMap map = Must(HfConfig("gpt_oss"), packed);
  const ExpertSpec& e = *map.layers[0].experts;
  EXPECT_EQ(e.layout, ExpertLayout::kHfMxfp4);
  EXPECT_EQ(e.part[0].first.rows, 128u);
  EXPECT_EQ(e.part[0].stride, 128u * 16);
  EXPECT_EQ(e.scales[0].stride, 128u);
  EXPECT_EQ(e.part[2].first.row_bytes, 32u);
  EXPECT_EQ(e.scales[2].stride, 64u);
  EXPECT_EQ(map.layers[0].Get(V::kExpertGateUpBias)->n, 256u);

  SafetensorsBuilder plain = GptOss();
  plain.Add(p + "gate_up_proj", {2, 32, 128}, "BF16").Add(p + "down_proj", {2, 64, 32}, "BF16");
  const ModelMap other = Must(HfConfig("gpt_oss"), plain);
  EXPECT_EQ(other.layers[0].experts->layout, ExpertLayout::kTransposed);
  EXPECT_EQ(other.layers[0].experts->part[0].first.cols, 128u);

  SafetensorsBuilder wrong = GptOss();
  wrong.Add(p + "gate_up_proj_blocks", {2, 128, 2, 16}, "U8");
  ExpectRefused(Bind(HfConfig("gpt_oss"), wrong), {"gate_up_proj_blocks"});
}

TEST(BindHf, HybridTransforms) {
  json config = HfConfig("qwen3_next");
  config.erase("num_local_experts");
  config.update({{"linear_num_key_heads", 1},
                 {"linear_num_value_heads", 2},
                 {"linear_key_head_dim", 8},
                 {"linear_value_head_dim", 8},
                 {"layer_types", json::array({"linear_attention"})}});
  SafetensorsBuilder b;
  const std::string p = "model.layers.0.";
  b.Add("model.embed_tokens.weight", {24, 32}, "BF16").Add("model.norm.weight", {32}, "BF16");
  b.Add(p + "input_layernorm.weight", {32}, "BF16");
  b.Add(p + "post_attention_layernorm.weight", {32}, "BF16");
  const std::string d = p + "linear_attn.";
  b.Add(d + "in_proj_qkvz.weight", {48, 32}, "BF16").Add(d + "in_proj_ba.weight", {4, 32}, "BF16");
  b.Add(d + "conv1d.weight", {32, 1, 4}, "BF16").Add(d + "dt_bias", {2}, "BF16");
  b.Add(d + "A_log", {2}).Add(d + "norm.weight", {8}).Add(d + "out_proj.weight", {32, 16}, "BF16");
  b.Add(p + "mlp.gate_proj.weight", {64, 32}, "BF16");
  b.Add(p + "mlp.up_proj.weight", {64, 32}, "BF16");
  b.Add(p + "mlp.down_proj.weight", {32, 64}, "BF16");
  b.Add("mtp.fc.weight", {32, 64}, "BF16");
  const ModelMap map = Must(config, b);
  const LayerMap& layer = map.layers[0];
  EXPECT_EQ(layer.Get(M::kDeltaQkvz)->rows, 48u);
  EXPECT_EQ(layer.Get(M::kDeltaBa)->rows, 4u);
  EXPECT_EQ(layer.Get(V::kConv)->n, 128u);
  EXPECT_EQ(layer.Get(V::kDeltaA)->transform, VectorTransform::kNegExp);
  EXPECT_EQ(layer.Get(V::kDeltaNorm)->transform, VectorTransform::kNone);
  EXPECT_EQ(layer.Get(V::kAttnNorm)->transform, VectorTransform::kPlusOne);
  EXPECT_EQ(map.skipped, (std::vector<std::string>{"mtp.fc.weight"}));
}

}  // namespace
}  // namespace sluice
