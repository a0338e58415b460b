#include "api/session_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <cstring>

#include "api/session_format.h"
#include "base/limits.h"
#include "formats/printable.h"

namespace sluice {
namespace {

using session_format::Header;
static_assert(std::endian::native == std::endian::little, "the layout is written as it lies");

class Writer {
 public:
  explicit Writer(size_t header_bytes) : bytes_(header_bytes) {}
  template <typename T>
  void Number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void Text(const std::string& text) {
    Number(static_cast<uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  void Ids(const std::vector<TokenId>& ids) {
    Number(static_cast<uint32_t>(ids.size()));
    for (TokenId id : ids) Number(id);
  }
  std::vector<uint8_t> Take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

// The first failure is kept and later reads return zeros, so that a run of reads is checked once.
class Reader {
 public:
  explicit Reader(ByteSpan bytes) : rest_(bytes) {}
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

  template <typename T>
  T Number() {
    T value{};
    if (Has(sizeof(T))) {
      std::memcpy(&value, rest_.data(), sizeof(T));
      rest_ = rest_.subspan(sizeof(T));
    }
    return value;
  }
  bool Flag() {
    const auto value = Number<uint8_t>();
    if (value > 1) Fail();
    return value == 1;
  }
  std::string Text() {
    const auto size = Number<uint32_t>();
    if (!Has(size)) return "";
    std::string text(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
    return text;
  }
  // A count of things of at least `bytes_min` bytes each: no more than can be there.
  uint32_t Count(size_t bytes_min) {
    const auto count = Number<uint32_t>();
    if (count > rest_.size() / bytes_min) Fail();
    return ok_ ? count : 0;
  }
  std::vector<TokenId> Ids(uint32_t vocab) {
    std::vector<TokenId> ids(Count(sizeof(TokenId)));
    for (TokenId& id : ids) {
      id = Number<TokenId>();
      if (id < 0 || static_cast<uint32_t>(id) >= vocab) Fail();
    }
    return ids;
  }
  void Fail() { ok_ = false; }

 private:
  bool Has(size_t n) {
    if (n > rest_.size()) Fail();
    return ok_;
  }
  ByteSpan rest_;
  bool ok_ = true;
};

void WriteIdentity(const ModelIdentity& m, Writer* w) {
  w->Text(m.name);
  w->Text(m.architecture);
  w->Text(m.model);
  w->Number(m.vocab);
  w->Text(m.vocabulary);
}

void ReadIdentity(Reader* r, ModelIdentity* m) {
  m->name = r->Text();
  m->architecture = r->Text();
  m->model = r->Text();
  m->vocab = r->Number<uint32_t>();
  m->vocabulary = r->Text();
  if (m->vocab == 0 || m->vocab > limits::kVocabMax) r->Fail();
}

void WriteChat(const ChatState& c, Writer* w) {
  w->Text(c.system);
  w->Text(c.summary);
  w->Number(static_cast<uint32_t>(c.turns.size()));
  for (const ChatTurn& turn : c.turns) {
    w->Text(turn.user);
    w->Text(turn.answer);
  }
  w->Number(static_cast<uint8_t>(c.context_full));
  w->Ids(c.timeline);
  w->Number(c.answer_at);
  w->Number(static_cast<uint8_t>(c.cut));
}

void ReadChat(uint32_t vocab, Reader* r, ChatState* c) {
  c->system = r->Text();
  c->summary = r->Text();
  c->turns.resize(r->Count(2 * sizeof(uint32_t)));
  for (ChatTurn& turn : c->turns) {
    turn.user = r->Text();
    turn.answer = r->Text();
  }
  const auto mode = r->Number<uint8_t>();
  if (mode > static_cast<uint8_t>(ContextFull::kSummarise)) return r->Fail();
  c->context_full = static_cast<ContextFull>(mode);
  c->timeline = r->Ids(vocab);
  c->answer_at = r->Number<uint32_t>();
  c->cut = r->Flag();
  if (c->timeline.size() > limits::kContextMax || c->answer_at > c->timeline.size()) r->Fail();
  if (c->cut && (c->turns.empty() || c->answer_at == 0)) r->Fail();
}

void WriteSampling(const SamplingOptions& s, Writer* w) {
  w->Number(session_format::kGeneratorSplitMix);
  w->Number(s.seed);
  for (double value : {s.temperature, s.top_p, s.min_p, s.typical_p, s.repeat_penalty,
                       s.presence_penalty, s.frequency_penalty, s.dry_multiplier, s.dry_base}) {
    w->Number(value);
  }
  for (int value : {s.top_k, s.penalty_last_n, s.dry_allowed_length, s.dry_last_n}) {
    w->Number(static_cast<int32_t>(value));
  }
  w->Ids(s.dry_breakers);
  w->Number(static_cast<uint32_t>(s.dry_breaker_sequences.size()));
  for (const std::vector<TokenId>& sequence : s.dry_breaker_sequences) w->Ids(sequence);
  w->Number(static_cast<uint32_t>(s.logit_bias.size()));
  for (const auto& [id, bias] : s.logit_bias) {
    w->Number(id);
    w->Number(bias);
  }
}

void ReadSampling(uint32_t vocab, Reader* r, SamplingOptions* s) {
  if (r->Number<uint32_t>() != session_format::kGeneratorSplitMix) r->Fail();
  s->seed = r->Number<uint64_t>();
  for (double* value :
       {&s->temperature, &s->top_p, &s->min_p, &s->typical_p, &s->repeat_penalty,
        &s->presence_penalty, &s->frequency_penalty, &s->dry_multiplier, &s->dry_base}) {
    *value = r->Number<double>();
  }
  for (int* value : {&s->top_k, &s->penalty_last_n, &s->dry_allowed_length, &s->dry_last_n}) {
    *value = r->Number<int32_t>();
  }
  s->dry_breakers = r->Ids(vocab);
  s->dry_breaker_sequences.resize(r->Count(sizeof(uint32_t)));
  for (std::vector<TokenId>& sequence : s->dry_breaker_sequences) sequence = r->Ids(vocab);
  s->logit_bias.resize(r->Count(sizeof(TokenId) + sizeof(double)));
  for (auto& [id, bias] : s->logit_bias) {
    id = r->Number<TokenId>();
    bias = r->Number<double>();
  }
  if (r->ok() && !ValidateSampling(*s, vocab).ok()) r->Fail();
}

void WriteOptions(const SessionFile& s, Writer* w) {
  w->Text(s.render.tools_json);
  w->Text(s.render.extra_json);
  w->Number(static_cast<uint8_t>(s.render.add_generation_prompt));
  w->Number(s.render.now_unix);
  w->Number(s.generate.max_tokens);
  w->Number(static_cast<uint8_t>(s.generate.ignore_eog));
  w->Number(static_cast<uint32_t>(s.generate.stops.size()));
  for (const std::string& stop : s.generate.stops) w->Text(stop);
  WriteSampling(s.generate.sampling, w);
}

void ReadOptions(Reader* r, SessionFile* s) {
  s->render.tools_json = r->Text();
  s->render.extra_json = r->Text();
  s->render.add_generation_prompt = r->Flag();
  s->render.now_unix = r->Number<int64_t>();
  s->generate.max_tokens = r->Number<int64_t>();
  s->generate.ignore_eog = r->Flag();
  s->generate.stops.resize(r->Count(sizeof(uint32_t)));
  for (std::string& stop : s->generate.stops) stop = r->Text();
  ReadSampling(s->identity.vocab, r, &s->generate.sampling);
  if (s->generate.max_tokens < -1 || !StopMatcher::Validate(s->generate.stops).ok()) r->Fail();
}

XXH128_hash_t Checksum(Header header, ByteSpan payload) {
  header.checksum_high = header.checksum_low = 0;
  // One after the other: the first hash is the seed that ties the header to the payload.
  const uint64_t seed = XXH3_64bits(&header, sizeof(header));
  return XXH3_128bits_withSeed(payload.data(), payload.size(), seed);
}

// The payload of a file whose envelope is whole.
Result<ByteSpan> Open(ByteSpan bytes, const std::string& name) {
  const auto bad = [&](std::string what, std::string hint = {}) {
    return Status(Code::kIo, "session file: " + what, name, std::move(hint));
  };
  Header header{};
  if (bytes.empty()) return bad("empty");
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof(header)));
  if (std::memcmp(header.magic, session_format::kMagic,
                  std::min(bytes.size(), sizeof(header.magic))) != 0) {
    return bad("not a session file of sluice");
  }
  if (bytes.size() < sizeof(header)) {
    return bad(
        fmt::format("truncated: {} bytes, its header alone has {}", bytes.size(), sizeof(header)));
  }
  if (header.version > session_format::kVersion) {
    return bad(fmt::format("version {}, and this program reads up to {}", header.version,
                           session_format::kVersion),
               "use a newer sluice");
  }
  if (header.version == 0 || header.flags != 0 || header.reserved != 0) {
    return bad("damaged: its header makes no sense");
  }
  const ByteSpan payload = bytes.subspan(sizeof(header));
  if (header.payload_bytes > payload.size()) {
    return bad(fmt::format("truncated: its content has {} of {} bytes", payload.size(),
                           header.payload_bytes));
  }
  if (header.payload_bytes < payload.size()) return bad("damaged: bytes after its end");
  const XXH128_hash_t sum = Checksum(header, payload);
  if (sum.high64 != header.checksum_high || sum.low64 != header.checksum_low) {
    return bad("damaged: the checksum does not match");
  }
  return payload;
}

}  // namespace

std::vector<uint8_t> SerializeSession(const SessionFile& session) {
  Writer w(sizeof(Header));
  WriteIdentity(session.identity, &w);
  WriteChat(session.chat, &w);
  WriteOptions(session, &w);
  std::vector<uint8_t> bytes = w.Take();
  SealSession(bytes);
  return bytes;
}

void SealSession(MutableByteSpan bytes) {
  const ByteSpan payload = bytes.subspan(sizeof(Header));
  Header header{};
  std::memcpy(header.magic, session_format::kMagic, sizeof(header.magic));
  header.version = session_format::kVersion;
  header.payload_bytes = payload.size();
  const XXH128_hash_t sum = Checksum(header, payload);
  header.checksum_high = sum.high64;
  header.checksum_low = sum.low64;
  std::memcpy(bytes.data(), &header, sizeof(header));
}

Result<SessionFile> ParseSession(ByteSpan bytes, const std::string& name) {
  SLUICE_ASSIGN(const ByteSpan payload, Open(bytes, name));
  Reader reader(payload);
  SessionFile session;
  ReadIdentity(&reader, &session.identity);
  if (reader.ok()) ReadChat(session.identity.vocab, &reader, &session.chat);
  if (reader.ok()) ReadOptions(&reader, &session);
  if (!reader.ok() || !reader.at_end()) {
    return Status(Code::kIo, "session file: its content makes no sense", name);
  }
  return session;
}

Status CheckIdentity(const ModelIdentity& file, const ModelIdentity& here,
                     const std::string& name) {
  const bool same_words = file.vocab == here.vocab && file.vocabulary == here.vocabulary;
  if (file.model == here.model && same_words) return {};
  const auto describe = [](const ModelIdentity& m) {
    return fmt::format("'{}' ({}, {} tokens, {})", Printable(m.name), Printable(m.architecture),
                       m.vocab, Printable(m.model.substr(0, 8)));
  };
  return Status(
      Code::kUsage,
      fmt::format("the session belongs to another {}: {}, not {}",
                  same_words ? "model" : "model and vocabulary", describe(file), describe(here)),
      name, "give the model it was made with, or another file");
}

}  // namespace sluice
