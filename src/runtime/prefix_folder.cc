#include "runtime/prefix_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bitset>

#include "base/limits.h"
#include "io/atomic_file.h"

namespace sluice {
namespace {

using namespace prefix_folder;

constexpr int64_t kNsPerS = 1'000'000'000;
constexpr int64_t kTemporaryAgeMaxS = 3600;  // where locks cannot tell whether its writer lives
// File times step with the kernel's tick (at most 10 ms): a folder that changed so recently may
// change again without a new time.
constexpr int64_t kUnsettledNs = 100'000'000;

// Several processes that write at once may pass the limit for a moment, never by so much.
constexpr size_t kIndexedMax = 2 * limits::kPrefixEntriesMax;

int64_t Nanos(const timespec& t) { return t.tv_sec * kNsPerS + t.tv_nsec; }
timespec Timespec(int64_t ns) { return {ns / kNsPerS, ns % kNsPerS}; }

int64_t WallNanos() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return Nanos(now);
}

uint32_t ShardOf(const PrefixName& name) { return static_cast<uint32_t>(name.key.high >> 56); }

Status Failed(const char* what, const std::string& path) {
  return Status(Code::kIo, fmt::format("{}: {}", what, strerror(errno)), path);
}

bool IsAbsent(int error) { return error == ENOENT || error == ENOTDIR; }

void FlushFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // some file systems have no such thing
  close(fd);
}

template <typename Each>
void ForEachName(const std::string& folder, const Each& each) {
  DIR* names = opendir(folder.c_str());
  if (names == nullptr) return;
  while (const dirent* name = readdir(names)) each(dirfd(names), name->d_name);
  closedir(names);
}

// A writer holds a lock on its temporary for as long as it lives.
bool WriterIsGone(int folder, const char* name) {
  struct stat info {};
  if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
    return false;
  if (WallNanos() - Nanos(info.st_mtim) > kTemporaryAgeMaxS * kNsPerS) return true;
  const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  const bool gone = flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  return gone;
}

// NAME.PID.COUNT.tmp with the name of an entry.
bool IsTemporary(std::string_view name) {
  const size_t dot = name.find('.'), end = dot == name.npos ? dot : name.find('.', dot + 1);
  return name.ends_with(".tmp") && end != name.npos && PrefixName::Parse(name.substr(0, end));
}

class PrefixFolder final : public PrefixMedium {
 public:
  explicit PrefixFolder(std::string dir) : dir_(std::move(dir)) { listed_ns_.fill(-1); }

  Result<PrefixExtent> Create(const PrefixName& name, uint64_t bytes) override {
    static std::atomic<uint32_t> count{0};  // two stores of one process must not share a name
    const std::string shard = ShardPath(dir_, ShardOf(name));
    if (mkdir(shard.c_str(), 0700) == 0) {
      FlushFolder(dir_);
    } else if (errno != EEXIST) {
      return Failed("cannot make the folder", shard);
    }
    PrefixExtent extent;
    extent.bytes = bytes;
    extent.path = fmt::format("{}.{}.{}.tmp", EntryPath(dir_, name), getpid(), count++);
    extent.fd = open(extent.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (extent.fd < 0) return Failed("cannot create", extent.path);
    flock(extent.fd, LOCK_EX | LOCK_NB);  // where locks do not exist, age decides
    const off_t size = static_cast<off_t>(bytes);
    if (fallocate(extent.fd, 0, 0, size) != 0 &&
        ((errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) ||
         ftruncate(extent.fd, size) != 0)) {
      const Status full = Failed("cannot set its bytes aside", extent.path);
      Discard(&extent);
      return full;
    }
    return extent;
  }

  Status Publish(const PrefixName& name, PrefixExtent* extent, int64_t used_ns) override {
    const timespec times[2] = {Timespec(used_ns), Timespec(used_ns)};
    Status status;
    if (futimens(extent->fd, times) != 0) status = Failed("cannot set the time of", extent->path);
    if (status.ok() && fsync(extent->fd) != 0) status = Failed("cannot flush", extent->path);
    posix_fadvise(extent->fd, 0, 0, POSIX_FADV_DONTNEED);  // a cgroup counts the cache, too
    const std::string path = EntryPath(dir_, name);
    if (status.ok() && rename(extent->path.c_str(), path.c_str()) != 0)
      status = Failed("cannot rename to", path);
    if (!status.ok()) {
      Discard(extent);
      return status;
    }
    close(extent->fd);
    extent->fd = -1;
    FlushFolder(ShardPath(dir_, ShardOf(name)));
    return {};
  }

  void Discard(PrefixExtent* extent) override {
    if (extent->fd < 0) return;
    unlink(extent->path.c_str());
    close(extent->fd);
    extent->fd = -1;
  }

  Result<std::optional<PrefixExtent>> OpenEntry(const PrefixName& name) override {
    return prefix_folder::OpenEntry(dir_, name);
  }
  void CloseEntry(PrefixExtent* extent) override { prefix_folder::CloseEntry(extent); }

  void Touch(const PrefixName& name, int64_t used_ns) override {
    const timespec times[2] = {Timespec(used_ns), Timespec(used_ns)};
    utimensat(AT_FDCWD, EntryPath(dir_, name).c_str(), times, AT_SYMLINK_NOFOLLOW);
  }
  std::optional<int64_t> UsedNs(const PrefixName& name) override {
    struct stat info {};
    if (lstat(EntryPath(dir_, name).c_str(), &info) != 0) return std::nullopt;
    return Nanos(info.st_mtim);
  }
  Status Delete(const PrefixName& name) override { return DeleteEntry(dir_, name).status(); }

  bool List(PrefixIndex* index) override {
    std::bitset<kShards> changed;
    ++listing_;
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      struct stat info {};
      const bool there = stat(ShardPath(dir_, shard).c_str(), &info) == 0;
      const int64_t changed_ns = there ? Nanos(info.st_mtim) : 0;
      if (changed_ns == listed_ns_[shard]) continue;
      changed.set(shard);
      listed_ns_[shard] = WallNanos() - changed_ns > kUnsettledNs ? changed_ns : -1;
      ListShard(dir_, shard, [&](const PrefixName& name, uint64_t bytes, int64_t used_ns) {
        if (index->size() >= kIndexedMax && !index->contains(name)) {
          // A folder that no store of ours has filled; what is not counted cannot be bounded.
          if (DeleteEntry(dir_, name).ok()) return;
        }
        (*index)[name] = {bytes, used_ns, listing_};
      });
    }
    if (changed.none()) return false;
    std::erase_if(*index, [&](const auto& entry) {
      return changed[ShardOf(entry.first)] && entry.second.seen != listing_;
    });
    return true;
  }

