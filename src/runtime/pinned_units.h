// PinnedUnits: the weights that stay, read in the background in the order in which a pass needs
// them.
//
// Contract: owner-thread only, like its queue. Add the units, then Begin: from there on the queue
// reads them while the owner does other things. Wait(unit) returns when its bytes are there, what
// it waits for overtaking the rest, or says which read failed; a read that failed before is tried
// again first. The memory outlives the queue. No allocation after Begin.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/read_queue.h"
#include "runtime/unit_layout.h"

namespace sluice {

class PinnedUnits {
 public:
  // Reads of this unit go to `data`.
  void Add(uint32_t unit, const UnitLayout& layout, uint8_t* data);
  void Begin(ReadQueue* queue);

  // Every unit has been waited for.
  bool complete() const { return waited_ == units_.size(); }
  bool Waited(uint32_t unit) const;
  // Whether the unit's bytes are there, without waiting; false for one that was never added.
  bool Ready(uint32_t unit) const;
  Status Wait(uint32_t unit);

  uint64_t bytes_done() const;
  std::vector<uint32_t> ids() const;
  // For a timeline: the requests of a unit.
  std::span<const ReadRequest> reads(uint32_t unit) const;

 private:
  struct Unit {
    uint32_t id = 0;
    size_t first = 0, n = 0;  // of reads_
    bool waited = false;
  };
  size_t IndexOf(uint32_t unit) const;  // units_.size() when it was never added
  void Urge(const Unit& unit);
  void Fill();

  ReadQueue* queue_ = nullptr;
  std::vector<Unit> units_;
  std::vector<ReadRequest> reads_;
  std::vector<uint8_t> submitted_;  // by read
  size_t waited_ = 0;
};

}  // namespace sluice
