#include "base/proc.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace sluice::proc {
namespace {

constexpr size_t kTextBytesMax = 1 << 20;
constexpr int kCpuIdMax = 1 << 16;

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

template <typename T>
std::optional<T> ToNumber(std::string_view text) {
  text = Trim(text);
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Cuts the next piece up to `separator` off `rest`; false when nothing is left.
bool Next(std::string_view* rest, char separator, std::string_view* piece) {
  if (rest->empty()) return false;
  const size_t end = rest->find(separator);
  *piece = rest->substr(0, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + 1);
  return true;
}

bool ListHas(std::string_view list, std::string_view item) {
  std::string_view piece;
  while (Next(&list, ',', &piece)) {
    if (piece == item) return true;
  }
  return false;
}

// mountinfo writes blanks in paths as \040 and the like.
std::string UnescapeOctal(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '7';
    };
    if (text[i] == '\\' && digit(i + 1) && digit(i + 2) && digit(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

struct CgroupMount {
  std::string root, point;  // which part of the hierarchy is mounted, and where
};

// ID PARENT MAJ:MIN ROOT POINT OPTIONS [TAGS...] - TYPE SOURCE SUPEROPTIONS
std::optional<CgroupMount> FindMount(std::string_view mountinfo, std::string_view controller,
                                     bool v2) {
  std::string_view line;
  while (Next(&mountinfo, '\n', &line)) {
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    std::string_view tail = line.substr(dash + 3), type, source;
    if (!Next(&tail, ' ', &type) || !Next(&tail, ' ', &source)) continue;
    if (v2 ? type != "cgroup2" : (type != "cgroup" || !ListHas(Trim(tail), controller))) continue;
    std::string_view head = line.substr(0, dash), field, root, point;
    for (int skip = 0; skip < 3; ++skip) Next(&head, ' ', &field);
    if (!Next(&head, ' ', &root) || !Next(&head, ' ', &point)) continue;
    return CgroupMount{UnescapeOctal(root), UnescapeOctal(point)};
  }
  return std::nullopt;
}

// Appends the group's directory and its ancestors within the mount.
void AppendHierarchy(const CgroupMount& mount, std::string_view group, bool v2,
                     std::vector<CgroupDir>* dirs) {
  std::string below;  // the group relative to the mount point: "" or "/a/b"
  if (mount.root == "/") {
    below = group == "/" ? "" : std::string(group);
  } else if (group.substr(0, mount.root.size()) == mount.root &&
             (group.size() == mount.root.size() || group[mount.root.size()] == '/')) {
    below = std::string(group.substr(mount.root.size()));
  }
  if (below.find("/..") != std::string::npos) below.clear();
  while (true) {
    dirs->push_back({mount.point + below, v2});
    if (below.empty()) return;
    below.erase(below.rfind('/'));
  }
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const auto text = ReadText(path);
  return text ? ToNumber<uint64_t>(*text) : std::nullopt;
}

// What the group cannot give back at once: usage less the file pages on the inactive list.
uint64_t UsedBytes(const std::string& dir, bool v2) {
  const uint64_t usage =
      ReadNumber(dir + (v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  const auto stat = ReadText(dir + "/memory.stat");
  if (!stat) return usage;
  const auto cache = StatField(*stat, v2 ? "inactive_file" : "total_inactive_file");
  return usage - std::min(usage, cache.value_or(0));
}

std::vector<CgroupDir> OwnDirs(const std::string& root, std::string_view controller) {
  const auto groups = ReadText(root + "/proc/self/cgroup");
  const auto mounts = ReadText(root + "/proc/self/mountinfo");
  if (!groups || !mounts) return {};
  return CgroupDirs(*groups, *mounts, controller);
}

// {quota, period} in microseconds.
std::optional<std::pair<uint64_t, uint64_t>> ReadQuota(const std::string& dir, bool v2) {
  std::optional<uint64_t> quota, period;
  if (v2) {
    const auto text = ReadText(dir + "/cpu.max");
    if (!text) return std::nullopt;
    std::string_view rest = Trim(*text), first;
    Next(&rest, ' ', &first);
    quota = ToNumber<uint64_t>(first);  // "max" is no number
    period = ToNumber<uint64_t>(rest);
  } else {
    quota = ReadNumber(dir + "/cpu.cfs_quota_us");  // -1 is no unsigned number
    period = ReadNumber(dir + "/cpu.cfs_period_us");
  }
  if (!quota || !period || *period == 0) return std::nullopt;
  return std::pair{*quota, *period};
}

}  // namespace

std::optional<std::string> ReadText(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (text.size() < kTextBytesMax) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      close(fd);
      return std::nullopt;
    }
    if (n == 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return text;
}

std::optional<uint64_t> KibField(std::string_view text, std::string_view key) {
  std::string_view line;
  while (Next(&text, '\n', &line)) {
    if (line.substr(0, key.size()) != key || line.size() <= key.size() || line[key.size()] != ':')
      continue;
    std::string_view value = Trim(line.substr(key.size() + 1));
    if (value.size() < 3 || value.substr(value.size() - 2) != "kB") return std::nullopt;
    const auto kib = ToNumber<uint64_t>(value.substr(0, value.size() - 2));
    if (!kib || *kib > UINT64_MAX / 1024) return std::nullopt;
    return *kib * 1024;
  }
  return std::nullopt;
}

std::optional<uint64_t> StatField(std::string_view text, std::string_view key) {
  std::string_view line;
  while (Next(&text, '\n', &line)) {
    if (line.substr(0, key.size()) != key || line.size() <= key.size() || line[key.size()] != ' ')
      continue;
    return ToNumber<uint64_t>(line.substr(key.size() + 1));
  }
  return std::nullopt;
}

std::vector<int> CpuList(std::string_view text) {
  std::vector<int> cpus;
  std::string_view rest = Trim(text), piece;
  while (Next(&rest, ',', &piece)) {
    const size_t dash = piece.find('-');
    const auto first = ToNumber<int>(piece.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : ToNumber<int>(piece.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kCpuIdMax) return {};
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::optional<uint64_t> CgroupLimit(std::string_view text) {
  const auto limit = ToNumber<uint64_t>(text);
  constexpr uint64_t kNoLimit =
      (uint64_t{1} << 63) - (1 << 16);  // v1 rounds LONG_MAX down to a page
  if (!limit || *limit >= kNoLimit) return std::nullopt;
  return limit;
}

std::vector<CgroupDir> CgroupDirs(std::string_view self_cgroup, std::string_view mountinfo,
                                  std::string_view controller) {
  std::vector<CgroupDir> dirs;
  std::string_view line;
  while (Next(&self_cgroup, '\n', &line)) {  // ID:CONTROLLERS:PATH, "0::PATH" for v2
    std::string_view rest = line, id, controllers;
    if (!Next(&rest, ':', &id) || !Next(&rest, ':', &controllers) || rest.empty() || rest[0] != '/')
      continue;
    const bool v2 = controllers.empty();
    if (!v2 && !ListHas(controllers, controller)) continue;
    const auto mount = FindMount(mountinfo, controller, v2);
    if (mount) AppendHierarchy(*mount, rest, v2, &dirs);
  }
  return dirs;
}

MemoryStatus ReadMemoryStatus(const std::string& root) {
  MemoryStatus status;
  if (const auto meminfo = ReadText(root + "/proc/meminfo")) {
    status.total_bytes = KibField(*meminfo, "MemTotal").value_or(0);
    status.available_bytes = KibField(*meminfo, "MemAvailable").value_or(0);
  }
  for (const CgroupDir& dir : OwnDirs(root, "memory")) {
    const std::string path = root + dir.path;
    const auto text = ReadText(path + (dir.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto limit = text ? CgroupLimit(*text) : std::nullopt;
    if (!limit || (status.total_bytes != 0 && *limit >= status.total_bytes)) continue;
    if (status.cgroup_limit_bytes != 0 && *limit >= status.cgroup_limit_bytes) continue;
    status.cgroup_limit_bytes = *limit;
    status.cgroup_used_bytes = UsedBytes(path, dir.v2);
  }
  return status;
}

std::optional<int> CpuQuota(const std::string& root) {
  std::optional<int> cpus;
  for (const CgroupDir& dir : OwnDirs(root, "cpu")) {
    const auto quota = ReadQuota(root + dir.path, dir.v2);
    if (!quota) continue;
    const uint64_t whole = (quota->first + quota->second - 1) / quota->second;
    const int here = static_cast<int>(std::clamp<uint64_t>(whole, 1, kCpuIdMax));
    cpus = std::min(cpus.value_or(here), here);
  }
  return cpus;
}

std::vector<int> PerformanceCpus(const std::string& root, const std::vector<int>& allowed) {
  const std::string base = root + "/sys/devices/system/cpu/cpu";
  // cpu_capacity (arm) knows instructions per clock, so a little core is far below a big one: half
  // separates them and keeps the middle cluster. The clock alone (x86) differs less, and favoured
  // cores of one kind differ by a few percent: four fifths separates efficiency cores and keeps
  // those.
  struct Measure {
    const char* file;
    double share;
  };
  for (const Measure& measure :
       {Measure{"/cpu_capacity", 0.5}, Measure{"/cpufreq/cpuinfo_max_freq", 0.8}}) {
    std::vector<uint64_t> values;
    for (int cpu : allowed)
      values.push_back(ReadNumber(base + std::to_string(cpu) + measure.file).value_or(0));
    if (values.empty() || *std::min_element(values.begin(), values.end()) == 0) continue;
    const double least =
        measure.share * static_cast<double>(*std::max_element(values.begin(), values.end()));
    std::vector<int> fast;
    for (size_t i = 0; i < allowed.size(); ++i) {
      if (static_cast<double>(values[i]) >= least) fast.push_back(allowed[i]);
    }
    return fast;
  }
  return allowed;
}

CpuRoles ChooseCpuRoles(const std::string& root, const std::vector<int>& allowed,
                        const std::vector<int>& asked, int threads) {
  const std::vector<int> fast = PerformanceCpus(root, allowed);
  const auto has = [](const std::vector<int>& list, int cpu) {
    return std::find(list.begin(), list.end(), cpu) != list.end();
  };
  CpuRoles roles;
  for (const int cpu : allowed) {
    if (!has(fast, cpu) && !has(asked, cpu)) roles.io.push_back(cpu);
  }
  if (!asked.empty()) {
    roles.compute = asked;
    roles.one_each = true;
  } else if (!roles.io.empty() && static_cast<size_t>(threads) <= fast.size()) {
    roles.compute = fast;
  } else {
    roles.io.clear();  // more threads than fast processors: everything runs everywhere
  }
  return roles;
}

}  // namespace sluice::proc
