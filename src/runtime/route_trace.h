// Recorder of expert routing in the format of public traces (docs/expert-cache.md):
// turn,phase,step,layer,slot,expert,weight,residency,expert_bytes, one row per routed expert.
//
// Contract: owner-thread only. Record keeps a chunk's routes, Flush writes them token by token.
// Writes go to PATH.tmp and Close renames it, so that a file is whole or absent. A diagnostic:
// allocates as it goes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/tile.h"

namespace sluice {

class RouteRecorder {
 public:
  static Result<std::unique_ptr<RouteRecorder>> Open(const std::string& path, uint32_t layers,
                                                     uint32_t used, uint64_t expert_bytes);
  ~RouteRecorder();

  void Record(uint32_t layer, uint32_t rows, const MoeRows& moe);
  // The chunk is done: phase 0 prompt, 1 decode.
  void Flush(int phase);
  void NextTurn() { ++turn_; }
  Status Close();

 private:
  RouteRecorder() = default;
  void WriteRow(int phase, uint32_t row, uint32_t layer);

  std::string path_;
  std::FILE* file_ = nullptr;
  uint32_t layers_ = 0, used_ = 0, rows_ = 0, step_ = 0, turn_ = 0;
  uint64_t expert_bytes_ = 0;
  bool failed_ = false;
  std::vector<std::vector<uint16_t>> expert_;  // by layer: [rows][used]
  std::vector<std::vector<float>> weight_;
};

}  // namespace sluice
