// PrefixStore: KV pages and checkpoints of prefixes, kept on flash between runs.
//
// Contract: one folder, mode 0700, shared by several processes at once. An entry is one file that
// is written whole under another name, flushed and renamed, so it is there complete or not at all;
// it carries its identity, tokens and checksums, and is believed only when all of them match. A
// damaged or foreign entry is as if absent: one notice, and it is deleted. The bytes of the folder
// stay below bytes_max by deleting the entries used longest ago, by whichever process (before a
// write, never the entry being written; the time of use is the file's). No call fails a request:
// writing returns a Status for the log and leaves nothing behind, reading says whether it got it.
// Has* is what the index knows, without a system call: Get* may still say no. Owned by one thread;
// outlives its writers. Memory: the index, at most limits::kPrefixEntriesMax entries of about 100
// bytes. docs/prefix-store.md has the format.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/prefix_key.h"
#include "sluice/types.h"

namespace sluice {

// A checkpoint being written: the recurrent state of a prefix and the rows of its last, partial
// page. Without Commit nothing remains.
class CheckpointWriter {
 public:
  virtual ~CheckpointWriter() = default;
  // state bytes [offset, offset + bytes.size()); every byte exactly once, in any order, in at most
  // 1,024 pieces (a piece that continues the one before counts as one with it).
  virtual Status WriteState(uint64_t offset, ByteSpan bytes) = 0;
  // tail_page: the whole page that holds the last tokens % 64 rows; empty when there are none.
  virtual Status Commit(ByteSpan tail_page) = 0;
};

class PrefixStore {
 public:
  struct Options {
    std::string dir;  // made when missing
    uint64_t bytes_max = 0;
    PrefixIdentity identity;
    // Nothing outlives the process: a file without a name in `dir` (even kill -9 leaves none).
    bool ephemeral = false;
  };
  static Result<std::unique_ptr<PrefixStore>> Open(Options options);
  virtual ~PrefixStore() = default;

  // A page of kKvPageTokens tokens; key: of the prefix that ends with it; parent: of the one
  // before.
  virtual bool HasPage(const PrefixKey& key) = 0;
  virtual Status PutPage(const PrefixKey& key, std::span<const TokenId> tokens, ByteSpan page) = 0;
  virtual bool GetPage(const PrefixKey& key, std::span<const TokenId> tokens,
                       MutableByteSpan page) = 0;

  // The end of a prefix of `length` tokens of which `tail` (fewer than 64) follow the last full
  // page.
  virtual bool HasCheckpoint(const PrefixKey& key) = 0;
  virtual Result<std::unique_ptr<CheckpointWriter>> BeginCheckpoint(
      const PrefixKey& key, uint32_t length, std::span<const TokenId> tail) = 0;
  // tail_page as in Commit, state: all of it. False leaves both undefined.
  virtual bool GetCheckpoint(const PrefixKey& key, uint32_t length, std::span<const TokenId> tail,
                             MutableByteSpan tail_page, MutableByteSpan state) = 0;

  // What other processes wrote or deleted since; cheap when nothing changed.
  virtual void Refresh() = 0;
  virtual uint64_t bytes() const = 0;
};

// For `sluice cache`: what a folder holds, without an identity to compare with.
struct PrefixEntry {
  std::string name, model, kv_format;
  bool checkpoint = false;
  uint32_t length = 0;  // tokens of the prefix; of a page: its own 64
  uint64_t bytes = 0;
  int64_t used_unix_s = 0;
  bool damaged = false;  // only when verified
};
// In no order; empty when there is no folder. Nothing is changed. verify reads everything and
// reports progress in bytes.
Result<std::vector<PrefixEntry>> ListPrefixStore(const std::string& dir, bool verify,
                                                 const ProgressFn& progress = {});
// Deletes entries by name; all of them, and what dead writers left, when names is empty. Returns
// how many went; kUsage, and nothing is deleted, when a name is not one of an entry.
Result<uint64_t> RemoveFromPrefixStore(const std::string& dir,
                                       const std::vector<std::string>& names);

}  // namespace sluice
