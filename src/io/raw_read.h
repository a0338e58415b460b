// One piece of a request, read completely or turned into one Status.
//
// Contract: RawRead is the seam between the thread pool and the system: it behaves like pread(2)
// (returns bytes, 0 at the end of the file, -1 with errno) and is called from several threads at
// once; tests put faulty ones in its place. ReadPiece retries EINTR and EAGAIN, completes short
// reads, and gives a direct read that the volume refuses (EINVAL) or cuts to an unaligned length to
// the buffered descriptor, with one notice per file. No allocation except for error texts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "io/file.h"

namespace sluice {

using RawRead = std::function<ssize_t(int fd, void* buffer, size_t bytes, off_t offset)>;
RawRead SystemRead();

struct Piece {
  const File* file = nullptr;
  uint64_t offset = 0;  // in the file
  uint64_t length = 0;  // what is asked for; aligned for a direct read
  uint64_t valid = 0;   // what must arrive: length cut at the end of the file
  uint8_t* buffer = nullptr;
  uint32_t slot = 0;  // of the request board
};

// Reads through the direct descriptor first when `direct`.
Status ReadPiece(const RawRead& read, const Piece& piece, bool direct);

// What is left of a piece after its first `got` bytes, through the page cache, which is emptied
// behind it.
Status FinishBuffered(const RawRead& read, const Piece& piece, uint64_t got);

// True for an errno after which a buffered read of the same bytes may still succeed.
bool DirectReadRefused(int error);
// Says once per file that a direct read was refused, and leaves it with the file.
void NoteRefusal(const File& file, int error);
// For the notices of a run: file.direct_refused() in words.
std::string RefusalText(const File& file);

}  // namespace sluice
