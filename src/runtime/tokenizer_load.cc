#include "runtime/tokenizer_load.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "formats/hf_folder.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_source.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

struct Lists {
  std::optional<GgufStringCursor> tokens, merges;
};

// The scalar at `index` of an array of numbers; nullptr-sized arrays were refused by the parser.
GgufValue Element(const GgufValue& array, uint64_t index) {
  const uint64_t bytes = GgufScalarBytes(array.element);
  GgufValue value;
  value.type = array.element;
  value.bytes = array.bytes.subspan(index * bytes, bytes);
  return value;
}

const GgufValue* FindList(const GgufMetadata& metadata, const std::string& key, bool strings) {
  const GgufValue* value = metadata.Find(key);
  if (value == nullptr || value->type != GgufValueType::kArray) return nullptr;
  const uint64_t size = GgufScalarBytes(value->element);
  const bool numbers = value->element != GgufValueType::kBool && size > 0;
  const bool fits = strings ? value->element == GgufValueType::kString
                            : numbers && value->bytes.size() / size >= value->count;
  return fits ? value : nullptr;
}

TokenizerSource::Strings PullStrings(const GgufValue* list,
                                     std::optional<GgufStringCursor>* cursor) {
  TokenizerSource::Strings out;
  if (list == nullptr) return out;
  cursor->emplace(*list);
  out.count = list->count;
  out.next = [cursor](std::string_view* text) { return (*cursor)->Next(text); };
  return out;
}

// (key, role) of the single ids; the suffixes are llama.cpp's.
struct IdKey {
  std::string_view suffix;
  TokenizerSource::Role role;
};
constexpr IdKey kIdKeys[] = {
    {"bos_token_id", TokenizerSource::Role::kBos},
    {"eos_token_id", TokenizerSource::Role::kEos},
    {"eot_token_id", TokenizerSource::Role::kEndOfGeneration},
    {"eom_token_id", TokenizerSource::Role::kEndOfGeneration},
    {"unknown_token_id", TokenizerSource::Role::kUnknown},
    {"padding_token_id", TokenizerSource::Role::kPad},
};

void CollectIds(const GgufMetadata& metadata, const std::string& origin, TokenizerSource* source) {
  for (const IdKey& known : kIdKeys) {
    for (const auto& [key, value] : metadata.entries()) {
      if (key.substr(0, kPrefix.size()) != kPrefix || key.substr(kPrefix.size()) != known.suffix)
        continue;
      if (const std::optional<uint64_t> id = value.AsU64()) {
        source->ids.push_back({known.role, key, *id});
      } else {
        Log(LogLevel::kWarning, fmt::format("{}: {} is no token id; ignored", origin, key));
      }
    }
  }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> TokenizerFromGguf(const GgufMetadata& metadata,
                                                     const std::string& origin) {
  const std::string prefix(kPrefix);
  const std::optional<std::string_view> model = metadata.String(prefix + "model");
  if (!model || *model == "none" || *model == "no_vocab") {
    return Status(Code::kBadModel, "the file holds no tokenizer", origin + ": tokenizer.ggml.model",
                  "give token ids instead of text");
  }
  TokenizerSource source;
  source.origin = origin;
  source.model = *model;
  source.pre = metadata.String(prefix + "pre");
  Lists lists;
  source.tokens = PullStrings(FindList(metadata, prefix + "tokens", true), &lists.tokens);
  source.merges = PullStrings(FindList(metadata, prefix + "merges", true), &lists.merges);
  if (const GgufValue* types = FindList(metadata, prefix + "token_type", false)) {
    source.type_count = types->count;
    source.type = [types](uint64_t i) {
      return static_cast<int64_t>(Element(*types, i).AsU64().value_or(1));
    };
  }
  if (const GgufValue* scores = FindList(metadata, prefix + "scores", false)) {
    source.score_count = scores->count;
    source.score = [scores](uint64_t i) {
      return static_cast<float>(Element(*scores, i).AsF64().value_or(0));
    };
  }
  CollectIds(metadata, origin, &source);
  source.add_bos = metadata.Bool(prefix + "add_bos_token");
  source.add_eos = metadata.Bool(prefix + "add_eos_token");
  source.add_space_prefix = metadata.Bool(prefix + "add_space_prefix");
  return BuildTokenizer(source);
}

namespace {

constexpr uint64_t kSmallJsonBytesMax = 16 * kMiB;

struct CloseFile {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using FilePtr = std::unique_ptr<std::FILE, CloseFile>;

// Null when the file does not exist.
Result<nlohmann::json> ReadSmallJson(const std::string& path) {
  FilePtr file(std::fopen(path.c_str(), "rb"));
  if (!file) return nlohmann::json();
  std::string text;
  char buffer[65536];
  size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof buffer, file.get())) > 0) {
    text.append(buffer, n);
    if (text.size() > kSmallJsonBytesMax)
      return Status(Code::kBadModel, "the file is too large", path);
  }
  if (std::ferror(file.get())) return Status(Code::kIo, "reading failed", path);
  return ParseJson(text, path);
}

