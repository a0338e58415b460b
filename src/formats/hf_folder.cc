// OpenHfFolder: small JSON files read whole, tensor files by their headers only.
#include "formats/hf_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/limits.h"
#include "formats/catalog_build.h"
#include "formats/printable.h"
#include "io/file.h"

namespace sluice {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr uint64_t kSmallFileBytesMax = 64 * kMiB;  // an index of 40 k tensors is 5 MB

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Result<std::string> ReadSmallFile(const std::string& path) {
  SLUICE_ASSIGN(const std::unique_ptr<File> file, File::Open(path));
  if (file->size() > kSmallFileBytesMax) {
    return Status(Code::kBadModel,
                  fmt::format("the file has {} bytes, too many for its kind", file->size()), path);
  }
  std::string text(file->size(), '\0');
  SLUICE_TRY(
      file->ReadExact(0, MutableByteSpan(reinterpret_cast<uint8_t*>(text.data()), text.size())));
  return text;
}

// Null when the file is absent.
Result<json> ReadJsonIfPresent(const std::string& path) {
  if (!Exists(path)) return json(nullptr);
  SLUICE_ASSIGN(const std::string text, ReadSmallFile(path));
  SLUICE_ASSIGN(json value, ParseJson(text, path));
  if (!value.is_object()) return Status(Code::kBadModel, "not a JSON object", path);
  return value;
}

// tokenizer_config's entry is a string, or a list of named templates of which "default" counts.
std::string TemplateOf(const json& holder) {
  if (!holder.is_object()) return {};
  const auto it = holder.find("chat_template");
  if (it == holder.end()) return {};
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_array()) return {};
  std::string first;
  for (const json& entry : *it) {
    if (!entry.is_object()) continue;
    const auto name = entry.find("name"), text = entry.find("template");
    if (text == entry.end() || !text->is_string()) continue;
    if (name != entry.end() && *name == "default") return text->get<std::string>();
    if (first.empty()) first = text->get<std::string>();
  }
  return first;
}

Status ReadChatTemplate(HfFolder* folder) {
  const std::string jinja = folder->path + "/chat_template.jinja";
  if (Exists(jinja)) {
    SLUICE_ASSIGN(folder->chat_template, ReadSmallFile(jinja));
    return Status();
  }
  SLUICE_ASSIGN(const json file, ReadJsonIfPresent(folder->path + "/chat_template.json"));
  folder->chat_template = TemplateOf(file);
  if (folder->chat_template.empty()) folder->chat_template = TemplateOf(folder->tokenizer_config);
  return Status();
}

Status AppendTensorFile(const std::string& path, Catalog* catalog) {
  SLUICE_ASSIGN(const std::unique_ptr<File> file, File::Open(path));
  std::vector<uint8_t> head(std::min<uint64_t>(file->size(), 64));
  SLUICE_TRY(file->ReadExact(0, MutableByteSpan(head.data(), head.size())));
  uint64_t length = 0;
  if (head.size() >= 8) std::memcpy(&length, head.data(), 8);
  // The parser judges a length that does not fit; only a plausible one sizes the buffer.
  if (file->size() >= 8 && length <= file->size() - 8 && length <= limits::kMetadataBytesMax &&
      8 + length > head.size()) {
    head.resize(8 + length);
    SLUICE_TRY(file->ReadExact(0, MutableByteSpan(head.data(), head.size())));
  }
  SLUICE_ASSIGN(std::vector<TensorInfo> tensors,
                ParseSafetensors(ByteSpan(head.data(), head.size()), file->size(), path));
  return AppendFile(path, file->size(), std::move(tensors), catalog);
}

// A file name that leads out of the folder is not one that a converter writes.
bool PlainName(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
}

