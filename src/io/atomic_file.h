// Small files that are either the old one or the new one, whatever happens in between.
//
// Contract: WriteFileAtomically writes a temporary neighbour, flushes it to the device, renames it
// over `name` and flushes the folder; on any error the temporary is removed and `name` is as it
// was. A link at `name` stays; the file it leads to is replaced. Several processes may do so at
// once: the last rename wins. ReadSmallFile refuses what is larger than bytes_max.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace sluice {

// Makes `path` and its missing parents with `mode`. kIo when that cannot be done.
Status MakeFolders(const std::string& path, unsigned mode = 0700);
Status WriteFileAtomically(const std::string& name, ByteSpan bytes, unsigned mode = 0600);
Result<std::string> ReadSmallFile(const std::string& path, uint64_t bytes_max);

}  // namespace sluice
