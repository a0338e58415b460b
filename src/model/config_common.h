// What both spellings of a config share: architecture names, traits, final checks.
//
// Contract: pure. Internal to the config and bind files of this room.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/config.h"

namespace sluice {

std::optional<Arch> ArchFromGguf(std::string_view name);
// A model_type ("qwen3_moe", "gemma3_text") or a class name ("Qwen3MoeForCausalLM").
std::optional<Arch> ArchFromHf(std::string_view name);

struct ArchTraits {
  bool head_norms = false;       // q and k RMSNorm per head
  bool whole_norms = false;      // q and k RMSNorm over all heads together (olmoe)
  bool gated_attention = false;  // q projection holds query and gate
  bool delta_net = false;
  bool four_norms = false;  // norms after attention and after the MLP as well (gemma3)
  bool one_plus = false;    // HF norm weights lack the 1
  bool qkv_bias = false;    // required
  bool all_bias = false;    // required on q, k, v, o, router and experts (gpt-oss)
  bool adjacent_gguf = false, adjacent_hf = false;  // RoPE pairs (2j, 2j+1)
  bool mla = false;
};
ArchTraits TraitsOf(Arch arch);

// Everything a forward page may divide by or index with. `where` is the file or folder.
Status CheckConfig(const ModelConfig& config, const std::string& where);

// "none", "linear", "llama3", "yarn".
const char* RopeScalingName(RopeScaling scaling);
// Before: an override is sane and, with the factor that came out, complete. kUsage naming the
// option.
Status CheckOverride(const RopeOverride& rope, float factor, const std::string& where);
// After: it had an effect; the context it stretches the model to becomes the model's.
Status WidenContext(const RopeOverride& rope, ModelConfig* config);

// Yarn's m(s) = 0.1 s ln(factor) + 1, 1 when factor <= 1.
double YarnMscale(double scale, double factor);

Status UnsupportedArchitecture(std::string_view name, const std::string& where);

}  // namespace sluice
