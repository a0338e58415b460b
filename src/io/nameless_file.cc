#include "io/nameless_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include "io/atomic_file.h"

namespace sluice {

// O_TMPFILE where the file system has it.
Result<int> OpenNamelessFile(const std::string& dir) {
  SLUICE_TRY(MakeFolders(dir));
  int fd = open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
  if (fd >= 0) return fd;
  std::string name = dir + "/scratch-XXXXXX";
  fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0)
    return Status(Code::kIo, fmt::format("cannot create a file: {}", strerror(errno)), dir);
  unlink(name.c_str());
  return fd;
}

}  // namespace sluice
