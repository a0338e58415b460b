// Tiny forged files and what an engine makes of them.
//
// Contract: for tests. Every file lies in a folder of its own that is removed with the fixture.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "formats/route_trace.h"
#include "pack/forge.h"
#include "pack/forge_routing.h"
#include "sluice/engine.h"
#include "sluice/session.h"
#include "tests/temp_folder.h"

namespace sluice::testing {

using test::TempFolder;

inline std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline RouteTrace ReadRoutes(const std::string& path) {
  const std::string text = Slurp(path);
  const ByteSpan bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  Result<RouteTrace> trace = ParseRouteTrace(bytes, path);
  EXPECT_TRUE(trace.ok()) << trace.status().ToString();
  return trace.ok() ? std::move(*trace) : RouteTrace();
}

// A few layers of a shape, all sizes a tenth or less, in its default recipe.
inline ForgeOptions Tiny(const std::string& shape) {
  ForgeOptions o;
  o.shape = shape;
  o.overrides.layers = 3;
  o.overrides.experts = 16;
  o.overrides.used = 3;
  o.overrides.hidden = 256;
  o.overrides.expert_ff = 256;
  o.overrides.heads = 4;
  o.overrides.kv_heads = shape == "olmoe-7b" ? 4 : 2;
  o.overrides.head_dim = 64;
  o.overrides.vocab = 640;
  o.overrides.context = 2048;
  if (shape == "qwen3.6-35b-a3b") {
    o.overrides.layers = 4;  // three DeltaNet, one attention
    o.overrides.shared_ff = 256;
    o.overrides.key_heads = 2;
    o.overrides.value_heads = 4;
    o.overrides.delta_dim = 64;
  }
  return o;
}

struct Replay {
  std::vector<TokenId> greedy;
  RouteTrace routes;
};

// Runs ids through an engine, then decodes greedily; the recorder writes beside the model.
inline Replay RunForged(const std::string& path, const std::vector<TokenId>& ids, uint32_t decode,
                        ActType act = ActType::kQ8) {
  Replay out;
  EngineOptions options;
  options.context = static_cast<uint32_t>(ids.size()) + decode + 8;
  options.threads = 2;
  options.need_text = false;
  options.act = act;
  options.route_trace_path = path + ".routes.csv";
  {
    Result<std::unique_ptr<Engine>> engine = Engine::Open(path, options);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    if (!engine.ok()) return out;
    Result<std::unique_ptr<Session>> session = Session::Create(engine->get());
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    Status status = (*session)->Append(ids);
    for (uint32_t i = 0; i < decode && status.ok(); ++i) {
      const std::span<const float> logits = (*session)->logits();
      out.greedy.push_back(
          static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      status = (*session)->Append(std::span<const TokenId>(&out.greedy.back(), 1));
    }
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  out.routes = ReadRoutes(options.route_trace_path);
  return out;
}

// Every slot of the replay against the plan: step s ran token ids[s].
inline void ExpectPlanned(const RouteTrace& routes, const ForgeRouting& plan,
                          const std::vector<TokenId>& ids, uint32_t layers) {
  ASSERT_EQ(routes.rows.size(), ids.size() * layers * plan.used());
  uint64_t wrong = 0;
  double error = 0;
  for (const RouteRow& row : routes.rows) {
    const uint32_t code = static_cast<uint32_t>(ids[row.step]) % plan.codes();
    const uint16_t* experts = plan.experts(code, row.layer);
    const uint16_t* at = std::find(experts, experts + plan.used(), row.expert);
    if (at == experts + plan.used()) {
      ++wrong;
      continue;
    }
    const float want = plan.weights(code, row.layer)[at - experts];
    error = std::max(error, std::abs(static_cast<double>(row.weight) - want));
  }
  EXPECT_EQ(wrong, 0u) << "of " << routes.rows.size() << " slots";
  EXPECT_LE(error, 1e-3);
  ::testing::Test::RecordProperty("max_weight_error", std::to_string(error));
}

}  // namespace sluice::testing
