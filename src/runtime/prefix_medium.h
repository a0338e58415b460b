// Where entries of the prefix store lie: a folder of named files, or one file without a name.
//
// Contract: a medium keeps bytes and recency and knows nothing of their meaning. An entry being
// written (Create) is invisible until Publish; Publish and Discard end it. Delete and Touch of what
// is gone do nothing. Owned by one thread; other processes may change a folder at any time, and an
// entry that is open stays whole even when it is deleted. Times are nanoseconds of the real-time
// clock.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/bytes.h"
#include "base/status.h"
#include "runtime/prefix_key.h"

namespace sluice {

struct PrefixName {
  PrefixKey key;
  bool checkpoint = false;
  bool operator==(const PrefixName&) const = default;
  // 32 hexadecimal digits and ".page" or ".state".
  std::string Text() const;
  static std::optional<PrefixName> Parse(std::string_view text);
};
struct PrefixNameHash {
  size_t operator()(const PrefixName& n) const { return n.key.low ^ (n.checkpoint ? 1 : 0); }
};

struct PrefixFileInfo {
  uint64_t bytes = 0;
  int64_t used_ns = 0;
  uint32_t seen = 0;  // by which listing
};
using PrefixIndex = std::unordered_map<PrefixName, PrefixFileInfo, PrefixNameHash>;

// The bytes of one entry: [base, base + bytes) of a descriptor that belongs to the medium.
struct PrefixExtent {
  int fd = -1;
  uint64_t base = 0, bytes = 0;
  std::string path;  // for messages; the temporary's while it is written
};

// Complete or an error that names the file and the offset.
Status ReadExtent(const PrefixExtent& from, uint64_t offset, MutableByteSpan out);
Status WriteExtent(const PrefixExtent& to, uint64_t offset, ByteSpan bytes);

class PrefixMedium {
 public:
  virtual ~PrefixMedium() = default;

  // Room for `bytes`, set aside where the file system can.
  virtual Result<PrefixExtent> Create(const PrefixName& name, uint64_t bytes) = 0;
  // Whole and durable under its name, or gone.
  virtual Status Publish(const PrefixName& name, PrefixExtent* extent, int64_t used_ns) = 0;
  virtual void Discard(PrefixExtent* extent) = 0;

  // nullopt: it is not there. An error: it is, but cannot be opened.
  virtual Result<std::optional<PrefixExtent>> OpenEntry(const PrefixName& name) = 0;
  virtual void CloseEntry(PrefixExtent* extent) = 0;
  virtual void Touch(const PrefixName& name, int64_t used_ns) = 0;
  // When it was last used, by any process; nullopt when it is gone.
  virtual std::optional<int64_t> UsedNs(const PrefixName& name) = 0;
  virtual Status Delete(const PrefixName& name) = 0;
  // Brings the index up to date with what other processes did. False when nothing changed.
  virtual bool List(PrefixIndex* index) = 0;
};

// Makes `dir` with mode 0700; removes what writers that died have left behind.
Result<std::unique_ptr<PrefixMedium>> OpenPrefixFolder(const std::string& dir);
// A file without a name in `dir`; each entry takes a piece of it.
Result<std::unique_ptr<PrefixMedium>> OpenPrefixScratch(const std::string& dir);

}  // namespace sluice
