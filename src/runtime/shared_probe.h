// How much do reading and computing slow each other down on this machine?
//
// Contract: a disk alone and memory alone say what a token needs at least if both overlap for
// nothing. Where they share a bus, or where a virtual machine's disk is served by the processors it
// computes on, they do not; MeasureTogether reads the file and the memory at the same time for
// kTogetherSeconds and SecondsPerToken makes the best of alone and together. Rates in bytes/s, 0 if
// unknown. The thread that reads the file lives for the call only.
#pragma once

#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "io/file.h"
#include "io/probe.h"

namespace sluice {

struct MachineRates {
  double disk = 0, memory = 0;                // each alone
  double disk_shared = 0, memory_shared = 0;  // at the same time
};

inline constexpr double kTogetherSeconds = 0.3;

// Fills in the shared rates. `disk.memory` is overwritten, `memory` only read.
Status MeasureTogether(const File& file, BandwidthProbeOptions disk, ByteSpan memory,
                       ThreadPool* pool, std::string_view isa, MachineRates* rates);

// The least time for reading `read_bytes` from the disk and `touched_bytes` from memory: together
// while both have work, then the rest alone; or one after the other, if that is quicker. 0 if
// a rate that is needed is unknown.
double SecondsPerToken(const MachineRates& rates, double read_bytes, double touched_bytes);

}  // namespace sluice
