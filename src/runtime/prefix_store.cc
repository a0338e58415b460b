#include "runtime/prefix_store.h"

#include <fmt/format.h>
#include <time.h>
#include <xxhash.h>

#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "memory/kv_pages.h"
#include "runtime/prefix_entry.h"
#include "runtime/prefix_medium.h"
#include "runtime/prefix_read.h"

namespace sluice {
namespace {

using prefix_format::Section;

class Store final : public PrefixStore {
 public:
  Store(Options options, std::unique_ptr<PrefixMedium> medium)
      : options_(std::move(options)),
        medium_(std::move(medium)),
        root_(RootKey(options_.identity)) {}

  bool HasPage(const PrefixKey& key) override { return index_.contains({key, false}); }
  bool HasCheckpoint(const PrefixKey& key) override { return index_.contains({key, true}); }
  Status PutPage(const PrefixKey& key, std::span<const TokenId> tokens, ByteSpan page) override;
  bool GetPage(const PrefixKey& key, std::span<const TokenId> tokens,
               MutableByteSpan page) override;
  Result<std::unique_ptr<CheckpointWriter>> BeginCheckpoint(const PrefixKey& key, uint32_t length,
                                                            std::span<const TokenId> tail) override;
  bool GetCheckpoint(const PrefixKey& key, uint32_t length, std::span<const TokenId> tail,
                     MutableByteSpan tail_page, MutableByteSpan state) override;
  void Refresh() override;
  uint64_t bytes() const override { return bytes_; }

  // For the writers: a place for an entry of head.file_bytes(), and its end.
  Result<PrefixExtent> Create(const PrefixHead& head);
  Status Publish(const PrefixHead& head, PrefixExtent* extent);
  void Discard(PrefixExtent* extent);
  // Deletes what was used longest ago until there is room for this much more.
  Status MakeRoom(uint64_t bytes_more, uint64_t entries_more, const PrefixName* keep);

 private:
  PrefixHead Head(bool checkpoint, const PrefixKey& key, uint32_t length,
                  std::span<const TokenId> tokens) const;
  bool Get(const PrefixHead& want, MutableByteSpan state, MutableByteSpan page);
  PrefixIndex::iterator LeastRecent(const PrefixName* keep);
  void Forget(const PrefixName& name);
  int64_t NextUsedNs();

  const Options options_;
  const std::unique_ptr<PrefixMedium> medium_;
  const PrefixKey root_;
  PrefixIndex index_;
  uint64_t bytes_ = 0;          // of the index
  uint64_t writing_bytes_ = 0;  // of entries not yet published
  uint64_t writing_ = 0;
  int64_t used_ns_ = 0;
};

class Writer final : public CheckpointWriter {
 public:
  Writer(Store* store, PrefixHead head, PrefixExtent extent)
      : store_(store), head_(std::move(head)), extent_(std::move(extent)) {}
  ~Writer() override { store_->Discard(&extent_); }

  Status WriteState(uint64_t offset, ByteSpan bytes) override;
  Status Commit(ByteSpan tail_page) override;

 private:
  struct Piece {
    uint64_t offset;
    Section section;
  };
  void CloseSection();

