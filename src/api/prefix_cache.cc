#include "sluice/prefix_cache.h"

#include <algorithm>
#include <tuple>

#include "runtime/prefix_store.h"

namespace sluice {
namespace {

PrefixCacheEntry Public(PrefixEntry e) {
  return {std::move(e.name), std::move(e.model), std::move(e.kv_format),
          e.checkpoint,      e.length,           e.bytes,
          e.used_unix_s,     e.damaged};
}

}  // namespace

std::string PrefixCacheDir(const std::string& state_dir) { return state_dir + "/prefix"; }

Result<std::vector<PrefixCacheEntry>> ListPrefixCache(const std::string& state_dir) {
  SLUICE_ASSIGN(std::vector<PrefixEntry> found,
                ListPrefixStore(PrefixCacheDir(state_dir), /*verify=*/false));
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
  return RemoveFromPrefixStore(PrefixCacheDir(state_dir), names);
}

}  // namespace sluice
