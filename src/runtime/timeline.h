// Timeline: what the engine did when, as a Chrome trace (chrome://tracing, Perfetto).
//
// Contract: owner-thread only; three tracks: compute (layers, head), reads (demand and read-ahead,
// overlapping ones on their own rows), stalls. A diagnostic: it allocates as it goes, up to
// kEventsMax events (then it says so once and stops). Write goes to PATH.tmp and is renamed, so
// that a file is whole or absent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace sluice {

class Timeline {
 public:
  static constexpr size_t kEventsMax = 2'000'000;
  enum class Track : uint8_t { kCompute, kStall, kDemandRead, kAheadRead };

  explicit Timeline(std::string path) : path_(std::move(path)) {}

  // index: a layer, or -1; detail: an expert, or -1. Times from NowNanos().
  void Add(Track track, int index, int detail, uint64_t begin_ns, uint64_t end_ns);
  Status Write() const;

 private:
  struct Event {
    uint64_t begin_ns, end_ns;
    int index, detail;
    Track track;
  };
  std::string path_;
  std::vector<Event> events_;
};

}  // namespace sluice
