// The arithmetic of routed experts: a wave of experts, each over the tokens that chose it.
//
// Contract: owner-thread only, no allocation after Place. A wave holds at most kWaveMax experts and
// as many packed rows as the scratch has. The result of a row depends only on its input and its
// expert, never on the wave (promise 2). Layouts other than gate/up/down matrices were made
// canonical when the bytes arrived.
#pragma once

#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/exec.h"
#include "model/tile.h"
#include "model/weights.h"

namespace sluice {

struct ExpertWeights {
  Matrix gate, up, down;  // [ff][hidden], [ff][hidden], [hidden][ff]
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
};

struct ExpertTask {
  ExpertWeights w;
  const uint32_t* rows = nullptr;  // [n] rows of the chunk
  uint32_t n = 0;
  float* out = nullptr;  // [n][hidden], written
};

struct ExpertScratch {
  uint32_t rows = 0;        // capacity in packed rows
  float* gate = nullptr;    // [rows][ff]
  float* up = nullptr;      // [rows][ff]
  float* gather = nullptr;  // [rows][hidden], float activations only
  ActBuffer gather_act;     // [rows][hidden]
  ActBuffer act;            // [rows][ff]

  static uint64_t Bytes(const ModelConfig& config, uint32_t rows, uint32_t formats, bool float_act);
  static ExpertScratch Place(Arena* arena, const ModelConfig& config, uint32_t rows,
                             uint32_t formats, bool float_act);
};

constexpr size_t kExpertWaveMax = Exec::kJobsMax / 2;

// Runs the tasks; the sum of their n must fit the scratch.
void RunExperts(Exec& exec, const ModelConfig& config, const MoeRows& in,
                const ExpertScratch& scratch, std::span<const ExpertTask> tasks);

}  // namespace sluice
