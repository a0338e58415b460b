// The medium of an ephemeral store: one file without a name, so that even a killed process leaves
// nothing. Entries are pieces of it; a deleted one gives its blocks back by a hole, and its place
// to the next entry of the same size (there are three sizes: a page, a checkpoint with and without
// a tail), which bounds the file even where holes are not supported.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <vector>

#include "io/nameless_file.h"
#include "runtime/prefix_format.h"
#include "runtime/prefix_medium.h"

namespace sluice {
namespace {

class PrefixScratch final : public PrefixMedium {
 public:
  PrefixScratch(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PrefixScratch() override { close(fd_); }

  Result<PrefixExtent> Create(const PrefixName&, uint64_t bytes) override {
    const uint64_t room = AlignUp(bytes, prefix_format::kAlignment);
    PrefixExtent extent{fd_, end_, bytes, path_};
    std::vector<uint64_t>& free = free_[room];
    if (!free.empty()) {
      extent.base = free.back();
      free.pop_back();
    } else {
      end_ += room;
    }
    if (fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(extent.base),
                  static_cast<off_t>(room)) != 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) {
      const Status full(Code::kIo,
                        fmt::format("cannot set {} aside: {}", FormatBytes(bytes), strerror(errno)),
                        path_);
      Free(extent);
      return full;
    }
    return extent;
  }

  Status Publish(const PrefixName& name, PrefixExtent* extent, int64_t used_ns) override {
    const off_t base = static_cast<off_t>(extent->base), bytes = static_cast<off_t>(extent->bytes);
    sync_file_range(fd_, base, bytes, SYNC_FILE_RANGE_WRITE);  // so that its cache can be dropped
    const auto old = entries_.find(name);
    if (old != entries_.end()) Free(old->second.extent);
    entries_[name] = {*extent, used_ns};
    extent->fd = -1;
    return {};
  }

  void Discard(PrefixExtent* extent) override {
    if (extent->fd >= 0) Free(*extent);
    extent->fd = -1;
  }

  Result<std::optional<PrefixExtent>> OpenEntry(const PrefixName& name) override {
    const auto at = entries_.find(name);
    if (at == entries_.end()) return std::optional<PrefixExtent>();
    return std::optional<PrefixExtent>(at->second.extent);
  }
  void CloseEntry(PrefixExtent* extent) override {
    posix_fadvise(fd_, static_cast<off_t>(extent->base), static_cast<off_t>(extent->bytes),
                  POSIX_FADV_DONTNEED);
    extent->fd = -1;
  }

  void Touch(const PrefixName& name, int64_t used_ns) override {
    const auto at = entries_.find(name);
    if (at != entries_.end()) at->second.used_ns = used_ns;
  }
  std::optional<int64_t> UsedNs(const PrefixName& name) override {
    const auto at = entries_.find(name);
    if (at == entries_.end()) return std::nullopt;
    return at->second.used_ns;
  }
  Status Delete(const PrefixName& name) override {
    const auto at = entries_.find(name);
    if (at == entries_.end()) return {};
    Free(at->second.extent);
    entries_.erase(at);
    return {};
  }
  bool List(PrefixIndex*) override { return false; }  // no one else can reach it

 private:
  struct Entry {
    PrefixExtent extent;
    int64_t used_ns = 0;
  };

  void Free(const PrefixExtent& extent) {
    const uint64_t room = AlignUp(extent.bytes, prefix_format::kAlignment);
    [[maybe_unused]] const int holes_are_optional =
        fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(extent.base),
                  static_cast<off_t>(room));
    free_[room].push_back(extent.base);
  }

  const int fd_;
  const std::string path_;
  uint64_t end_ = 0;
  std::map<uint64_t, std::vector<uint64_t>> free_;  // places by their bytes
  std::unordered_map<PrefixName, Entry, PrefixNameHash> entries_;
};

}  // namespace

Result<std::unique_ptr<PrefixMedium>> OpenPrefixScratch(const std::string& dir) {
  SLUICE_ASSIGN(const int fd, OpenNamelessFile(dir));
  return std::unique_ptr<PrefixMedium>(std::make_unique<PrefixScratch>(fd, dir));
}

}  // namespace sluice
