// ExpertReader: brings the bytes of one expert from the file into a slot, straight from an
// unmodified file.
//
// Contract: owner-thread only. An expert is up to three runs of bytes (gate, up, down) of any
// alignment: each is read with its enclosing aligned range, so a slot's parts start at the run's
// offset within the page; nothing is copied. Layouts that kernels cannot read in place (Hugging
// Face gpt-oss) are read to staging and converted into the slot when complete; one such flight at a
// time. A flight is finished by Finish, which reports the first failed read naming layer, expert,
// file and offset. No allocation after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "io/read_queue.h"
#include "memory/arena.h"
#include "model/experts.h"
#include "model/model_map.h"
#include "runtime/memory_plan.h"

namespace sluice {

class ExpertReader {
 public:
  static constexpr uint32_t kFlightsMax = 64;
  static constexpr uint32_t kReadsPerFlight =
      6;  // three parts, and their scales where those lie apart

  struct Flight {
    uint32_t layer = 0, expert = 0;
    uint8_t* data = nullptr;  // the slot
    bool active = false, ahead = false;
    uint32_t reads = 0;
    ReadRequest read[kReadsPerFlight];
  };

  ExpertReader(const ModelMap* map, const MemoryPlan* plan, uint64_t alignment, uint8_t* staging);
  void Attach(ReadQueue* queue) { queue_ = queue; }

  // Starts reading (layer, expert) into data; nullptr when no flight (or no staging) is free.
  Flight* Start(uint32_t layer, uint32_t expert, uint8_t* data, ReadPriority priority);
  bool Complete(const Flight& flight) const;  // every read is done, well or not
  Status Wait(Flight* flight);                // until complete
  // Ends a complete flight: converts if need be, frees it, and returns the first error.
  Status Finish(Flight* flight);
  // A read-ahead that turned out to be wanted now overtakes the others.
  void Promote(Flight* flight);
  // Takes back what the kernel has not seen; true when the whole flight is gone (it is freed then).
  bool Cancel(Flight* flight);

  // The matrices of an expert whose bytes are complete at data.
  ExpertWeights View(uint32_t layer, uint32_t expert, const uint8_t* data) const;
  uint64_t ExpertBytes(uint32_t layer) const;  // payload
  uint32_t active() const { return active_; }

 private:
  struct Place {
    uint64_t offset = 0, length = 0;  // aligned file range
    uint64_t region = 0, skip = 0;    // in the slot, and of the payload within the region
  };
  Place PlaceOf(const ExpertPart& part, uint32_t expert, uint64_t region) const;
  void AddRead(Flight* flight, const ExpertPart& part, uint32_t expert, uint8_t* base,
               uint64_t region, ReadPriority priority);
  void Convert(const Flight& flight) const;
  const ExpertSpec& Spec(uint32_t layer) const { return *map_->layers[layer].experts; }
  bool Staged(const ExpertSpec& spec) const {
    return spec.layout == ExpertLayout::kTransposed || spec.layout == ExpertLayout::kHfMxfp4;
  }

  const ModelMap* map_;
  const ExpertPlan* sizes_;
  uint64_t alignment_;
  uint8_t* staging_;
  bool staging_busy_ = false;
  ReadQueue* queue_ = nullptr;
  std::vector<Flight> flights_;
  uint32_t active_ = 0;
};

}  // namespace sluice
