#include "runtime/prefix_read.h"

#include <fcntl.h>
#include <xxhash.h>

#include <algorithm>

namespace sluice {
namespace {

// Small enough for the second-level cache, large enough that a read costs little beside its bytes.
constexpr uint64_t kPieceBytes = 512 * kKiB;
// The page cache is emptied behind so many bytes.
constexpr uint64_t kDropBytes = 8 * kMiB;

Status Bad(const char* what) { return Status(Code::kIo, what); }

PrefixKey KeyOf(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

// Hashes [offset, offset + bytes) of the extent; out: where the bytes go, or a buffer used again
// and again when it is shorter.
Result<PrefixKey> HashExtent(const PrefixExtent& extent, uint64_t offset, uint64_t bytes,
                             MutableByteSpan out, StreamHash* hash) {
  hash->Reset();
  for (uint64_t done = 0, dropped = 0; done < bytes;) {
    const uint64_t n = std::min(bytes - done, kPieceBytes);
    const MutableByteSpan piece =
        out.size() == bytes ? out.subspan(done, n) : out.first(std::min<uint64_t>(n, out.size()));
    SLUICE_TRY(ReadExtent(extent, offset + done, piece));
    hash->Update(piece);
    done += piece.size();
    if (done - dropped < kDropBytes) continue;
    posix_fadvise(extent.fd, static_cast<off_t>(extent.base + offset + dropped),
                  static_cast<off_t>(done - dropped), POSIX_FADV_DONTNEED);
    dropped = done;
  }
  return hash->Digest();
}

Status CheckPayload(const PrefixExtent& extent, const PrefixHead& head, MutableByteSpan state,
                    MutableByteSpan page) {
  StreamHash hash;
  uint64_t at = 0;
  for (const prefix_format::Section& s : head.sections) {
    const bool whole = state.size() == head.state_bytes;
    SLUICE_ASSIGN(const PrefixKey digest,
                  HashExtent(extent, head.state_offset() + at, s.bytes,
                             whole ? state.subspan(at, s.bytes) : state, &hash));
    if (digest != PrefixKey{s.hash_high, s.hash_low})
      return Bad("the checksum of the state is wrong");
    at += s.bytes;
  }
  if (head.page_bytes == 0) return {};
  uint8_t gap[prefix_format::kAlignment];
  const MutableByteSpan between(gap, head.page_offset() - head.state_end());
  SLUICE_TRY(ReadExtent(extent, head.state_end(), between));
  if (std::any_of(between.begin(), between.end(), [](uint8_t b) { return b != 0; }))
    return Bad("the bytes before the page are not zero");
  SLUICE_ASSIGN(const PrefixKey digest,
                HashExtent(extent, head.page_offset(), head.page_bytes, page, &hash));
  return digest == head.page_hash ? Status() : Bad("the checksum of the page is wrong");
}

Status CheckWanted(const PrefixHead& head, const PrefixHead& want) {
  if (head.identity != want.identity || head.model != want.model ||
      head.kv_format != want.kv_format || head.arithmetic != want.arithmetic) {
    return Bad("the entry is of another model, KV format or arithmetic");
  }
  if (head.key != want.key || head.checkpoint != want.checkpoint)
    return Bad("the entry has another name");
  if (head.tokens != want.tokens || head.length != want.length)
    return Bad("the entry is of other tokens");
  if (head.state_bytes != want.state_bytes || head.page_bytes != want.page_bytes)
    return Bad("the entry has other sizes");
  return {};
}

}  // namespace

StreamHash::StreamHash() : state_(XXH3_createState()) { Reset(); }
StreamHash::~StreamHash() { XXH3_freeState(state_); }
void StreamHash::Reset() { XXH3_128bits_reset(state_); }
void StreamHash::Update(ByteSpan bytes) { XXH3_128bits_update(state_, bytes.data(), bytes.size()); }
PrefixKey StreamHash::Digest() const { return KeyOf(XXH3_128bits_digest(state_)); }

PrefixKey HashBytes(ByteSpan bytes) { return KeyOf(XXH3_128bits(bytes.data(), bytes.size())); }

void StartWriteback(const PrefixExtent& extent, uint64_t offset, uint64_t bytes) {
  sync_file_range(extent.fd, static_cast<off_t>(extent.base + offset), static_cast<off_t>(bytes),
                  SYNC_FILE_RANGE_WRITE);  // a hint: the flush before the rename decides
}

Result<PrefixHead> ReadPrefixHead(const PrefixExtent& extent) {
  std::vector<uint8_t> bytes(std::min<uint64_t>(extent.bytes, prefix_format::kAlignment));
  SLUICE_TRY(ReadExtent(extent, 0, bytes));
  SLUICE_ASSIGN(const uint64_t head_bytes, PeekPrefixHeadBytes(bytes));
  const uint64_t have = bytes.size();
  if (head_bytes > extent.bytes) return Bad("the file ends inside the head");
  if (head_bytes > have) {
    bytes.resize(head_bytes);
    SLUICE_TRY(ReadExtent(extent, have, MutableByteSpan(bytes).subspan(have)));
  }
  return ParsePrefixHead(bytes, extent.bytes);
}

Status ReadEntry(const PrefixExtent& extent, const PrefixHead& want, MutableByteSpan state,
                 MutableByteSpan page) {
  SLUICE_ASSIGN(const PrefixHead head, ReadPrefixHead(extent));
  SLUICE_TRY(CheckWanted(head, want));
  return CheckPayload(extent, head, state, page);
}

Status VerifyEntry(const PrefixExtent& extent, const PrefixHead& head) {
  std::vector<uint8_t> buffer(kPieceBytes);
  return CheckPayload(extent, head, buffer, buffer);
}

}  // namespace sluice