Status AppendIndexed(const std::string& folder, const std::string& index_path, Catalog* catalog) {
  SLUICE_ASSIGN(const json index, ReadJsonIfPresent(index_path));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return Status(Code::kBadModel, "weight_map is missing", index_path);
  }
  std::set<std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !PlainName(file.get_ref<const std::string&>())) {
      return Status(Code::kBadModel,
                    fmt::format("tensor '{}' is in no plain file name", Printable(tensor)),
                    index_path);
    }
    shards.insert(file.get<std::string>());
  }
  if (shards.size() > limits::kShardsMax) {
    return Status(Code::kBadModel, fmt::format("{} shards are too many", shards.size()),
                  index_path);
  }
  for (const std::string& shard : shards) {
    const std::string path = folder + "/" + shard;
    if (!Exists(path)) {
      return Status(Code::kBadModel, "a shard named by the index is missing", path,
                    "fetch all files of the model into one folder");
    }
    SLUICE_TRY(AppendTensorFile(path, catalog));
  }
  for (const auto& [tensor, file] : map->items()) {
    const TensorInfo* info = catalog->Find(tensor);
    const std::string path = folder + "/" + file.get_ref<const std::string&>();
    if (info == nullptr || catalog->files[info->extent.file].path != path) {
      return Status(Code::kBadModel,
                    fmt::format("tensor '{}' is not where the index says", Printable(tensor)), path,
                    "the index and the shards come from different downloads");
    }
  }
  return Status();
}

std::vector<std::string> FilesEndingIn(const std::string& folder, std::string_view end) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), last; !error && it != last; it.increment(error)) {
    std::string path = it->path().string();
    if (path.ends_with(end) && Exists(path)) paths.push_back(std::move(path));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Status AppendWeights(const std::string& folder, Catalog* catalog) {
  const std::string single = folder + "/model.safetensors";
  const std::string index = folder + "/model.safetensors.index.json";
  if (Exists(single)) return AppendTensorFile(single, catalog);
  if (Exists(index)) return AppendIndexed(folder, index, catalog);
  const std::vector<std::string> loose = FilesEndingIn(folder, ".safetensors");
  for (const std::string& path : loose) SLUICE_TRY(AppendTensorFile(path, catalog));
  if (!loose.empty()) return Status();
  std::string hint = "a model folder holds config.json and model.safetensors";
  if (!FilesEndingIn(folder, ".gguf").empty()) hint = "name the .gguf file in it instead";
  if (!FilesEndingIn(folder, ".bin").empty()) {
    hint = "PyTorch .bin checkpoints are not read; convert to safetensors or GGUF";
  }
  return Status(Code::kBadModel, "no *.safetensors file in the folder", folder, hint);
}

}  // namespace

Result<HfFolder> OpenHfFolder(const std::string& path, bool need_weights) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return Status(Code::kIo, "not a folder", path, "name a .gguf file or a model folder");
  }
  HfFolder folder;
  folder.path = path;
  while (folder.path.size() > 1 && folder.path.back() == '/') folder.path.pop_back();
  SLUICE_ASSIGN(folder.config, ReadJsonIfPresent(folder.path + "/config.json"));
  SLUICE_ASSIGN(folder.generation_config,
                ReadJsonIfPresent(folder.path + "/generation_config.json"));
  SLUICE_ASSIGN(folder.tokenizer_config, ReadJsonIfPresent(folder.path + "/tokenizer_config.json"));
  SLUICE_TRY(ReadChatTemplate(&folder));
  folder.has_tokenizer_json = Exists(folder.path + "/tokenizer.json");
  if (need_weights) {
    if (folder.config.is_null()) {
      const bool gguf = !FilesEndingIn(folder.path, ".gguf").empty();
      return Status(Code::kBadModel, "config.json is missing", folder.path,
                    gguf ? "name the .gguf file in it instead"
                         : "a model folder holds config.json and *.safetensors");
    }
    SLUICE_TRY(AppendWeights(folder.path, &folder.catalog));
  }
  return folder;
}

}  // namespace sluice
