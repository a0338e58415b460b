#include "runtime/device_probe.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "io/atomic_file.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kStoreVersion = 1;
constexpr uint64_t kStoreBytesMax = 256 * kKiB;
constexpr int kDepthMax = 64;

std::string StorePath(const std::string& state_dir) { return state_dir + "/devices.json"; }

json ReadStore(const std::string& state_dir) {
  const Result<std::string> text = ReadSmallFile(StorePath(state_dir), kStoreBytesMax);
  json store = text.ok() ? json::parse(*text, nullptr, /*allow_exceptions=*/false) : json();
  const bool good = store.is_object() && store.contains("version") &&
                    store["version"] == kStoreVersion && store.contains("devices") &&
                    store["devices"].is_object();
  if (!good) store = {{"version", kStoreVersion}, {"devices", json::object()}};
  return store;
}

double Number(const json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_number()) return 0;
  const double value = at->get<double>();
  return std::isfinite(value) && value > 0 ? value : 0;
}

const char* NameOf(IoBackend backend) {
  switch (backend) {
    case IoBackend::kUring:
      return "uring";
    case IoBackend::kPread:
      return "pread";
    case IoBackend::kBuffered:
      return "buffered";
    case IoBackend::kAuto:
      break;
  }
  return "auto";
}

}  // namespace

std::string DeviceKey(const File& file, IoBackend backend) {
  struct stat info {};
  struct statfs system {};
  if (fstat(file.fd(), &info) != 0 || fstatfs(file.fd(), &system) != 0) return {};
  return fmt::format("{}:{} {:x} {} {}", major(info.st_dev), minor(info.st_dev),
                     static_cast<uint64_t>(system.f_type),
                     static_cast<uint64_t>(system.f_blocks) * static_cast<uint64_t>(system.f_bsize),
                     NameOf(backend));
}

std::optional<DeviceProbe> FindDeviceProbe(const std::string& state_dir, const std::string& key) {
  if (state_dir.empty() || key.empty()) return std::nullopt;
  const json store = ReadStore(state_dir);
  const auto at = store["devices"].find(key);
  if (at == store["devices"].end() || !at->is_object()) return std::nullopt;
  DeviceProbe probe;
  const double depth = Number(*at, "depth");
  probe.disk_bytes_per_s = Number(*at, "disk_bytes_per_s");
  probe.memory_bytes_per_s = Number(*at, "memory_bytes_per_s");
  if (depth < 1 || depth > kDepthMax || probe.disk_bytes_per_s <= 0) return std::nullopt;
  probe.depth = static_cast<int>(depth);
  return probe;
}

Status KeepDeviceProbe(const std::string& state_dir, const std::string& key,
                       const DeviceProbe& probe) {
  if (state_dir.empty() || key.empty()) return {};
  SLUICE_TRY(MakeFolders(state_dir));
  json store = ReadStore(state_dir);
  store["devices"][key] = {{"depth", probe.depth},
                           {"disk_bytes_per_s", std::round(probe.disk_bytes_per_s)},
                           {"memory_bytes_per_s", std::round(probe.memory_bytes_per_s)}};
  const std::string text = store.dump(1) + "\n";
  return WriteFileAtomically(StorePath(state_dir),
                             {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace sluice
