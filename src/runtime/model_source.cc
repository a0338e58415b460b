#include "runtime/model_source.h"

#include <fmt/format.h>

#include <filesystem>

#include "model/arch/arch.h"

namespace sluice {

Result<ModelSource> OpenModelSource(const std::string& path, bool need_weights) {
  ModelSource source;
  source.path = path;
  std::error_code error;
  const std::filesystem::path p(path);
  const std::filesystem::file_status status = std::filesystem::status(p, error);
  if (!std::filesystem::exists(status)) {
    return Status(Code::kIo, "no such model file or folder", path,
                  "give a .gguf file or a Hugging Face folder");
  }
  source.name = p.filename().empty() ? p.parent_path().filename().string() : p.filename().string();
  if (std::filesystem::is_directory(status)) {
    SLUICE_ASSIGN(source.folder, OpenHfFolder(path, need_weights));
    return source;
  }
  SLUICE_ASSIGN(source.gguf, OpenGguf(path));
  return source;
}

Result<ModelMap> BindSource(ModelSource* source) {
  Result<ModelMap> map = source->gguf
                             ? BindGguf(std::move(*source->gguf), source->name, source->rope)
                             : BindHf(std::move(*source->folder), source->rope);
  if (!map.ok()) return map.status();
  if (FindPage(map->config.arch) == nullptr) {
    return Status(Code::kBadModel,
                  fmt::format("unsupported architecture '{}'", map->config.arch_name),
                  source->path);
  }
  return map;
}

std::string GenerationDefaults(const ModelSource& source) {
  if (source.folder) {
    return source.folder->generation_config.is_object() ? source.folder->generation_config.dump()
                                                        : "{}";
  }
  nlohmann::json defaults = nlohmann::json::object();
  static constexpr std::pair<const char*, const char*> kKeys[] = {
      {"general.sampling.temp", "temperature"},
      {"general.sampling.top_k", "top_k"},
      {"general.sampling.top_p", "top_p"},
      {"general.sampling.min_p", "min_p"},
      {"general.sampling.penalty_repeat", "repetition_penalty"},
  };
  for (const auto& [key, name] : kKeys) {
    if (const std::optional<double> value = source.gguf->header.metadata.F64(key))
      defaults[name] = *value;
  }
  if (defaults.contains("top_k"))
    defaults["top_k"] = static_cast<int64_t>(defaults["top_k"].get<double>());
  return defaults.dump();
}

}  // namespace sluice
