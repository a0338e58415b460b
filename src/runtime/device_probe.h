// What is known of the device a model lies on: measured once, kept in the state folder.
//
// Contract: the store is one small JSON file (devices.json), written whole and atomically; a
// missing, damaged or foreign one is as if nothing were known. A device is named by its number,
// size and file system, and by the way of reading. Several processes may write: the last one wins.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "io/file.h"
#include "io/read_queue.h"

namespace sluice {

struct DeviceProbe {
  int depth = 8;                  // reads in flight
  double disk_bytes_per_s = 0;    // at that depth
  double memory_bytes_per_s = 0;  // of the machine, with the threads of that run
};

// The device's name in the store; empty when the system does not tell.
std::string DeviceKey(const File& file, IoBackend backend);
std::optional<DeviceProbe> FindDeviceProbe(const std::string& state_dir, const std::string& key);
Status KeepDeviceProbe(const std::string& state_dir, const std::string& key,
                       const DeviceProbe& probe);

}  // namespace sluice
