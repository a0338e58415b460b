// OpenGguf: reads the header of one file or of every shard of a set, and merges their tensors.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/limits.h"
#include "base/log.h"
#include "formats/catalog_build.h"
#include "formats/gguf.h"
#include "formats/gguf_split.h"
#include "formats/printable.h"
#include "io/file.h"

namespace sluice {
namespace {

constexpr uint64_t kFirstReadBytes = kMiB;  // holds the header of most small models
// A buffer with more slack than this is read again at its exact size: header bytes stay for the
// life of the tokenizer build, and a tight budget counts them.
constexpr uint64_t kSlackBytesMax = 256 * kKiB;

struct OpenedFile {
  std::vector<uint8_t> bytes;
  GgufHeader header;
  uint64_t file_bytes = 0;
};

Result<GgufParse> ReadAndParse(const File& file, uint64_t n, std::vector<uint8_t>* bytes) {
  std::vector<uint8_t>().swap(*bytes);  // never two header buffers at once
  bytes->resize(n);
  SLUICE_TRY(file.ReadExact(0, MutableByteSpan(bytes->data(), bytes->size())));
  return ParseGguf(ByteSpan(bytes->data(), bytes->size()), file.size(), file.path());
}

Result<OpenedFile> OpenOne(const std::string& path) {
  SLUICE_ASSIGN(const std::unique_ptr<File> file, File::Open(path));
  OpenedFile out;
  out.file_bytes = file->size();
  uint64_t n = std::min(kFirstReadBytes, file->size());
  for (;;) {
    SLUICE_ASSIGN(GgufParse parse, ReadAndParse(*file, n, &out.bytes));
    if (!parse.header_incomplete) {
      out.header = std::move(parse.header);
      break;
    }
    // The parser asks for more only while the file and the header limit have more to give.
    n = std::min(n * 2, file->size());
  }
  const uint64_t exact = std::min(out.header.data_offset, file->size());
  if (out.bytes.size() - exact > kSlackBytesMax) {
    SLUICE_ASSIGN(GgufParse parse, ReadAndParse(*file, exact, &out.bytes));
    if (parse.header_incomplete) {
      return Status(Code::kIo, "the header changed while it was read", path);
    }
    out.header = std::move(parse.header);
  }
  return out;
}

Status Misfit(std::string what, const std::string& path) {
  return Status(Code::kBadModel, std::move(what), path,
                "all shards must come from the same split and keep their names");
}

// What the split keys and the file name say about a shard. count is 1 for a file on its own.
struct ShardId {
  uint32_t index = 0, count = 1;  // index from 0
  std::string prefix;
};

Result<ShardId> IdentifyShard(const GgufMetadata& metadata, const std::string& path) {
  ShardId id;
  if (metadata.Find("split.count") == nullptr) return id;
  const std::optional<uint64_t> count = metadata.U64("split.count");
  if (!count || *count > limits::kShardsMax) {
    return Misfit(fmt::format("split.count is not a number from 1 to {}", limits::kShardsMax),
                  path);
  }
  if (*count <= 1) return id;
  const std::optional<uint64_t> index = metadata.U64("split.no");
  if (!index || *index >= *count) {
    return Misfit(fmt::format("split.no is missing or not below split.count {}", *count), path);
  }
  const std::optional<SplitName> name = ParseSplitName(path);
  if (!name) {
    return Misfit(fmt::format("this is shard {} of {} of a split set, but its name does not end in "
                              "-{:05}-of-{:05}.gguf",
                              *index + 1, *count, *index + 1, *count),
                  path);
  }
  if (name->count != *count || name->number != *index + 1) {
    return Misfit(fmt::format("the file name says shard {} of {}, its split keys say {} of {}",
                              name->number, name->count, *index + 1, *count),
                  path);
  }
  id.index = static_cast<uint32_t>(*index);
  id.count = static_cast<uint32_t>(*count);
  id.prefix = name->prefix;
  return id;
}

// A shard that is not there is the set's fault (kBadModel); one that cannot be read stays an I/O
// error.
Result<OpenedFile> OpenShard(const std::string& path, uint32_t number, uint32_t count) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return Status(Code::kBadModel, fmt::format("shard {} of {} is missing", number, count), path,
                  "a split model needs all its files in one folder");
  }
  return OpenOne(path);
}

