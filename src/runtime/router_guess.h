// RouterGuess: which experts a later layer will probably choose, asked of its own router with this
// layer's input.
//
// Contract: owner-thread only; no allocation after Make. Where the plan has room, routers that are
// stored as floats are multiplied as an int8 copy, a quarter or half of their bytes: a guess
// decides what is read ahead, never what is computed, so the exact weights are left to the routing
// itself. A layer's copy is made when it is first asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/arena.h"
#include "model/exec.h"
#include "model/model_map.h"
#include "runtime/weight_stream.h"

namespace sluice {

class RouterGuess {
 public:
  // What the copies take, with room for one quantised input; 0 where there is nothing to copy.
  static uint64_t CopyBytes(const ModelMap& map, uint32_t act_formats);

  static Result<RouterGuess> Make(const ModelMap* map, const MemoryPlan* plan, Ledger* ledger,
                                  const WeightStream* stream);
  // act: room for one input in the format of a router that is not copied.
  void Attach(Exec* exec, const ActBuffer& act);
  // The experts that `layer` would choose for the residual stream x [hidden], best first; none when
  // its weights are not in memory.
  void Ask(uint32_t layer, const float* x, std::vector<uint32_t>* experts);

 private:
  enum class State : uint8_t { kNotAsked, kCopied, kExact };

  RouterGuess() = default;
  static bool Copies(const LayerMap& layer);
  static Matrix CopyOf(const MatrixSpec& router, const uint8_t* data);
  void MakeCopy(uint32_t layer);

  const ModelMap* map_ = nullptr;
  const MemoryPlan* plan_ = nullptr;
  const WeightStream* stream_ = nullptr;
  Exec* exec_ = nullptr;
  Arena arena_;
  ActBuffer exact_act_, copy_act_;
  std::vector<State> state_;    // by layer
  std::vector<uint8_t*> copy_;  // by layer; null: none planned
  std::vector<float> h_, logits_, weight_;
};

}  // namespace sluice
