#include "runtime/prefix_key.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "token ids are hashed as stored");

// A domain of its own: a root never equals a link.
constexpr char kDomain[] = "sluice prefix identity 1";

void AppendNumber(std::string* text, uint64_t n) {
  text->append(reinterpret_cast<const char*>(&n), sizeof(n));
}

// With its length, so that two fields never run into each other.
void AppendText(std::string* text, const std::string& field) {
  AppendNumber(text, field.size());
  *text += field;
}

PrefixKey Hash(const void* data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.high64, hash.low64};
}

}  // namespace

std::string PrefixKey::Hex() const { return fmt::format("{:016x}{:016x}", high, low); }

PrefixKey RootKey(const PrefixIdentity& identity) {
  std::string text;
  AppendText(&text, kDomain);
  AppendText(&text, identity.model);
  AppendText(&text, identity.kv_format);
  AppendText(&text, identity.arithmetic);
  AppendNumber(&text, identity.page_bytes);
  AppendNumber(&text, identity.state_bytes);
  return Hash(text.data(), text.size());
}

PrefixKey ChainKey(const PrefixKey& parent, std::span<const TokenId> tokens) {
  const PrefixKey own = Hash(tokens.data(), tokens.size_bytes());
  const uint64_t link[] = {parent.high, parent.low, own.high, own.low, tokens.size()};
  return Hash(link, sizeof(link));
}

}  // namespace sluice