 private:
  const std::string dir_;
  std::array<int64_t, kShards> listed_ns_;  // the shard's time when it was listed; -1: list again
  uint32_t listing_ = 0;
};

}  // namespace

namespace prefix_folder {

std::string ShardPath(const std::string& dir, uint32_t shard) {
  return fmt::format("{}/{:02x}", dir, shard);
}

std::string EntryPath(const std::string& dir, const PrefixName& name) {
  return ShardPath(dir, ShardOf(name)) + "/" + name.Text();
}

void ListShard(
    const std::string& dir, uint32_t shard,
    const std::function<void(const PrefixName&, uint64_t bytes, int64_t used_ns)>& each) {
  ForEachName(ShardPath(dir, shard), [&](int folder, const char* text) {
    const std::optional<PrefixName> name = PrefixName::Parse(text);
    struct stat info {};
    if (!name || ShardOf(*name) != shard ||
        fstatat(folder, text, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) {
      return;
    }
    each(*name, static_cast<uint64_t>(info.st_size), Nanos(info.st_mtim));
  });
}

Result<std::optional<PrefixExtent>> OpenEntry(const std::string& dir, const PrefixName& name) {
  PrefixExtent extent;
  extent.path = EntryPath(dir, name);
  extent.fd = open(extent.path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (extent.fd < 0 && IsAbsent(errno)) return std::optional<PrefixExtent>();
  if (extent.fd < 0) return Failed("cannot open", extent.path);
  struct stat info {};
  if (fstat(extent.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    CloseEntry(&extent);
    return Status(Code::kIo, "not a regular file", extent.path);
  }
  extent.bytes = static_cast<uint64_t>(info.st_size);
  posix_fadvise(extent.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  return std::optional<PrefixExtent>(std::move(extent));
}

void CloseEntry(PrefixExtent* extent) {
  if (extent->fd < 0) return;
  posix_fadvise(extent->fd, 0, 0, POSIX_FADV_DONTNEED);
  close(extent->fd);
  extent->fd = -1;
}

Result<bool> DeleteEntry(const std::string& dir, const PrefixName& name) {
  const std::string path = EntryPath(dir, name);
  if (unlink(path.c_str()) == 0) return true;
  if (IsAbsent(errno)) return false;
  return Failed("cannot delete", path);
}

void SweepTemporaries(const std::string& dir) {
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    ForEachName(ShardPath(dir, shard), [](int folder, const char* name) {
      if (IsTemporary(name) && WriterIsGone(folder, name)) unlinkat(folder, name, 0);
    });
  }
}

}  // namespace prefix_folder

Result<std::unique_ptr<PrefixMedium>> OpenPrefixFolder(const std::string& dir) {
  SLUICE_TRY(MakeFolders(dir));
  struct stat info {};
  // What was said in private lies here; an older, wider folder is narrowed.
  if (stat(dir.c_str(), &info) == 0 && (info.st_mode & 077) != 0 && chmod(dir.c_str(), 0700) != 0)
    return Failed("others may read the folder, and its mode cannot be changed", dir);
  SweepTemporaries(dir);
  return std::unique_ptr<PrefixMedium>(std::make_unique<PrefixFolder>(dir));
}

}  // namespace sluice
