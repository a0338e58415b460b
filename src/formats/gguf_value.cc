// Metadata values: views into the header bytes, read byte by byte so that no alignment is assumed.
#include <cstring>
#include <iterator>

#include "formats/gguf.h"

namespace sluice {
namespace {

template <typename T>
T Load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <typename T>
std::optional<uint64_t> NonNegative(const uint8_t* bytes) {
  const T value = Load<T>(bytes);
  if (value < 0) return std::nullopt;
  return static_cast<uint64_t>(value);
}

// One scalar as an unsigned integer; nullopt for floats, strings and negative values.
std::optional<uint64_t> ScalarU64(GgufValueType type, const uint8_t* bytes) {
  switch (type) {
    case GgufValueType::kU8:
      return bytes[0];
    case GgufValueType::kU16:
      return Load<uint16_t>(bytes);
    case GgufValueType::kU32:
      return Load<uint32_t>(bytes);
    case GgufValueType::kU64:
      return Load<uint64_t>(bytes);
    case GgufValueType::kI8:
      return NonNegative<int8_t>(bytes);
    case GgufValueType::kI16:
      return NonNegative<int16_t>(bytes);
    case GgufValueType::kI32:
      return NonNegative<int32_t>(bytes);
    case GgufValueType::kI64:
      return NonNegative<int64_t>(bytes);
    default:
      return std::nullopt;
  }
}

bool IsFloat(GgufValueType type) {
  return type == GgufValueType::kF32 || type == GgufValueType::kF64;
}

}  // namespace

uint64_t GgufScalarBytes(GgufValueType type) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  const auto number = static_cast<uint32_t>(type);
  return number < std::size(kBytes) ? kBytes[number] : 0;
}

std::optional<uint64_t> GgufValue::AsU64() const {
  const uint64_t size = GgufScalarBytes(type);
  if (size == 0 || bytes.size() < size) return std::nullopt;
  return ScalarU64(type, bytes.data());
}

std::optional<double> GgufValue::AsF64() const {
  if (type == GgufValueType::kF32 && bytes.size() >= 4) return Load<float>(bytes.data());
  if (type == GgufValueType::kF64 && bytes.size() >= 8) return Load<double>(bytes.data());
  if (bytes.size() < GgufScalarBytes(type)) return std::nullopt;
  switch (type) {
    case GgufValueType::kI8:
      return Load<int8_t>(bytes.data());
    case GgufValueType::kI16:
      return Load<int16_t>(bytes.data());
    case GgufValueType::kI32:
      return Load<int32_t>(bytes.data());
    case GgufValueType::kI64:
      return static_cast<double>(Load<int64_t>(bytes.data()));
    default:
      break;
  }
  const std::optional<uint64_t> integer = AsU64();
  if (!integer) return std::nullopt;
  return static_cast<double>(*integer);
}

std::optional<bool> GgufValue::AsBool() const {
  if (type != GgufValueType::kBool || bytes.empty()) return std::nullopt;
  return bytes[0] != 0;
}

std::optional<std::string_view> GgufValue::AsString() const {
  if (type != GgufValueType::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<std::vector<uint64_t>> GgufValue::AsU64List(uint64_t count_max) const {
  const uint64_t size = IsFloat(element) ? 0 : GgufScalarBytes(element);
  if (type != GgufValueType::kArray || size == 0 || count > count_max) return std::nullopt;
  if (bytes.size() / size < count) return std::nullopt;
  std::vector<uint64_t> list;
  for (uint64_t i = 0; i < count; ++i) {
    const uint8_t* at = bytes.data() + i * size;
    const std::optional<uint64_t> value = element == GgufValueType::kBool
                                              ? std::optional<uint64_t>(at[0] != 0)
                                              : ScalarU64(element, at);
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

bool GgufStringCursor::Next(std::string_view* out) {
  if (left_ == 0 || rest_.size() < 8) return false;
  const uint64_t length = Load<uint64_t>(rest_.data());
  if (length > rest_.size() - 8) return false;
  *out = std::string_view(reinterpret_cast<const char*>(rest_.data() + 8), length);
  rest_ = rest_.subspan(8 + length);
  --left_;
  return true;
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  for (const auto& [name, value] : entries_) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::optional<uint64_t> GgufMetadata::U64(std::string_view key) const {
  const GgufValue* value = Find(key);
  return value == nullptr ? std::nullopt : value->AsU64();
}
std::optional<double> GgufMetadata::F64(std::string_view key) const {
  const GgufValue* value = Find(key);
  return value == nullptr ? std::nullopt : value->AsF64();
}
std::optional<bool> GgufMetadata::Bool(std::string_view key) const {
  const GgufValue* value = Find(key);
  return value == nullptr ? std::nullopt : value->AsBool();
}
std::optional<std::string_view> GgufMetadata::String(std::string_view key) const {
  const GgufValue* value = Find(key);
  return value == nullptr ? std::nullopt : value->AsString();
}

}  // namespace sluice
