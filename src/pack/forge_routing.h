// The routing that a forged file carries: which experts each code visits in each layer.
//
// Contract: immutable after making. A code is a token id below codes(); other ids use the code
// (id mod codes). Experts of one place are distinct, weights are positive and add up to 1. Memory:
// codes * layers * used * 6 bytes (4.7 MB for 2,048 codes of 48 layers, top-8).
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "formats/route_trace.h"
#include "pack/forge_shape.h"

namespace sluice {

// Experts per token: the highest slot of the trace + 1.
uint32_t TraceUsed(const RouteTrace& trace);

class ForgeRouting {
 public:
  // Distinct experts drawn at random for every code and layer, with weights within 3:1.
  static ForgeRouting Uniform(const ForgeShape& shape, uint32_t codes, uint64_t seed);
  // The recorded tokens in the order of turn, phase and step, at most `codes` of them. The trace
  // must have the shape's layers and experts and the same number of experts everywhere (kUsage
  // otherwise). A token without any row in a layer takes that layer from the next one that has it
  // (else from the last): llama.cpp leaves out the last layer of prompt tokens whose logits nobody
  // reads, and this adds no expert to the prompt.
  static Result<ForgeRouting> FromTrace(const ForgeShape& shape, uint32_t codes, RouteTrace trace,
                                        const std::string& name);

  uint32_t codes() const { return codes_; }
  uint32_t used() const { return used_; }
  uint32_t tokens() const { return tokens_; }      // of the trace
  uint64_t borrowed() const { return borrowed_; }  // (token, layer) places the trace left out
  uint32_t prompt_tokens() const { return prompt_tokens_; }  // codes of a trace's prompt
  const uint16_t* experts(uint32_t code, uint32_t layer) const {
    return expert_.data() + At(code, layer);
  }
  const float* weights(uint32_t code, uint32_t layer) const {
    return weight_.data() + At(code, layer);
  }

 private:
  ForgeRouting(uint32_t codes, uint32_t layers, uint32_t used);
  uint64_t At(uint32_t code, uint32_t layer) const {
    return (uint64_t{code} * layers_ + layer) * used_;
  }
  void Normalise();
  Status Borrow(const std::vector<uint8_t>& planned, const std::string& name);

  uint32_t codes_, layers_, used_, prompt_tokens_ = 0, tokens_ = 0;
  uint64_t borrowed_ = 0;
  std::vector<uint16_t> expert_;  // [code][layer][slot]
  std::vector<float> weight_;
};

}  // namespace sluice
