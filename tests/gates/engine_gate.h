// What the gates share: golden models, made-up texts, an engine's answer to them.
//
// Contract: for tests. Everything is deterministic; failures are recorded where they happen, and an
// engine that does not open is a null pointer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sluice/engine.h"
#include "sluice/session.h"
#include "tests/test_data.h"

namespace sluice::test {

inline std::string GoldenModel(const std::string& name) {
  return SharedPath("golden/" + name + "/model.gguf");
}

// Ids of a small vocabulary that do not repeat from page to page.
inline std::vector<TokenId> Text(uint32_t n, uint32_t vocab, uint32_t seed) {
  std::vector<TokenId> ids(n);
  for (uint32_t i = 0; i < n; ++i)
    ids[i] = static_cast<TokenId>((i * 7919u + seed * 104729u + i / 64 * 31u + 13u) % vocab);
  return ids;
}

inline std::vector<TokenId> Join(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline EngineOptions GateOptions(uint32_t context, uint64_t budget_bytes = 0) {
  EngineOptions options;
  options.need_text = false;
  options.threads = 2;
  options.context = context;
  options.budget_bytes = budget_bytes;
  return options;
}

inline std::unique_ptr<Engine> OpenEngine(const std::string& path, const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::Open(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return engine.ok() ? std::move(*engine) : nullptr;
}

inline std::vector<float> Logits(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

// A prompt with all of its logits, then greedy tokens.
inline void Go(Session* session, const std::vector<TokenId>& ids, uint32_t decode) {
  const Status status = session->Append(ids, [](uint32_t, std::span<const float>) {});
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (uint32_t i = 0; i < decode; ++i) {
    const std::span<const float> logits = session->logits();
    const auto best =
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const Status next = session->Append({&best, 1});
    ASSERT_TRUE(next.ok()) << next.ToString();
  }
}

}  // namespace sluice::test
