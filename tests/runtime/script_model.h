// A scripted model for tests of generation and chat: what it will say is written down, so every
// cut, limit and reuse can be checked exactly.
//
// Contract: test-only; single-threaded.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/chat_core.h"
#include "api/generate_core.h"

namespace sluice::script {

// Bytes are tokens 0..255; kEog ends, kBos begins, kTwo stands for two characters and kPair for a
// split one.
constexpr TokenId kEog = 256, kBos = 257, kStoX = 258, kControl = 259;
constexpr uint32_t kVocab = 260;

inline std::string TextOf(TokenId id) {
  if (id < 256) return std::string(1, static_cast<char>(id));
  return id == kStoX ? "STOX" : "";
}

inline std::vector<TokenId> Ids(const std::string& text) {
  std::vector<TokenId> ids;
  for (unsigned char c : text) ids.push_back(c);
  return ids;
}

// After `prompt` tokens it says `script`, then EOG for ever. Remembers what was asked of it.
class Script : public LogitsSource {
 public:
  explicit Script(std::vector<TokenId> script, uint32_t capacity = 1000)
      : script_(std::move(script)), capacity_(capacity) {}

  Status Append(std::span<const TokenId> ids, const std::atomic<bool>* cancel) override {
    if (cancel && cancel->load()) return Status(Code::kFailed, "cancelled");
    if (fail_at >= 0 && static_cast<int>(tokens_.size() + ids.size()) >= fail_at) {
      return Status(Code::kIo, "lost device");
    }
    if (tokens_.size() + ids.size() > capacity_) return Status(Code::kContextFull, "context full");
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    appended += ids.size();
    ++appends;
    if (ids.size() > 1 && !resume) said_ = 0;
    Predict();
    return Status();
  }
  std::span<const float> logits() const override { return row_; }
  const std::vector<TokenId>& tokens() const override { return tokens_; }
  uint32_t capacity() const override { return capacity_; }
  uint32_t Rewind(uint32_t n) override {
    n = std::min<uint32_t>(n, static_cast<uint32_t>(tokens_.size()));
    if (whole_only) n = 0;
    tokens_.resize(n);
    row_.clear();
    if (resume && said_ > 0) --said_;  // the prediction that nobody took comes again
    return n;
  }

  int fail_at = -1;
  bool whole_only = false;  // as a recurrent model without a snapshot
  bool resume = false;      // a longer append does not begin the script anew
  bool poison = false;      // NaN instead of the next row
  size_t appended = 0, appends = 0;

 private:
  void Predict() {
    row_.assign(kVocab, 0.0f);
    last_ = said_ < script_.size() ? script_[said_++] : kEog;
    row_[last_] = 10;
    if (poison && said_ == 3) row_[5] = NAN;
  }

  std::vector<TokenId> script_, tokens_;
  std::vector<float> row_;
  uint32_t capacity_;
  size_t said_ = 0;
  TokenId last_ = -1;
};

// Holds back incomplete UTF-8, drops a tail, as the real stream decoder does.
class Bytes : public TextStream {
 public:
  std::string Push(TokenId id) override {
    pending_ += TextOf(id);
    size_t whole = 0, i = 0;
    while (i < pending_.size()) {
      const unsigned char c = static_cast<unsigned char>(pending_[i]);
      const size_t n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
      if (i + n > pending_.size()) break;
      whole = i += n;
    }
    std::string out = pending_.substr(0, whole);
    pending_.erase(0, whole);
    return out;
  }
  std::string Flush() override {
    pending_.clear();
    return "";
  }

 private:
  std::string pending_;
};

inline GenerateOptions Greedy() {
  GenerateOptions options;
  options.sampling.temperature = 0;
  return options;
}

inline const std::vector<TokenId> kEogs = {kEog};

// A template of bytes: "<s>..." for the system, "<u>..." and "<a>..." for turns, then "<a>".
inline Result<std::vector<TokenId>> Render(const std::string& messages_json) {
  const auto messages = nlohmann::json::parse(messages_json);
  std::string text;
  for (const auto& m : messages) {
    if (m["content"] == "BAD") return Status(Code::kFailed, "chat template raised");
    text += "<" + m["role"].get<std::string>().substr(0, 1) + ">" + m["content"].get<std::string>();
  }
  return Ids(text + "<a>");
}

// A chat with scripts: notices and the requests for summaries are kept.
struct Talk {
  Result<GenerateResult> Ask(Script* script, const std::string& user,
                             GenerateOptions options = Greedy()) {
    return chat.Ask(user, Call(script, options));
  }
  Result<GenerateResult> Continue(Script* script, GenerateOptions options = Greedy()) {
    return chat.Continue(Call(script, options));
  }
  ChatCall Call(Script* script, const GenerateOptions& options) {
    bytes = Bytes();
    generation = std::make_unique<Generation>(options, &bytes, kEogs, kVocab);
    ChatCall call;
    call.render = Render;
    call.source = script;
    call.generation = generation.get();
    call.notice = [this](std::string_view text) { notices.emplace_back(text); };
    if (summary) {
      call.summarise = [this](std::span<const TokenId> prompt, int64_t tokens_max) {
        std::string text;
        for (TokenId id : prompt) text += TextOf(id);
        requests.push_back(text);
        return summary(tokens_max);
      };
    }
    return call;
  }
  ChatCore chat;
  Bytes bytes;
  std::unique_ptr<Generation> generation;
  std::vector<std::string> notices, requests;
  std::function<Result<GenerateResult>(int64_t tokens_max)> summary;
};

}  // namespace sluice::script
