#include "runtime/prefix_medium.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include "io/file.h"

namespace sluice {
namespace {

constexpr size_t kKeyDigits = 32;
constexpr std::string_view kPageSuffix = ".page", kCheckpointSuffix = ".state";

std::optional<uint64_t> ParseHex(std::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    if ((c < '0' || c > '9') && (c < 'a' || c > 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return value;
}

}  // namespace

std::string PrefixName::Text() const {
  return key.Hex() + std::string(checkpoint ? kCheckpointSuffix : kPageSuffix);
}

std::optional<PrefixName> PrefixName::Parse(std::string_view text) {
  if (text.size() < kKeyDigits) return std::nullopt;
  const std::string_view suffix = text.substr(kKeyDigits);
  if (suffix != kPageSuffix && suffix != kCheckpointSuffix) return std::nullopt;
  const auto high = ParseHex(text.substr(0, 16)), low = ParseHex(text.substr(16, 16));
  if (!high || !low) return std::nullopt;
  return PrefixName{{*high, *low}, suffix == kCheckpointSuffix};
}

Status ReadExtent(const PrefixExtent& from, uint64_t offset, MutableByteSpan out) {
  uint64_t got = 0;
  while (got < out.size()) {
    const ssize_t n = pread(from.fd, out.data() + got, out.size() - got,
                            static_cast<off_t>(from.base + offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ReadError(from.path, offset, out.size(), got, n < 0 ? errno : 0);
    got += static_cast<uint64_t>(n);
  }
  return {};
}

Status WriteExtent(const PrefixExtent& to, uint64_t offset, ByteSpan bytes) {
  for (uint64_t done = 0; done < bytes.size();) {
    const ssize_t n = pwrite(to.fd, bytes.data() + done, bytes.size() - done,
                             static_cast<off_t>(to.base + offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return Status(Code::kIo,
                    fmt::format("cannot write at offset {}: {}", offset + done, strerror(errno)),
                    to.path);
    }
    done += static_cast<uint64_t>(n);
  }
  return {};
}

}  // namespace sluice
