// The prefix store on flash as its keeper sees it: what it holds, whether it is whole, what to
// drop.
//
// Contract: works on a folder without opening a model, while other processes use it. An entry is
// one file, named by the hash of the text it belongs to. Errors are kIo, or kUsage for a name that
// is none. docs/prefix-store.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sluice/status.h"
#include "sluice/types.h"

namespace sluice {

struct PrefixCacheEntry {
  std::string name;
  std::string model, kv;    // empty when the entry cannot be read
  bool checkpoint = false;  // a recurrent state and a last, partial page; else 64 tokens of KV
  uint32_t tokens = 0;      // of the prefix; of a page: its own
  uint64_t bytes = 0;
  int64_t used_unix_s = 0;
  bool damaged = false;
};

// Where the store of a state folder lies.
std::string PrefixCacheDir(const std::string& state_dir);

// Newest first; empty when there is none.
Result<std::vector<PrefixCacheEntry>> ListPrefixCache(const std::string& state_dir);
// Reads everything, checks every checksum and deletes what is damaged; those are the result.
struct PrefixCacheVerdict {
  uint64_t entries = 0, bytes = 0;  // that were checked
  std::vector<PrefixCacheEntry> damaged;
};
Result<PrefixCacheVerdict> VerifyPrefixCache(const std::string& state_dir,
                                             const ProgressFn& progress);
// By name; all when names is empty. Returns how many went.
Result<uint64_t> RemoveFromPrefixCache(const std::string& state_dir,
                                       const std::vector<std::string>& names);

}  // namespace sluice
