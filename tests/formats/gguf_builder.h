// Builds GGUF files in memory, right or wrong in any single place.
//
// Contract: for tests. Every length, count and offset is right unless overridden. Tensor data is a
// byte pattern of the right size. Values are written as given, so a test decides about types and
// ranges itself.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "quant/types.h"

namespace sluice::testing {

template <typename T>
std::string Raw(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}
inline std::string RawString(const std::string& text) { return Raw<uint64_t>(text.size()) + text; }

inline ByteSpan Bytes(const std::string& text) {
  return ByteSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

class GgufBuilder {
 public:
  struct Key {
    std::string name;
    uint32_t type = 0;
    std::string value;  // as in the file
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type = 0;
    uint64_t bytes = 0;              // of data
    std::optional<uint64_t> offset;  // overrides
    std::optional<uint32_t> n_dims;
  };

  GgufBuilder& Put(const std::string& key, uint32_t type, std::string value) {
    for (Key& k : keys) {
      if (k.name == key) {
        k = {key, type, std::move(value)};
        return *this;
      }
    }
    keys.push_back({key, type, std::move(value)});
    return *this;
  }
  GgufBuilder& U32(const std::string& key, uint32_t v) { return Put(key, 4, Raw(v)); }
  GgufBuilder& F32(const std::string& key, float v) { return Put(key, 6, Raw(v)); }
  GgufBuilder& Flag(const std::string& key, bool v) { return Put(key, 7, Raw<uint8_t>(v)); }
  GgufBuilder& Text(const std::string& key, const std::string& v) {
    return Put(key, 8, RawString(v));
  }
  GgufBuilder& Texts(const std::string& key, const std::vector<std::string>& v) {
    std::string value = Raw<uint32_t>(8) + Raw<uint64_t>(v.size());
    for (const std::string& text : v) value += RawString(text);
    return Put(key, 9, std::move(value));
  }
  template <typename T>
  GgufBuilder& List(const std::string& key, uint32_t element, const std::vector<T>& v) {
    std::string value = Raw<uint32_t>(element) + Raw<uint64_t>(v.size());
    for (T item : v) value += Raw(item);
    return Put(key, 9, std::move(value));
  }
  GgufBuilder& Drop(const std::string& key) {
    std::erase_if(keys, [&](const Key& k) { return k.name == key; });
    return *this;
  }

  GgufBuilder& Add(const std::string& name, std::vector<uint64_t> dims,
                   WeightType type = WeightType::kF32) {
    const WeightTypeInfo& info = InfoOf(type);
    uint64_t elements = 1;
    for (uint64_t dim : dims) elements *= dim;
    const uint64_t bytes = elements / info.block_elems * info.block_bytes;
    tensors.push_back({name, std::move(dims), static_cast<uint32_t>(type), bytes, {}, {}});
    return *this;
  }
  GgufBuilder& DropTensor(const std::string& name) {
    std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
    return *this;
  }
  Tensor& Find(const std::string& name) {
    for (Tensor& t : tensors) {
      if (t.name == name) return t;
    }
    std::abort();
  }

  std::string Build() const {
    std::string out = magic + Raw(version) + Raw<uint64_t>(tensor_count.value_or(tensors.size())) +
                      Raw<uint64_t>(key_count.value_or(keys.size()));
    for (const Key& k : keys) out += RawString(k.name) + Raw(k.type) + k.value;
    uint64_t at = 0;
    for (const Tensor& t : tensors) {
      out += RawString(t.name) + Raw<uint32_t>(t.n_dims.value_or(t.dims.size()));
      for (uint64_t dim : t.dims) out += Raw(dim);
      out += Raw(t.type) + Raw<uint64_t>(t.offset.value_or(at));
      at += AlignUp(t.bytes, alignment);
    }
    if (tensors.empty()) return out;
    out.resize(AlignUp(out.size(), alignment), '\0');
    for (const Tensor& t : tensors) {
      const size_t begin = out.size();
      out.resize(begin + AlignUp(t.bytes, alignment), '\0');
      for (uint64_t i = 0; i < t.bytes; ++i) out[begin + i] = static_cast<char>(i * 7);
    }
    return out;
  }

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the layout; the key is the test's business
  std::optional<uint64_t> tensor_count, key_count;
  std::vector<Key> keys;
  std::vector<Tensor> tensors;
};

// Keys that every architecture here needs, under its own prefix.
inline GgufBuilder CommonKeys(const std::string& arch, uint32_t layers, uint32_t hidden,
                              uint32_t heads, uint32_t kv_heads, uint32_t ff) {
  GgufBuilder b;
  b.Text("general.architecture", arch).Text("general.name", "tiny " + arch);
  b.U32(arch + ".block_count", layers).U32(arch + ".context_length", 128);
  b.U32(arch + ".embedding_length", hidden).U32(arch + ".feed_forward_length", ff);
  b.U32(arch + ".attention.head_count", heads).U32(arch + ".attention.head_count_kv", kv_heads);
  b.F32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  b.F32(arch + ".rope.freq_base", 10000.0f);
  return b;
}

// A whole dense llama: 2 layers, hidden 32, 4 heads over 2, ff 64, vocabulary 24, no tokenizer.
inline GgufBuilder TinyLlama() {
  GgufBuilder b = CommonKeys("llama", 2, 32, 4, 2, 64);
  b.Add("token_embd.weight", {32, 24}).Add("output_norm.weight", {32});
  for (int i = 0; i < 2; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    b.Add(p + "attn_norm.weight", {32}).Add(p + "ffn_norm.weight", {32});
    b.Add(p + "attn_q.weight", {32, 32}).Add(p + "attn_k.weight", {32, 16});
    b.Add(p + "attn_v.weight", {32, 16}).Add(p + "attn_output.weight", {32, 32});
    b.Add(p + "ffn_gate.weight", {32, 64}).Add(p + "ffn_up.weight", {32, 64});
    b.Add(p + "ffn_down.weight", {64, 32});
  }
  return b;
}

// A whole qwen3moe: 1 layer, hidden 32, head size 16, 4 experts of 16, 2 used.
inline GgufBuilder TinyQwen3Moe() {
  GgufBuilder b = CommonKeys("qwen3moe", 1, 32, 4, 2, 64);
  b.U32("qwen3moe.attention.key_length", 16).U32("qwen3moe.attention.value_length", 16);
  b.U32("qwen3moe.expert_count", 4).U32("qwen3moe.expert_used_count", 2);
  b.U32("qwen3moe.expert_feed_forward_length", 16);
  b.Add("token_embd.weight", {32, 24}).Add("output_norm.weight", {32});
  const std::string p = "blk.0.";
  b.Add(p + "attn_norm.weight", {32}).Add(p + "ffn_norm.weight", {32});
  b.Add(p + "attn_q.weight", {32, 64}).Add(p + "attn_k.weight", {32, 32});
  b.Add(p + "attn_v.weight", {32, 32}).Add(p + "attn_output.weight", {64, 32});
  b.Add(p + "attn_q_norm.weight", {16}).Add(p + "attn_k_norm.weight", {16});
  b.Add(p + "ffn_gate_inp.weight", {32, 4}).Add(p + "ffn_gate_exps.weight", {32, 16, 4});
  b.Add(p + "ffn_up_exps.weight", {32, 16, 4}).Add(p + "ffn_down_exps.weight", {16, 32, 4});
  return b;
}

// Adds a byte-level BPE section of n tokens.
inline void AddTokenizer(GgufBuilder* b, uint32_t n) {
  std::vector<std::string> tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(fmt::format("t{}", i));
  b->Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "qwen2");
  b->Texts("tokenizer.ggml.tokens", tokens).Texts("tokenizer.ggml.merges", {"t 0", "t 1"});
  b->List<int32_t>("tokenizer.ggml.token_type", 5, std::vector<int32_t>(n, 1));
  b->U32("tokenizer.ggml.eos_token_id", n - 1);
}

}  // namespace sluice::testing
