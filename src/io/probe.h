// How fast does this file's device deliver, at which depth?
//
// Contract: reads the file itself at pseudo-random aligned places that hold data (holes of a sparse
// file are passed over: they would be read at memory speed), with the backend the engine will use.
// Reads into the caller's `memory`, or else allocates ProbeBytes() for its own
// duration: then call it before the ledger is drawn up, or reserve ProbeBytes(). The buffers are of
// huge pages like those of the engine: a device reached in scattered 4 KiB pages gave 1.2 GB/s, in
// huge ones 2.9 (a virtio disk, 2026-11-30). Takes about seconds_max in all, whatever the device; a
// rate counts the bytes of completed requests only. Through the page cache the rate may be the
// memory's: `direct` says which it was.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/file.h"
#include "io/read_queue.h"

namespace sluice {

struct BandwidthSample {
  int depth = 0;
  double bytes_per_s = 0;
  uint64_t bytes = 0;
  double seconds = 0;
};

struct BandwidthProbe {
  std::string backend;
  bool direct = false;
  std::vector<BandwidthSample> samples;  // one per depth, in the order asked for
  // The smallest depth that reaches 97 % of the best rate: deeper queues only take the processor
  // away.
  int best_depth = 1;
  double best_bytes_per_s = 0;
};

struct BandwidthProbeOptions {
  IoBackend backend = IoBackend::kAuto;
  uint64_t request_bytes = kMiB;
  std::vector<int> depths = {1, 2, 4, 8};
  double seconds_max = 0.5;
  uint64_t own_bytes_max = 64 * kMiB;  // of buffers, if that is more than the depths need
  // Overwritten; aligned as reads must be. Depths that it cannot hold are measured with smaller
  // requests.
  MutableByteSpan memory;
};

uint64_t ProbeBytes(const BandwidthProbeOptions& options);
Result<BandwidthProbe> MeasureReadBandwidth(const File& file,
                                            const BandwidthProbeOptions& options = {});

}  // namespace sluice