const nlohmann::json& Field(const nlohmann::json& j, const char* key) {
  static const nlohmann::json none;
  if (!j.is_object()) return none;
  const auto it = j.find(key);
  return it != j.end() ? *it : none;
}

// "bos_token": a text, or an object with the text in "content".
TokenId NamedToken(const nlohmann::json& config, const char* key, const Tokenizer& tokenizer,
                   const std::string& origin) {
  const nlohmann::json& value = Field(config, key);
  const nlohmann::json& text = value.is_object() ? Field(value, "content") : value;
  if (!text.is_string()) return -1;
  const TokenId id = tokenizer.FindToken(text.get_ref<const std::string&>());
  if (id < 0) {
    Log(LogLevel::kWarning,
        fmt::format("{}: {} is no token of the vocabulary; ignored", origin, key));
  }
  return id;
}

// generation_config.json or config.json: eos_token_id is a number or a list of them.
void AddEndIds(const nlohmann::json& config, const std::string& origin, Tokenizer* tokenizer) {
  const nlohmann::json& ids = Field(config, "eos_token_id");
  auto add = [&](const nlohmann::json& id) {
    if (!id.is_number_unsigned()) return;
    const TokenId checked =
        CheckedTokenId(id.get<uint64_t>(), tokenizer->vocab_size(), "eos_token_id", origin);
    if (checked < 0) return;
    SpecialTokens& special = tokenizer->mutable_special();
    if (special.eos < 0) special.eos = checked;
    special.eog.push_back(checked);
  };
  if (ids.is_array()) {
    for (const nlohmann::json& id : ids) add(id);
  } else {
    add(ids);
  }
}

void ApplyTokenizerConfig(const nlohmann::json& config, const std::string& origin,
                          Tokenizer* tokenizer) {
  SpecialTokens& special = tokenizer->mutable_special();
  const TokenId bos = NamedToken(config, "bos_token", *tokenizer, origin);
  if (bos >= 0) special.bos = bos;
  special.eos = NamedToken(config, "eos_token", *tokenizer, origin);
  special.unk = NamedToken(config, "unk_token", *tokenizer, origin);
  special.pad = NamedToken(config, "pad_token", *tokenizer, origin);
  // Only these classes rebuild the post-processor from add_bos_token; for the others it has the
  // last word.
  const nlohmann::json& name = Field(config, "tokenizer_class");
  const nlohmann::json& add_bos = Field(config, "add_bos_token");
  if (!name.is_string() || !add_bos.is_boolean()) return;
  const std::string& text = name.get_ref<const std::string&>();
  if (text.rfind("Llama", 0) != 0 && text.rfind("Gemma", 0) != 0) return;
  special.add_bos = add_bos.get<bool>() && special.bos >= 0;
  if (special.add_bos && special.prefix.empty()) special.prefix = {special.bos};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> TokenizerFromFolder(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  FilePtr file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    return Status(Code::kBadModel, "no tokenizer.json", folder, "give token ids instead of text");
  }
  std::setvbuf(file.get(), nullptr, _IONBF, 0);
  auto pull = [&file](char* buffer, size_t capacity) -> int64_t {
    const size_t n = std::fread(buffer, 1, capacity, file.get());
    return std::ferror(file.get()) ? -1 : static_cast<int64_t>(n);
  };
  SLUICE_ASSIGN(std::unique_ptr<Tokenizer> tokenizer, ParseTokenizerJson(pull, path));
  {
    const std::string config_path = folder + "/tokenizer_config.json";
    SLUICE_ASSIGN(const nlohmann::json config, ReadSmallJson(config_path));
    ApplyTokenizerConfig(config, config_path, tokenizer.get());
  }
  bool listed = false;
  for (const char* name : {"/generation_config.json", "/config.json"}) {
    if (listed) break;
    SLUICE_ASSIGN(const nlohmann::json config, ReadSmallJson(folder + name));
    listed = !Field(config, "eos_token_id").is_null();
    AddEndIds(config, folder + name, tokenizer.get());
  }
  FindEndTokens(tokenizer.get());
  return tokenizer;
}

}  // namespace sluice
