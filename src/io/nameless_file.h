// A file without a name: it vanishes with its last descriptor, however the process ends.
//
// Contract: stateless; the caller owns the descriptor (read and write, close-on-exec). Folders on
// the way to `dir` are made. Errors are kIo naming dir.
#pragma once

#include <string>

#include "base/status.h"

namespace sluice {

Result<int> OpenNamelessFile(const std::string& dir);

}  // namespace sluice