Status AppendShard(OpenedFile&& shard, const std::string& path, uint32_t index,
                   const ShardId& first, const GgufHeader& head, Catalog* catalog) {
  SLUICE_ASSIGN(const ShardId id, IdentifyShard(shard.header.metadata, path));
  if (id.count != first.count || id.index != index) {
    return Misfit(fmt::format("this file says it is shard {} of {}, but it stands in for shard {} "
                              "of {}",
                              id.index + 1, id.count, index + 1, first.count),
                  path);
  }
  const auto arch = shard.header.metadata.String("general.architecture");
  const auto first_arch = head.metadata.String("general.architecture");
  if (arch && first_arch && *arch != *first_arch) {
    return Misfit(fmt::format("this shard holds a '{}' model, the first shard a '{}' model",
                              Printable(*arch), Printable(*first_arch)),
                  path);
  }
  return AppendFile(path, shard.file_bytes, std::move(shard.header.tensors), catalog);
}

Status CheckTensorTotal(const GgufMetadata& metadata, const Catalog& catalog) {
  const std::optional<uint64_t> total = metadata.U64("split.tensors.count");
  if (!total || *total == catalog.tensors.size()) return Status();
  return Misfit(fmt::format("split.tensors.count is {}, the shards hold {} tensors", *total,
                            catalog.tensors.size()),
                catalog.files[0].path);
}

// The first shard of the set that `path` belongs to, already opened as `opened`.
Status SwitchToFirst(std::string* path, OpenedFile* opened, ShardId* id) {
  if (id->index == 0) return Status();
  const std::string first = ShardPath(id->prefix, 1, id->count);
  Log(LogLevel::kNotice, fmt::format("{} is shard {} of {}; opening the set from {}", *path,
                                     id->index + 1, id->count, first));
  *opened = OpenedFile();
  SLUICE_ASSIGN(*opened, OpenShard(first, 1, id->count));
  const uint32_t count = id->count;
  SLUICE_ASSIGN(*id, IdentifyShard(opened->header.metadata, first));
  if (id->count != count || id->index != 0) {
    return Misfit(fmt::format("this file should be shard 1 of {}, it says {} of {}", count,
                              id->index + 1, id->count),
                  first);
  }
  *path = first;
  return Status();
}

}  // namespace

Result<GgufFileSet> OpenGguf(const std::string& requested) {
  std::string path = requested;
  SLUICE_ASSIGN(OpenedFile first, OpenOne(path));
  SLUICE_ASSIGN(ShardId id, IdentifyShard(first.header.metadata, path));
  SLUICE_TRY(SwitchToFirst(&path, &first, &id));

  GgufFileSet set;
  set.header_bytes = std::move(first.bytes);
  set.header = std::move(first.header);
  SLUICE_TRY(AppendFile(path, first.file_bytes, std::move(set.header.tensors), &set.catalog));
  set.header.tensors.clear();
  for (uint32_t i = 1; i < id.count; ++i) {
    const std::string shard_path = ShardPath(id.prefix, i + 1, id.count);
    SLUICE_ASSIGN(OpenedFile shard, OpenShard(shard_path, i + 1, id.count));
    SLUICE_TRY(AppendShard(std::move(shard), shard_path, i, id, set.header, &set.catalog));
  }
  if (id.count > 1) SLUICE_TRY(CheckTensorTotal(set.header.metadata, set.catalog));
  if (set.catalog.tensors.size() > limits::kTensorCountMax) {
    return Status(Code::kBadModel, "the shards hold too many tensors", path);
  }
  return set;
}

}  // namespace sluice
