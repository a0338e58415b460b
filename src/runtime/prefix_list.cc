// What `sluice cache` asks of a folder.
#include <sys/stat.h>

#include "base/clock.h"
#include "base/limits.h"
#include "runtime/prefix_folder.h"
#include "runtime/prefix_read.h"
#include "runtime/prefix_store.h"

namespace sluice {
namespace {

constexpr int64_t kNsPerS = 1'000'000'000;

struct Found {
  PrefixName name;
  uint64_t bytes = 0;
  int64_t used_ns = 0;
};

std::vector<Found> FindAll(const std::string& dir) {
  std::vector<Found> found;
  for (uint32_t shard = 0; shard < prefix_folder::kShards; ++shard) {
    prefix_folder::ListShard(dir, shard,
                             [&](const PrefixName& name, uint64_t bytes, int64_t used_ns) {
                               found.push_back({name, bytes, used_ns});
                             });
  }
  return found;
}

// False when it vanished meanwhile.
Result<bool> Describe(const std::string& dir, const PrefixName& name, bool verify,
                      PrefixEntry* entry) {
  Result<std::optional<PrefixExtent>> opened = prefix_folder::OpenEntry(dir, name);
  // What cannot be read may be whole: it is listed, but nobody can say that it was verified.
  if (!opened.ok()) return verify ? Result<bool>(opened.status()) : Result<bool>(true);
  if (!opened->has_value()) return false;
  PrefixExtent& extent = **opened;
  const Result<PrefixHead> head = ReadPrefixHead(extent);
  entry->damaged = verify;
  if (head.ok()) {
    entry->model = head->model;
    entry->kv_format = head->kv_format;
    entry->length = head->length;
    if (verify) {
      entry->damaged = head->key != name.key || head->checkpoint != name.checkpoint ||
                       !VerifyEntry(extent, *head).ok();
    }
  }
  prefix_folder::CloseEntry(&extent);
  return true;
}

}  // namespace

Result<std::vector<PrefixEntry>> ListPrefixStore(const std::string& dir, bool verify,
                                                 const ProgressFn& progress) {
  std::vector<PrefixEntry> entries;
  const double start = NowSeconds();
  const std::vector<Found> all = FindAll(dir);
  uint64_t total = 0, done = 0;
  for (const Found& found : all) total += found.bytes;
  for (const Found& found : all) {
    PrefixEntry entry;
    entry.name = found.name.Text();
    entry.checkpoint = found.name.checkpoint;
    entry.bytes = found.bytes;
    entry.used_unix_s = found.used_ns / kNsPerS;
    SLUICE_ASSIGN(const bool there, Describe(dir, found.name, verify, &entry));
    if (there) entries.push_back(std::move(entry));
    done += found.bytes;
    if (progress) progress({"verify", done, total, NowSeconds() - start});
  }
  return entries;
}

Result<uint64_t> RemoveFromPrefixStore(const std::string& dir,
                                       const std::vector<std::string>& names) {
  std::vector<PrefixName> doomed;
  for (const std::string& text : names) {
    const std::optional<PrefixName> name = PrefixName::Parse(text);
    if (!name)
      return Status(Code::kUsage, "'" + text + "' is no entry's name", dir,
                    "as `sluice cache ls` prints them");
    doomed.push_back(*name);
  }
  if (names.empty()) {
    prefix_folder::SweepTemporaries(dir);
    for (const Found& found : FindAll(dir)) doomed.push_back(found.name);
  }
  uint64_t count = 0;
  for (const PrefixName& name : doomed) {
    SLUICE_ASSIGN(const bool went, prefix_folder::DeleteEntry(dir, name));
    count += went ? 1 : 0;
  }
  return count;
}

}  // namespace sluice
