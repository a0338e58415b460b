// ParseJson: nlohmann's tokenizer with our own builder, so that depth and duplicate keys are
// checked while the text is read and no exception leaves.
#include <fmt/format.h>

#include "base/limits.h"
#include "formats/hf_folder.h"
#include "formats/printable.h"

namespace sluice {
namespace {

using nlohmann::json;

class Builder : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Put(json(nullptr)); }
  bool boolean(bool v) override { return Put(json(v)); }
  bool number_integer(json::number_integer_t v) override { return Put(json(v)); }
  bool number_unsigned(json::number_unsigned_t v) override { return Put(json(v)); }
  bool number_float(json::number_float_t v, const json::string_t&) override { return Put(json(v)); }
  bool string(json::string_t& v) override { return Put(json(std::move(v))); }
  bool binary(json::binary_t&) override { return Fail("binary value"); }

  bool start_object(size_t) override { return Open(json::object()); }
  bool key(json::string_t& v) override {
    json& object = *open_.back();
    const auto [it, fresh] = object.emplace(v, nullptr);
    if (!fresh) return Fail(fmt::format("duplicate key '{}'", Printable(v)));
    slot_ = &*it;
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(json::array()); }
  bool end_array() override { return Close(); }

  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    return Fail(fmt::format("invalid JSON at byte {}", position));
  }

  json& root() { return root_; }
  const std::string& error() const { return error_; }

 private:
  bool Fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }
  // Where the next value goes: the root, the slot of the last key, or the end of the open array.
  // Pointers stay valid: only the innermost open container grows.
  json* Place(json&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      *slot_ = std::move(value);
      return slot_;
    }
    open_.back()->push_back(std::move(value));
    return &open_.back()->back();
  }
  bool Put(json&& value) {
    Place(std::move(value));
    return true;
  }
  bool Open(json&& value) {
    if (open_.size() >= limits::kJsonDepthMax) {
      return Fail(fmt::format("JSON nested deeper than {} levels", limits::kJsonDepthMax));
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  json root_;
  std::vector<json*> open_;
  json* slot_ = nullptr;
  std::string error_;
};

}  // namespace

Result<nlohmann::json> ParseJson(std::string_view text, const std::string& name) {
  if (text.size() > limits::kMetadataBytesMax) {
    return Status(Code::kBadModel, fmt::format("JSON of {} bytes is too large", text.size()), name);
  }
  Builder builder;
  const bool ok = json::sax_parse(text.begin(), text.end(), &builder);
  if (!ok || !builder.error().empty()) {
    return Status(Code::kBadModel, builder.error().empty() ? "invalid JSON" : builder.error(), name,
                  text.starts_with("version https://git-lfs")
                      ? "it looks like a git-lfs pointer; fetch the real file with 'git lfs pull'"
                      : "the file is damaged");
  }
  return std::move(builder.root());
}

}  // namespace sluice
