#include "runtime/shared_probe.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "runtime/memory_probe.h"

namespace sluice {

Status MeasureTogether(const File& file, BandwidthProbeOptions disk, ByteSpan memory,
                       ThreadPool* pool, std::string_view isa, MachineRates* rates) {
  disk.seconds_max = kTogetherSeconds;
  std::atomic<bool> reading{true};
  Status status;
  std::thread reader([&] {
    const Result<BandwidthProbe> probe = MeasureReadBandwidth(file, disk);
    if (probe.ok()) {
      rates->disk_shared = probe->best_bytes_per_s;
    } else {
      status = probe.status();
    }
    reading.store(false);
  });
  const double memory_shared =
      MeanMemoryBandwidth(memory, pool, isa, [&] { return reading.load(); });
  reader.join();
  if (status.ok()) rates->memory_shared = memory_shared;
  return status;
}

double SecondsPerToken(const MachineRates& rates, double read_bytes, double touched_bytes) {
  if (rates.memory <= 0 || (read_bytes > 0 && rates.disk <= 0)) return 0;
  const double one_by_one =
      touched_bytes / rates.memory + (read_bytes > 0 ? read_bytes / rates.disk : 0);
  if (read_bytes <= 0 || rates.disk_shared <= 0 || rates.memory_shared <= 0) return one_by_one;
  const double both = std::min(read_bytes / rates.disk_shared, touched_bytes / rates.memory_shared);
  const double rest = (read_bytes - both * rates.disk_shared) / rates.disk +
                      (touched_bytes - both * rates.memory_shared) / rates.memory;
  return std::min(one_by_one, both + rest);
}

}  // namespace sluice