  Store* const store_;
  PrefixHead head_;
  PrefixExtent extent_;
  // Pieces in the order they came; one that continues the last one extends it.
  std::vector<Piece> pieces_;
  StreamHash hash_;
  bool open_ = false;  // hash_ runs over the last piece
};

Status Writer::WriteState(uint64_t offset, ByteSpan bytes) {
  if (extent_.fd < 0) return Status(Code::kFailed, "the checkpoint is closed", extent_.path);
  if (bytes.empty()) return {};
  if (offset > head_.state_bytes || bytes.size() > head_.state_bytes - offset) {
    return Status(Code::kFailed,
                  fmt::format("state bytes {} + {} of {}", offset, bytes.size(), head_.state_bytes),
                  extent_.path);
  }
  SLUICE_TRY(WriteExtent(extent_, head_.state_offset() + offset, bytes));
  StartWriteback(extent_, head_.state_offset() + offset, bytes.size());
  if (!open_ || pieces_.back().offset + pieces_.back().section.bytes != offset) {
    CloseSection();
    if (pieces_.size() == prefix_format::kSectionsMax) {
      return Status(Code::kFailed,
                    fmt::format("a state in more than {} pieces", prefix_format::kSectionsMax),
                    extent_.path);
    }
    pieces_.push_back({offset, {}});
    hash_.Reset();
    open_ = true;
  }
  hash_.Update(bytes);
  pieces_.back().section.bytes += bytes.size();
  return {};
}

void Writer::CloseSection() {
  if (!open_) return;
  const PrefixKey digest = hash_.Digest();
  pieces_.back().section.hash_high = digest.high;
  pieces_.back().section.hash_low = digest.low;
  open_ = false;
}

Status Writer::Commit(ByteSpan tail_page) {
  if (extent_.fd < 0) return Status(Code::kFailed, "the checkpoint is closed", extent_.path);
  if (tail_page.size() != head_.page_bytes) {
    return Status(
        Code::kFailed,
        fmt::format("a tail page of {} bytes, want {}", tail_page.size(), head_.page_bytes),
        extent_.path);
  }
  CloseSection();
  std::sort(pieces_.begin(), pieces_.end(),
            [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  uint64_t end = 0;
  for (const Piece& piece : pieces_) {
    if (piece.offset != end) break;
    end += piece.section.bytes;
    head_.sections.push_back(piece.section);
  }
  if (end != head_.state_bytes || head_.sections.size() != pieces_.size()) {
    return Status(Code::kFailed, fmt::format("the state is not whole at byte {}", end),
                  extent_.path);
  }
  if (head_.page_bytes > 0) {
    const std::vector<uint8_t> gap(head_.page_offset() - head_.state_end());
    SLUICE_TRY(WriteExtent(extent_, head_.state_end(), gap));
    SLUICE_TRY(WriteExtent(extent_, head_.page_offset(), tail_page));
    head_.page_hash = HashBytes(tail_page);
  }
  SLUICE_TRY(WriteExtent(extent_, 0, EncodePrefixHead(head_)));
  return store_->Publish(head_, &extent_);
}

Status Store::PutPage(const PrefixKey& key, std::span<const TokenId> tokens, ByteSpan page) {
  if (tokens.size() != kKvPageTokens || page.size() != options_.identity.page_bytes) {
    return Status(Code::kFailed,
                  fmt::format("a page of {} tokens and {} bytes, want {} and {}", tokens.size(),
                              page.size(), kKvPageTokens, options_.identity.page_bytes));
  }
  const PrefixName name{key, false};
  const auto known = index_.find(name);
  if (known != index_.end() && medium_->UsedNs(name)) {
    known->second.used_ns = NextUsedNs();
    medium_->Touch(name, known->second.used_ns);
    return {};
  }
  PrefixHead head = Head(false, key, kKvPageTokens, tokens);
  head.page_bytes = page.size();
  head.page_hash = HashBytes(page);
  SLUICE_ASSIGN(PrefixExtent extent, Create(head));
  Status status = WriteExtent(extent, 0, EncodePrefixHead(head));
  if (status.ok()) status = WriteExtent(extent, head.page_offset(), page);
  if (status.ok()) return Publish(head, &extent);
  Discard(&extent);
  return status;
}

bool Store::GetPage(const PrefixKey& key, std::span<const TokenId> tokens, MutableByteSpan page) {
  PrefixHead want = Head(false, key, kKvPageTokens, tokens);
  want.page_bytes = page.size();
  return Get(want, {}, page);
}

Result<std::unique_ptr<CheckpointWriter>> Store::BeginCheckpoint(const PrefixKey& key,
                                                                 uint32_t length,
                                                                 std::span<const TokenId> tail) {
  if (tail.size() != length % kKvPageTokens) {
    return Status(Code::kFailed,
                  fmt::format("a tail of {} tokens at length {}", tail.size(), length));
  }
  PrefixHead head = Head(true, key, length, tail);
  head.state_bytes = options_.identity.state_bytes;
  head.page_bytes = tail.empty() ? 0 : options_.identity.page_bytes;
  head.head_bytes = PrefixHeadBytes(head);
  SLUICE_ASSIGN(PrefixExtent extent, Create(head));
  return std::unique_ptr<CheckpointWriter>(
      std::make_unique<Writer>(this, std::move(head), std::move(extent)));
}

bool Store::GetCheckpoint(const PrefixKey& key, uint32_t length, std::span<const TokenId> tail,
                          MutableByteSpan tail_page, MutableByteSpan state) {
  PrefixHead want = Head(true, key, length, tail);
  want.state_bytes = state.size();
  want.page_bytes = tail_page.size();
  return Get(want, state, tail_page);
}

void Store::Refresh() {
  if (!medium_->List(&index_)) return;
  bytes_ = 0;
  for (const auto& [name, info] : index_) bytes_ += info.bytes;
}

PrefixHead Store::Head(bool checkpoint, const PrefixKey& key, uint32_t length,
                       std::span<const TokenId> tokens) const {
  PrefixHead head;
  head.checkpoint = checkpoint;
  head.identity = root_;
  head.key = key;
  const auto cut = [](const std::string& text) {
    return text.substr(0, prefix_format::kTextBytesMax);
  };
  head.model = cut(options_.identity.model);
  head.kv_format = cut(options_.identity.kv_format);
  head.arithmetic = cut(options_.identity.arithmetic);
  head.length = length;
  head.tokens.assign(tokens.begin(), tokens.end());
  head.head_bytes = PrefixHeadBytes(head);
  return head;
}

bool Store::Get(const PrefixHead& want, MutableByteSpan state, MutableByteSpan page) {
  const PrefixName name{want.key, want.checkpoint};
  const auto known = index_.find(name);
  if (known == index_.end()) return false;
  Result<std::optional<PrefixExtent>> opened = medium_->OpenEntry(name);
  if (!opened.ok()) {
    LogOnce(LogLevel::kNotice, "prefix store: open",
            "prefix store: an entry is not used: " + opened.status().ToString());
    return false;
  }
  if (!opened->has_value()) {  // deleted by another process
    Forget(name);
    return false;
  }
  PrefixExtent& extent = **opened;
  const Status status = ReadEntry(extent, want, state, page);
  medium_->CloseEntry(&extent);
  if (!status.ok()) {
    LogOnce(LogLevel::kNotice, "prefix store: " + extent.path,
            fmt::format("prefix store: a damaged or foreign entry is deleted: {} ({})",
                        status.what(), extent.path));
    const Status deleted = medium_->Delete(name);  // where it stays, it is found damaged again
    if (deleted.ok()) Forget(name);
    return false;
  }
  known->second.used_ns = NextUsedNs();
  medium_->Touch(name, known->second.used_ns);
  return true;
}

Result<PrefixExtent> Store::Create(const PrefixHead& head) {
  const PrefixName name{head.key, head.checkpoint};
  const uint64_t bytes = head.file_bytes();
  if (bytes > options_.bytes_max) {
    return Status(Code::kIo,
                  fmt::format("an entry of {} is larger than the prefix store, {}",
                              FormatBytes(bytes), FormatBytes(options_.bytes_max)),
                  options_.dir);
  }
  Refresh();
  SLUICE_TRY(MakeRoom(bytes, 1, nullptr));
  SLUICE_ASSIGN(PrefixExtent extent, medium_->Create(name, bytes));
  writing_bytes_ += bytes;
  ++writing_;
  return extent;
}

Status Store::Publish(const PrefixHead& head, PrefixExtent* extent) {
  const PrefixName name{head.key, head.checkpoint};
  writing_bytes_ -= extent->bytes;
  --writing_;
  const int64_t used_ns = NextUsedNs();
  SLUICE_TRY(medium_->Publish(name, extent, used_ns));
  PrefixFileInfo& info = index_[name];
  bytes_ += head.file_bytes() - info.bytes;
  info = {head.file_bytes(), used_ns, 0};
  // Others may have written meanwhile: whoever comes last leaves the folder within its bound.
  Refresh();
  return MakeRoom(0, 0, &name);
}

void Store::Discard(PrefixExtent* extent) {
  if (extent->fd < 0) return;
  writing_bytes_ -= extent->bytes;
  --writing_;
  medium_->Discard(extent);
}

// Deletes the entries used longest ago, never `keep`.
Status Store::MakeRoom(uint64_t bytes_more, uint64_t entries_more, const PrefixName* keep) {
  const auto full = [&] {
    return bytes_ + writing_bytes_ + bytes_more > options_.bytes_max ||
           index_.size() + writing_ + entries_more > limits::kPrefixEntriesMax;
  };
  while (full()) {
    const auto oldest = LeastRecent(keep);
    if (oldest == index_.end()) {
      return Status(Code::kIo,
                    fmt::format("no room for {} in a prefix store of {}", FormatBytes(bytes_more),
                                FormatBytes(options_.bytes_max)),
                    options_.dir);
    }
    const PrefixName name = oldest->first;
    const std::optional<int64_t> used_ns = medium_->UsedNs(name);
    if (used_ns && *used_ns > oldest->second.used_ns) {  // another process needed it since
      oldest->second.used_ns = *used_ns;
      continue;
    }
    SLUICE_TRY(medium_->Delete(name));
    Forget(name);
  }
  return {};
}

PrefixIndex::iterator Store::LeastRecent(const PrefixName* keep) {
  auto oldest = index_.end();
  for (auto it = index_.begin(); it != index_.end(); ++it) {
    if (keep != nullptr && it->first == *keep) continue;
    if (oldest == index_.end() || it->second.used_ns < oldest->second.used_ns) oldest = it;
  }
  return oldest;
}

void Store::Forget(const PrefixName& name) {
  const auto at = index_.find(name);
  if (at == index_.end()) return;
  bytes_ -= at->second.bytes;
  index_.erase(at);
}

// Real time, so that processes agree; never twice the same.
int64_t Store::NextUsedNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  used_ns_ = std::max<int64_t>(used_ns_ + 1, now.tv_sec * 1'000'000'000 + now.tv_nsec);
  return used_ns_;
}

}  // namespace

Result<std::unique_ptr<PrefixStore>> PrefixStore::Open(Options options) {
  if (options.dir.empty()) return Status(Code::kUsage, "the prefix store has no folder");
  const PrefixIdentity& identity = options.identity;
  if (identity.page_bytes > prefix_format::kPartBytesMax ||
      identity.state_bytes > prefix_format::kPartBytesMax) {
    return Status(Code::kFailed, "a page or state too large for the prefix store", options.dir);
  }
  SLUICE_ASSIGN(std::unique_ptr<PrefixMedium> medium,
                options.ephemeral ? OpenPrefixScratch(options.dir) : OpenPrefixFolder(options.dir));
  auto store = std::make_unique<Store>(std::move(options), std::move(medium));
  store->Refresh();
  // Writers that were killed, or ran side by side, may have left an entry too many.
  if (const Status room = store->MakeRoom(0, 0, nullptr); !room.ok())
    LogOnce(LogLevel::kInfo, "prefix store", room.ToString());
  return std::unique_ptr<PrefixStore>(std::move(store));
}

}  // namespace sluice
