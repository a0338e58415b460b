#include "runtime/kv_spill.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "io/nameless_file.h"

namespace sluice {
namespace {

// Runs of one layer that are read at once: half of a queue for two windows. A timeline whose pages
// lie in more pieces is read in rounds.
constexpr size_t kRunsMax = 64;

}  // namespace

uint64_t KvSpill::Stride(const KvLayout& kv, uint32_t layer) {
  const KvLayout::Layer& part = kv.layers[layer];
  return part.present && !part.sliding ? AlignUp(part.bytes, kAlignment) : 0;
}

Result<std::unique_ptr<KvSpill>> KvSpill::Make(const Context& context) {
  std::unique_ptr<KvSpill> spill(new KvSpill(context));
  const uint64_t pages = context.pool->pages();
  uint64_t base = 0;
  size_t present = 0;
  spill->parts_.resize(context.kv->layers.size());
  for (uint32_t i = 0; i < spill->parts_.size(); ++i) {
    Part& part = spill->parts_[i];
    part.stride = Stride(*context.kv, i);
    if (part.stride == 0) continue;
    part.in_page = context.kv->layers[i].offset;
    part.bytes = context.kv->layers[i].bytes;
    part.base = base;
    part.first_sum = present++ * pages;
    base += part.stride * pages;
  }
  spill->sums_.resize(present * pages);
  spill->touched_.resize(pages);
  spill->victims_.reserve(pages);
  spill->page_reads_.resize(std::min(kRunsMax, present));
  SLUICE_ASSIGN(spill->arena_,
                Arena::Make(context.ledger, "kv window", context.window_bytes, Touch::kNow));
  spill->windows_.resize(context.windows);
  for (size_t i = 0; i < spill->windows_.size(); ++i) {
    Window& window = spill->windows_[i];
    window.memory =
        spill->arena_.data() + AlignDown(context.window_bytes / context.windows * i, kAlignment);
    window.reads.resize(kRunsMax);
    window.first_index.resize(kRunsMax);
  }
  SLUICE_TRY(spill->OpenFile());
  return spill;
}

Status KvSpill::OpenFile() {
  name_ = fmt::format("KV spill file in {}", c_.dir);
  Result<int> fd = OpenNamelessFile(c_.dir);
  if (!fd.ok()) {
    return Status(fd.status().code(), fd.status().what(), name_,
                  "use --scratch-dir DIR, or --kv-memory with all of the context");
  }
  fd_ = *fd;
  const Part* last = nullptr;
  for (const Part& part : parts_) last = part.stride > 0 ? &part : last;
  // All of its size, and a first block to try direct reads on; the rest is a hole until it is used.
  memset(arena_.data(), 0, kAlignment);
  const uint64_t bytes = last->base + last->stride * c_.pool->pages();
  if (pwrite(fd_, arena_.data(), kAlignment, 0) != static_cast<ssize_t>(kAlignment) ||
      ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
    return Status(Code::kIo,
                  fmt::format("cannot set {} aside: {}", FormatBytes(bytes), strerror(errno)),
                  name_, "use --scratch-dir DIR on a disk with room");
  }
  const std::string path = fmt::format("/proc/self/fd/{}", fd_);
  SLUICE_ASSIGN(file_, File::Open(path));
  ReadQueueOptions options = c_.queue;
  if (file_->direct_fd() < 0 || file_->direct_alignment() > kAlignment) {
    step_down_ =
        fmt::format("{}: {}; going through the page cache (slower)", name_, file_->direct_fault());
    LogOnce(LogLevel::kNotice, "kv spill", step_down_);
    options.backend = IoBackend::kBuffered;
  } else {
    direct_fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  }
  SLUICE_ASSIGN(queue_, MakeReadQueue({file_.get()}, options));
  return {};
}

KvSpill::~KvSpill() {
  queue_.reset();
  if (fd_ >= 0) close(fd_);
  if (direct_fd_ >= 0) close(direct_fd_);
}

// The first `bytes` of the window to the file.
Status KvSpill::WriteAt(uint64_t offset, uint64_t bytes) {
  uint64_t done = 0;
  int fd = direct_fd_ >= 0 ? direct_fd_ : fd_;
  while (done < bytes) {
    const ssize_t n =
        pwrite(fd, arena_.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (n > 0) {
      done += static_cast<uint64_t>(n);
      if (done % kAlignment != 0) fd = fd_;  // the volume takes no more
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && fd == direct_fd_) {
      fd = fd_;
      continue;
    }
    return Status(Code::kIo,
                  fmt::format("cannot write {} bytes of KV: {}", bytes - done,
                              n < 0 ? strerror(errno) : "nothing was taken"),
                  name_,
                  "make room there, or use --scratch-dir, a larger --kv-memory or a smaller --ctx");
  }
  if (fd == fd_) {
    sync_file_range(
        fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
  }
  bytes_written_ += bytes;
  return {};
}

Status KvSpill::SaveLayer(const Part& part, std::span<const int32_t> pages) {
  const size_t most = arena_.size() / part.stride;
  for (size_t begin = 0; begin < pages.size();) {
    size_t n = 0;
    do {
      const int page = pages[begin + n];
      const uint8_t* bytes = c_.pool->data(page) + part.in_page;
      memcpy(arena_.data() + n * part.stride, bytes, part.bytes);
      sums_[part.first_sum + static_cast<size_t>(page)] = XXH3_64bits(bytes, part.bytes);
      ++n;
    } while (n < most && begin + n < pages.size() && pages[begin + n] == pages[begin + n - 1] + 1);
    SLUICE_TRY(
        WriteAt(part.base + static_cast<uint64_t>(pages[begin]) * part.stride, n * part.stride));
    begin += n;
  }
  return {};
}

Status KvSpill::Save(std::span<const int32_t> pages) {
  for (const Part& part : parts_) {
    if (part.stride > 0) SLUICE_TRY(SaveLayer(part, pages));
  }
  for (int32_t page : pages) c_.pool->SetSaved(page, true);
  return {};
}

Result<ByteSpan> KvSpill::Peek(int page) {
  const uint64_t start = NowNanos();
  uint64_t at = 0, done = 0;
  for (uint32_t first = 0; first < parts_.size();) {
    size_t n = 0;
    uint32_t layer = first;
    for (; layer < parts_.size() && n < page_reads_.size(); ++layer) {
      const Part& part = parts_[layer];
      if (part.stride == 0) continue;
      ReadRequest& read = page_reads_[n++];
      read = {};
      read.offset = part.base + static_cast<uint64_t>(page) * part.stride;
      read.length = part.stride;
      read.buffer = arena_.data() + at;
      read.tag = layer;
      at += part.stride;
      queue_->Submit(&read);
    }
    Status error;
    for (size_t i = 0; i < n; ++i) {
      ReadRequest& read = page_reads_[i];
      const auto which = static_cast<uint32_t>(read.tag);
      const Part& part = parts_[which];
      const Status status = queue_->Wait(&read);
      if (!error.ok()) continue;
      if (!status.ok()) {
        error = Wrong(status, which, page);
      } else if (XXH3_64bits(read.buffer, part.bytes) !=
                 sums_[part.first_sum + static_cast<size_t>(page)]) {
        error = Damaged(which, page);
      } else {
        memmove(arena_.data() + part.in_page, read.buffer,
                part.bytes);  // never behind what is done
        done += part.bytes;
      }
    }
    SLUICE_TRY(error);
    first = layer;
  }
  stall_ns_ += NowNanos() - start;
  return ByteSpan(arena_.data(), done);
}

Status KvSpill::Read(int page, uint8_t* out) {
  SLUICE_ASSIGN(const ByteSpan bytes, Peek(page));
  memcpy(out, bytes.data(), bytes.size());
  return {};
}

void KvSpill::Touch(std::span<const int32_t> pages) {
  ++clock_;
  for (int32_t page : pages) touched_[static_cast<size_t>(page)] = clock_;
}

int KvSpill::Idle() const {
  int oldest = -1;
  for (size_t page = 0; page < touched_.size(); ++page) {
    if (touched_[page] == clock_ || !c_.pool->resident(static_cast<int>(page))) continue;
    if (oldest < 0 || touched_[page] < touched_[static_cast<size_t>(oldest)])
      oldest = static_cast<int>(page);
  }
  return oldest;
}

void KvSpill::Begin(std::span<const int32_t> table, uint8_t** pointers, uint32_t first_pos,
                    uint32_t rows) {
  table_ = table;
  pointers_ = pointers;
  first_pos_ = first_pos;
  end_index_ = (first_pos + rows + kKvPageTokens - 1) / kKvPageTokens;
  bool any = false;
  for (uint32_t i = 0; i < end_index_; ++i) any = any || Away(i);
  if (!any) {
    table_ = {};
    return;
  }
  for (uint32_t layer = 0; layer < parts_.size(); ++layer) {
    if (parts_[layer].stride == 0) continue;
    windows_[0].layer = static_cast<int>(layer);
    windows_[0].next = FirstIndex(layer);
    Submit(&windows_[0], ReadPriority::kAhead);
    break;
  }
}

// Layers with a sliding window read no further back than their window.
uint32_t KvSpill::FirstIndex(uint32_t layer) const {
  const uint32_t window = c_.config->sliding_window;
  if (c_.config->kinds[layer] != LayerKind::kSliding || first_pos_ < window) return 0;
  return (first_pos_ - window + 1) / kKvPageTokens;
}

// From window->next on, as many runs as there are requests.
void KvSpill::Submit(Window* window, ReadPriority priority) {
  const Part& part = parts_[static_cast<size_t>(window->layer)];
  window->submitted = 0;
  uint32_t i = window->next;
  while (window->submitted < window->reads.size()) {
    while (i < end_index_ && !Away(i)) ++i;
    if (i >= end_index_) break;
    const uint32_t begin = i;
    ReadRequest& read = window->reads[window->submitted];
    read = {};
    read.priority = priority;
    read.offset = part.base + static_cast<uint64_t>(table_[i]) * part.stride;
    read.buffer = window->memory + window->slots * part.stride;
    do {
      read.length += part.stride;
      ++window->slots;
      ++i;
    } while (i < end_index_ && Away(i) && table_[i] == table_[i - 1] + 1);
    window->first_index[window->submitted++] = begin;
    queue_->Submit(&read);
  }
  window->next = i;
}

Status KvSpill::WaitAll(Window* window) {
  Status error;
  for (size_t i = 0; i < window->submitted; ++i) {
    const Status status = queue_->Wait(&window->reads[i]);
    if (!status.ok() && error.ok()) {
      error = Wrong(status, static_cast<uint32_t>(window->layer), table_[window->first_index[i]]);
    }
  }
  window->submitted = 0;
  return error;
}

Status KvSpill::Finish(Window* window) {
  const uint64_t start = NowNanos();
  Status status = WaitAll(window);
  while (status.ok() && window->next < end_index_) {
    Submit(window, ReadPriority::kDemand);
    status = WaitAll(window);
  }
  stall_ns_ += NowNanos() - start;
  SLUICE_TRY(status);
  return Verify(*window);
}

Status KvSpill::Verify(const Window& window) {
  const auto layer = static_cast<uint32_t>(window.layer);
  const Part& part = parts_[layer];
  uint32_t slot = 0;
  victims_.clear();  // here: the pages in the order of their slots
  for (uint32_t i = FirstIndex(layer); i < end_index_; ++i) {
    if (!Away(i)) continue;
    victims_.push_back(table_[i]);
    // A page that began layer->offset before its part.
    const auto address = reinterpret_cast<uintptr_t>(window.memory + slot++ * part.stride);
    pointers_[i] = reinterpret_cast<uint8_t*>(address - part.in_page);
  }
  if (slot == 0) return {};
  std::atomic<int> damaged = -1;
  const auto parts = static_cast<int>(
      std::min<uint32_t>(slot, static_cast<uint32_t>(c_.threads->active_threads()) * 4));
  c_.threads->Run(parts, [&](int which) {
    const uint64_t begin =
        uint64_t{slot} * static_cast<uint64_t>(which) / static_cast<uint64_t>(parts);
    const uint64_t end =
        uint64_t{slot} * static_cast<uint64_t>(which + 1) / static_cast<uint64_t>(parts);
    for (uint64_t i = begin; i < end; ++i) {
      const uint64_t sum = XXH3_64bits(window.memory + i * part.stride, part.bytes);
      if (sum != sums_[part.first_sum + static_cast<size_t>(victims_[i])]) damaged = victims_[i];
    }
  });
  return damaged < 0 ? Status() : Damaged(layer, damaged);
}

KvSpill::Window* KvSpill::Find(int layer) {
  for (Window& window : windows_) {
    if (window.layer == layer) return &window;
  }
  return nullptr;
}

// The next layer with attention, into a window that is not in use.
void KvSpill::ReadAhead(uint32_t after) {
  for (uint32_t layer = after + 1; layer < parts_.size(); ++layer) {
    if (parts_[layer].stride == 0) continue;
    Window* free = Find(-1);
    if (free == nullptr || Find(static_cast<int>(layer)) != nullptr) return;
    free->layer = static_cast<int>(layer);
    free->next = FirstIndex(layer);
    Submit(free, ReadPriority::kAhead);
    return;
  }
}

Status KvSpill::Enter(uint32_t layer) {
  if (table_.empty() || parts_[layer].stride == 0) return {};
  Window* window = Find(static_cast<int>(layer));
  if (window == nullptr) return Status(Code::kFailed, "a layer's KV was not asked for");
  SLUICE_TRY(Finish(window));
  ReadAhead(layer);
  return {};
}

void KvSpill::Leave(uint32_t layer) {
  if (table_.empty() || parts_[layer].stride == 0) return;
  Window* window = Find(static_cast<int>(layer));
  window->layer = -1;
  window->slots = 0;
  ReadAhead(layer);
}

void KvSpill::End() {
  for (Window& window : windows_) {
    if (window.layer >= 0) (void)WaitAll(&window);
    window.layer = -1;
    window.slots = 0;
  }
  table_ = {};
}

uint64_t KvSpill::away_bytes() const {
  uint64_t pages = 0;
  for (uint32_t page = 0; page < c_.pool->pages(); ++page) {
    const int id = static_cast<int>(page);
    pages += c_.pool->references(id) > 0 && !c_.pool->resident(id) ? 1 : 0;
  }
  return pages * c_.pool->page_bytes();
}

int KvSpill::TakeDamaged() { return std::exchange(damaged_, -1); }

Status KvSpill::Wrong(const Status& status, uint32_t layer, int page) const {
  return Status(Code::kIo, status.what(), fmt::format("{}, layer {}, page {}", name_, layer, page),
                status.hint());
}

Status KvSpill::Damaged(uint32_t layer, int page) {
  damaged_ = page;
  return Status(Code::kIo, "the KV that comes back is not what was written",
                fmt::format("{}, layer {}, page {}", name_, layer, page),
                "check the disk; use --scratch-dir for another one");
}

}  // namespace sluice
