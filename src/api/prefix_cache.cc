#include "sluice/prefix_cache.h"

#include <dirent.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "runtime/prefix_store.h"

namespace sluice {
namespace {

PrefixCacheEntry Public(PrefixEntry e) {
  return {std::move(e.name), std::move(e.model), std::move(e.kv_format),
          e.checkpoint,      e.length,           e.bytes,
          e.used_unix_s,     e.damaged};
}

// 0, or why the folder cannot be read. A folder that is not there has no names.
template <typename Each>
int ForEachName(const std::string& folder, const Each& each) {
  DIR* names = opendir(folder.c_str());
  if (names == nullptr) return errno == ENOENT ? 0 : errno;
  while (const dirent* name = readdir(names)) each(std::string(name->d_name));
  closedir(names);
  return 0;
}

Status Unreadable(const std::string& folder, int error) {
  return Status(Code::kIo, fmt::format("cannot read the folder: {}", std::strerror(error)), folder,
                error == EACCES ? "it belongs to another user" : "");
}

// What cannot be looked into must not pass for empty. A store that nobody has filled is no error.
Status CheckReadable(const std::string& dir) {
  std::vector<std::string> shards;
  const int error = ForEachName(dir, [&](const std::string& name) {
    const bool hex = name.find_first_not_of("0123456789abcdef") == name.npos;
    if (name.size() == 2 && hex) shards.push_back(dir + "/" + name);
  });
  if (error != 0) return Unreadable(dir, error);
  for (const std::string& shard : shards) {
    const int why = ForEachName(shard, [](const std::string&) {});
    if (why != 0 && why != ENOTDIR) return Unreadable(shard, why);  // a file there is not ours
  }
  return {};
}

}  // namespace

std::string PrefixCacheDir(const std::string& state_dir) { return state_dir + "/prefix"; }

Result<std::vector<PrefixCacheEntry>> ListPrefixCache(const std::string& state_dir) {
  const std::string dir = PrefixCacheDir(state_dir);
  SLUICE_TRY(CheckReadable(dir));
  SLUICE_ASSIGN(std::vector<PrefixEntry> found, ListPrefixStore(dir, /*verify=*/false));
  std::vector<PrefixCacheEntry> entries;
  for (PrefixEntry& e : found) entries.push_back(Public(std::move(e)));
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(b.used_unix_s, a.name) < std::tie(a.used_unix_s, b.name);
  });
  return entries;
}

Result<PrefixCacheVerdict> VerifyPrefixCache(const std::string& state_dir,
                                             const ProgressFn& progress) {
  const std::string dir = PrefixCacheDir(state_dir);
  SLUICE_TRY(CheckReadable(dir));
  SLUICE_ASSIGN(std::vector<PrefixEntry> found, ListPrefixStore(dir, /*verify=*/true, progress));
  PrefixCacheVerdict verdict;
  std::vector<std::string> names;
  for (PrefixEntry& e : found) {
    ++verdict.entries;
    verdict.bytes += e.bytes;
    if (!e.damaged) continue;
    names.push_back(e.name);
    verdict.damaged.push_back(Public(std::move(e)));
  }
  if (!names.empty()) SLUICE_TRY(RemoveFromPrefixStore(dir, names).status());
  return verdict;
}

Result<uint64_t> RemoveFromPrefixCache(const std::string& state_dir,
                                       const std::vector<std::string>& names) {
  const std::string dir = PrefixCacheDir(state_dir);
  SLUICE_TRY(CheckReadable(dir));
  return RemoveFromPrefixStore(dir, names);
}

}  // namespace sluice
