// What a model file holds, for `sluice inspect`.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "runtime/model_source.h"
#include "sluice/engine.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kArrayItemsShown = 8;
constexpr size_t kStringCharsShown = 200;

Json ScalarJson(GgufValueType type, ByteSpan bytes) {
  GgufValue value;
  value.type = type;
  value.bytes = bytes;
  if (type == GgufValueType::kString) return std::string(value.AsString().value_or(""));
  if (type == GgufValueType::kBool) return value.AsBool().value_or(false);
  if (type == GgufValueType::kF32 || type == GgufValueType::kF64) return value.AsF64().value_or(0);
  if (const auto u = value.AsU64()) return *u;
  return static_cast<int64_t>(value.AsF64().value_or(0));
}

// Arrays are shown by their first items; the vocabulary of a model would fill a book.
Json ValueJson(const GgufValue& value) {
  if (value.type != GgufValueType::kArray) return ScalarJson(value.type, value.bytes);
  Json json = {{"count", value.count}, {"first", Json::array()}};
  if (value.element == GgufValueType::kString) {
    GgufStringCursor cursor(value);
    std::string_view text;
    while (json["first"].size() < kArrayItemsShown && cursor.Next(&text))
      json["first"].push_back(std::string(text));
  } else if (value.element != GgufValueType::kArray && value.count > 0) {
    const size_t size = value.bytes.size() / value.count;
    for (uint64_t i = 0; i < std::min<uint64_t>(value.count, kArrayItemsShown); ++i) {
      json["first"].push_back(ScalarJson(value.element, value.bytes.subspan(i * size, size)));
    }
  }
  return json;
}

Json MetadataJson(const ModelSource& source) {
  if (source.folder) return Json::parse(source.folder->config.dump());
  Json json = Json::object();
  for (const auto& [key, value] : source.gguf->header.metadata.entries())
    json[std::string(key)] = ValueJson(value);
  return json;
}

Json TensorJson(const TensorInfo& t) {
  Json dims = Json::array();
  for (uint32_t i = 0; i < t.n_dims; ++i) dims.push_back(t.dims[i]);
  return {{"name", t.name},        {"type", InfoOf(t.type).name}, {"shape", dims},
          {"file", t.extent.file}, {"offset", t.extent.offset},   {"bytes", t.extent.bytes}};
}

Json Describe(const ModelSource& source, bool tensors) {
  const Catalog& catalog = source.gguf ? source.gguf->catalog : source.folder->catalog;
  Json json;
  json["model"] = source.name;
  json["format"] =
      source.gguf ? fmt::format("GGUF v{}", source.gguf->header.version) : "Hugging Face folder";
  json["files"] = Json::array();
  for (const Catalog::FileEntry& file : catalog.files)
    json["files"].push_back({{"path", file.path}, {"bytes", file.bytes}});
  std::map<std::string, std::pair<uint64_t, uint64_t>> types;
  uint64_t parameters = 0, bytes = 0;
  for (const TensorInfo& t : catalog.tensors) {
    auto& [count, sum] = types[InfoOf(t.type).name];
    ++count;
    sum += t.extent.bytes;
    bytes += t.extent.bytes;
    parameters += t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3];
  }
  json["tensor_count"] = catalog.tensors.size();
  json["parameters"] = parameters;
  json["tensor_bytes"] = bytes;
  json["types"] = Json::object();
  for (const auto& [name, value] : types)
    json["types"][name] = {{"tensors", value.first}, {"bytes", value.second}};
  json["metadata"] = MetadataJson(source);
  if (tensors) {
    json["tensors"] = Json::array();
    for (const TensorInfo& t : catalog.tensors) json["tensors"].push_back(TensorJson(t));
  }
  return json;
}

std::string Clip(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  if (text.size() > kStringCharsShown) text = text.substr(0, kStringCharsShown) + "...";
  return text;
}

std::string AsText(const Json& json) {
  std::string out =
      fmt::format("{}: {}\n", json["model"].get<std::string>(), json["format"].get<std::string>());
  for (const Json& file : json["files"]) {
    out += fmt::format("  file     {}  {}\n", FormatBytes(file["bytes"].get<uint64_t>()),
                       file["path"].get<std::string>());
  }
  out +=
      fmt::format("  tensors  {}, {:.2f} M parameters, {}\n", json["tensor_count"].get<uint64_t>(),
                  static_cast<double>(json["parameters"].get<uint64_t>()) * 1e-6,
                  FormatBytes(json["tensor_bytes"].get<uint64_t>()));
  for (const auto& [name, value] : json["types"].items()) {
    out += fmt::format("  {:<8} {:>5} tensors  {:>11}\n", name, value["tensors"].get<uint64_t>(),
                       FormatBytes(value["bytes"].get<uint64_t>()));
  }
  out += "metadata\n";
  for (const auto& [key, value] : json["metadata"].items()) {
    out += fmt::format("  {:<42} {}\n", key,
                       Clip(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  if (!json.contains("tensors")) return out;
  out += "tensors\n";
  for (const Json& t : json["tensors"]) {
    out += fmt::format("  {:<42} {:<7} {:<22} {:>12} @ {}\n", t["name"].get<std::string>(),
                       t["type"].get<std::string>(), t["shape"].dump(), t["bytes"].get<uint64_t>(),
                       t["offset"].get<uint64_t>());
  }
  return out;
}

}  // namespace

Result<std::string> InspectModel(const std::string& model_path, bool tensors, bool json) {
  SLUICE_ASSIGN(const ModelSource source, OpenModelSource(model_path, /*need_weights=*/false));
  const Json description = Describe(source, tensors);
  if (json) return description.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return AsText(description);
}

}  // namespace sluice
