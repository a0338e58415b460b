// The names inside a prefix store's folder, for the store and for `sluice cache`.
//
// Contract: an entry lies in DIR/xx/NAME where xx are the first two digits of its name; whatever
// else lies there is not ours and is left alone, apart from temporaries (NAME.PID.COUNT.tmp).
// ListFolder never fails: what cannot be read is not there.
#pragma once

#include <functional>
#include <string>

#include "runtime/prefix_medium.h"

namespace sluice::prefix_folder {

constexpr uint32_t kShards = 256;

std::string ShardPath(const std::string& dir, uint32_t shard);
std::string EntryPath(const std::string& dir, const PrefixName& name);

// Every entry of one shard with its bytes and the time of its last use.
void ListShard(const std::string& dir, uint32_t shard,
               const std::function<void(const PrefixName&, uint64_t bytes, int64_t used_ns)>& each);
// For reading; nullopt when it is not there. Close empties the page cache behind.
Result<std::optional<PrefixExtent>> OpenEntry(const std::string& dir, const PrefixName& name);
void CloseEntry(PrefixExtent* extent);
// False when it was not there; kIo when it cannot be deleted.
Result<bool> DeleteEntry(const std::string& dir, const PrefixName& name);
// Removes the temporaries of writers that are gone.
void SweepTemporaries(const std::string& dir);

}  // namespace sluice::prefix_folder
