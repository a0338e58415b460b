// The sampler: each step against a plain sort in doubles, ranges, hostile logits, speed,
// reproducibility.
#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "runtime/sampler_math.h"

namespace sluice {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// All filters off: a plain softmax draw.
SamplingOptions Off() {
  SamplingOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

std::vector<float> RandomLogits(uint32_t seed, size_t n, double spread = 3) {
  std::mt19937 engine(seed);
  std::vector<float> logits(n);
  for (float& x : logits) {
    double sum = 0;
    for (int i = 0; i < 6; ++i) sum += engine() / 4294967296.0 - 0.5;
    x = static_cast<float>(sum * spread);
  }
  return logits;
}

// Every token the options let through for these logits: drawn at many timeline lengths.
std::set<TokenId> Reachable(const SamplingOptions& o, const std::vector<float>& logits,
                            int draws = 3000) {
  TokenSampler sampler(o, static_cast<uint32_t>(logits.size()));
  std::vector<TokenId> timeline;
  std::set<TokenId> seen;
  for (int i = 0; i < draws; ++i) {
    auto id = sampler.Sample(logits, timeline);
    EXPECT_TRUE(id.ok()) << id.status().ToString();
    if (!id.ok()) break;
    seen.insert(*id);
    timeline.push_back(0);
  }
  return seen;
}

TokenId One(const SamplingOptions& o, const std::vector<float>& logits,
            const std::vector<TokenId>& timeline = {}) {
  TokenSampler sampler(o, static_cast<uint32_t>(logits.size()));
  auto id = sampler.Sample(logits, timeline);
  EXPECT_TRUE(id.ok()) << id.status().ToString();
  return id.ok() ? *id : -1;
}

TEST(DetMath, AgreesWithTheLibrary) {
  for (double x = 0; x > -690; x -= 0.0137) {
    EXPECT_NEAR(DetExp(x) / std::exp(x), 1, 1e-13) << x;
  }
  EXPECT_EQ(DetExp(0), 1);
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    EXPECT_NEAR(DetLog(x), std::log(x), 1e-13 * std::max(1.0, std::fabs(std::log(x)))) << x;
  }
  EXPECT_EQ(DetLog(1), 0);
}

TEST(Sampler, GreedyTakesTheLowestIndexOfTies) {
  SamplingOptions o;
  o.temperature = 0;
  EXPECT_EQ(One(o, {1, 5, 5, 2}), 1);
  EXPECT_EQ(One(o, {-kInf, -7, -kInf}), 1);
}

TEST(Sampler, InvalidLogitsAreAnErrorNeverAToken) {
  for (double temperature : {0.0, 0.8}) {
    SamplingOptions o;
    o.temperature = temperature;
    TokenSampler sampler(o, 3);
    const std::vector<TokenId> timeline = {1, 2};
    for (const std::vector<float>& bad :
         {std::vector<float>{0, NAN, 1}, {0, kInf, 1}, {-kInf, -kInf, -kInf}}) {
      auto id = sampler.Sample(bad, timeline);
      ASSERT_FALSE(id.ok());
      EXPECT_EQ(id.status().code(), Code::kFailed);
      EXPECT_NE(id.status().ToString().find("invalid logits"), std::string::npos);
      EXPECT_NE(id.status().ToString().find("token position 2"), std::string::npos);
    }
    EXPECT_FALSE(sampler.Sample(std::vector<float>{1, 2}, timeline).ok());
  }
}

TEST(Sampler, DrawFollowsTheSoftmax) {
  const std::vector<float> logits = {0, 1, 2, -kInf, 0.5f};
  TokenSampler sampler(Off(), 5);
  std::vector<TokenId> timeline;
  std::map<TokenId, int> count;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    ++count[*sampler.Sample(logits, timeline)];
    timeline.push_back(0);
  }
  double sum = 0;
  for (float x : logits) sum += std::exp(x);
  EXPECT_EQ(count.count(3), 0u);
  for (int i : {0, 1, 2, 4}) {
    const double p = std::exp(logits[i]) / sum;
    EXPECT_NEAR(count[i] / double{kDraws}, p, 5 * std::sqrt(p / kDraws)) << i;
  }
}

// The same bits on every machine: pinned once, from an independent computation of the generator.
TEST(Sampler, SameSeedSameTokensPinned) {
  SamplingOptions o = Off();
  o.seed = 42;
  const std::vector<float> logits(1000, 0.0f);
  std::vector<TokenId> timeline, ids;
  TokenSampler sampler(o, 1000);
  for (int i = 0; i < 8; ++i) {
    ids.push_back(*sampler.Sample(logits, timeline));
    timeline.push_back(ids.back());
  }
  EXPECT_EQ(ids, (std::vector<TokenId>{343, 955, 486, 67, 676, 67, 195, 734}));
  o.seed = 43;
  EXPECT_NE(One(o, logits), ids[0]);
}

TEST(Sampler, TopK) {
  const std::vector<float> logits = {1, 1.2f, 1.1f, 1.2f, 1, 0.9f};
  SamplingOptions o = Off();
  o.top_k = 3;
  EXPECT_EQ(Reachable(o, logits), (std::set<TokenId>{1, 2, 3}));
  o.top_k = 1;
  EXPECT_EQ(Reachable(o, logits), (std::set<TokenId>{1}));
  o.top_k = 0;  // off, not greedy (P02)
  EXPECT_EQ(Reachable(o, logits).size(), 6u);
  o.top_k = 100;
  EXPECT_EQ(Reachable(o, logits).size(), 6u);
}

// Heap and selection must choose the same set: compare with a sort, on both sides of the switch.
TEST(Sampler, TopKEqualsASort) {
  std::vector<float> logits = RandomLogits(5, 2000, 0.1);
  for (float& x : logits) x = std::round(x * 50) / 50;  // ties
  for (int k : {1, 7, 255, 256, 257, 700}) {
    std::vector<int> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[a] > logits[b]; });
    const std::set<TokenId> want(order.begin(), order.begin() + k);
    SamplingOptions o = Off();
    o.top_k = k;
    o.temperature = 1e6;  // flat: every survivor turns up
    EXPECT_EQ(Reachable(o, logits, 20 * k + 50), want) << k;
  }
}

TEST(Sampler, TopPAndMinPAndTypicalEqualAPlainSort) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const std::vector<float> logits = RandomLogits(seed, 60, seed % 3 == 0 ? 0.0 : 4.0);
    std::vector<double> p(logits.size());
    double sum = 0, entropy = 0;
    for (size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp(logits[i]);
    for (double& x : p) {
      x /= sum;
      entropy -= x * std::log(x);
    }
    const auto keep = [&](auto key, double target, bool beyond) {
      std::vector<int> order(p.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
      std::set<TokenId> kept;
      double mass = 0;
      for (int i : order) {
        kept.insert(i);
        mass += p[i];
        if (beyond ? mass > target : mass >= target) break;
      }
      return kept;
    };
    SamplingOptions o = Off();
    o.temperature = 1e6;
    o.top_p = 0.6013;
    EXPECT_EQ(Reachable(o, logits), keep([&](int i) { return -logits[i]; }, 0.6013, false)) << seed;
    o.top_p = 1;
    if (seed % 3 != 0) {  // equal deviations differ in the last bit only: no order to compare
      o.typical_p = 0.4017;
      EXPECT_EQ(Reachable(o, logits),
                keep([&](int i) { return std::fabs(-std::log(p[i]) - entropy); }, 0.4017, true))
          << seed;
      o.typical_p = 1;
    }
    o.min_p = 0.2;
    std::set<TokenId> want;
    const double best = *std::max_element(p.begin(), p.end());
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] >= 0.2 * best) want.insert(static_cast<TokenId>(i));
    }
    EXPECT_EQ(Reachable(o, logits), want) << seed;
  }
}

// P03: filters that would leave nothing leave one candidate.
TEST(Sampler, AlwaysAtLeastOneCandidate) {
  std::vector<SamplingOptions> hostile;
  for (int mask = 1; mask < 32; ++mask) {
    SamplingOptions o = Off();
    if (mask & 1) o.top_p = 0;
    if (mask & 2) o.min_p = 1;
    if (mask & 4) o.typical_p = 0;
    if (mask & 8) o.temperature = 1e-9;
    if (mask & 16) o.top_k = 1;
    hostile.push_back(o);
  }
  hostile.push_back(Off());
  hostile.back().temperature = 5e-324;
  hostile.push_back(Off());
  hostile.back().temperature = 1e30;
  for (const SamplingOptions& o : hostile) {
    TokenSampler sampler(o, 50);
    for (uint32_t seed = 0; seed < 30; ++seed) {
      std::vector<float> logits = RandomLogits(seed, 50, seed % 5 == 0 ? 0.0 : seed * 1.0);
      if (seed % 7 == 0) logits[seed] = 3e38f;
      if (seed % 6 == 0) std::fill(logits.begin() + 1, logits.end(), -kInf);
      auto id = sampler.Sample(logits, {});
      ASSERT_TRUE(id.ok()) << id.status().ToString();
      EXPECT_GE(*id, 0);
      EXPECT_LT(*id, 50);
      EXPECT_NE(logits[*id], -kInf);
      if (o.temperature == 1e-9 && o.typical_p == 1) {
        EXPECT_EQ(logits[*id], *std::max_element(logits.begin(), logits.end()));
      }
    }
  }
}

TEST(Sampler, RepeatPresenceFrequencyPenalties) {
  SamplingOptions o;
  o.temperature = 0;
  o.repeat_penalty = 2;
  EXPECT_EQ(One(o, {4, 3, 0}, {0}), 1);        // 4 / 2 < 3
  EXPECT_EQ(One(o, {-1, -1.5f, -9}, {0}), 1);  // -1 * 2 < -1.5
  o.penalty_last_n = 1;
  EXPECT_EQ(One(o, {4, 3, 0}, {0, 2}), 0);  // outside the window
  o.penalty_last_n = 0;
  EXPECT_EQ(One(o, {4, 3, 0}, {0, 0}), 0);
  o.penalty_last_n = -1;
  EXPECT_EQ(One(o, {4, 3, 0}, std::vector<TokenId>(500, 0)), 1);
  o.repeat_penalty = 1;
  o.frequency_penalty = 0.4;
  EXPECT_EQ(One(o, {4, 3, 0}, {0, 0}), 0);     // 4 - 0.8
  EXPECT_EQ(One(o, {4, 3, 0}, {0, 0, 0}), 1);  // 4 - 1.2
  o.frequency_penalty = 0;
  o.presence_penalty = 0.9;
  EXPECT_EQ(One(o, {4, 3, 0}, {0, 0, 0}), 0);
  o.presence_penalty = 1.1;
  EXPECT_EQ(One(o, {4, 3, 0}, {0}), 1);
  EXPECT_EQ(One(o, {4, 3, 0}, {0, 77, -5}), 1);  // foreign ids in the timeline are ignored
  o.presence_penalty = 1e30;
  EXPECT_EQ(One(o, {4, -kInf, -kInf}, {0, 1}), 0);  // never an error by itself
}

TEST(Sampler, LogitBias) {
  SamplingOptions o;
  o.temperature = 0;
  o.logit_bias = {{2, 10}, {1, -kInf}};
  EXPECT_EQ(One(o, {4, 5, 0}), 2);
  o.logit_bias = {{1, -INFINITY}};
  EXPECT_EQ(One(o, {4, 5, 0}), 0);
  o.logit_bias = {{0, -INFINITY}, {1, -INFINITY}, {2, -INFINITY}};
  TokenSampler sampler(o, 3);
  auto id = sampler.Sample(std::vector<float>{1, 2, 3}, {});
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.status().code(), Code::kUsage);
}

TEST(Sampler, DryPenalisesTheContinuationOfARepetition) {
  SamplingOptions o;
  o.temperature = 0;
  o.dry_multiplier = 1;
  o.dry_base = 2;
  o.dry_allowed_length = 2;
  // ... 1 2 3 9 ... 1 2: the 3 would continue a repetition of length 2: penalty 1 * 2^0.
  EXPECT_EQ(One(o, {0, 0, 0, 4, 3.5f, 0, 0, 0, 0, 0}, {1, 2, 3, 9, 1, 2}), 4);
  EXPECT_EQ(One(o, {0, 0, 0, 4, 2.5f, 0, 0, 0, 0, 0}, {1, 2, 3, 9, 1, 2}), 3);
  // Length 3: 2^1.
  EXPECT_EQ(One(o, {0, 0, 0, 4, 2.5f, 0, 0, 0, 0, 0}, {7, 1, 2, 3, 9, 7, 1, 2}), 4);
  // Too short to matter.
  EXPECT_EQ(One(o, {0, 0, 0, 4, 3.5f, 0, 0, 0, 0, 0}, {2, 3, 9, 2}), 3);
  // A breaker between cuts the repetition, and a breaker itself is never penalised.
  o.dry_breakers = {7};
  EXPECT_EQ(One(o, {0, 0, 0, 4, 2.5f, 0, 0, 0, 0, 0}, {7, 1, 2, 3, 9, 7, 1, 2}), 3);
  o.dry_breakers = {3};
  EXPECT_EQ(One(o, {0, 0, 0, 4, 3.5f, 0, 0, 0, 0, 0}, {1, 2, 3, 9, 1, 2}), 3);
  o.dry_breakers.clear();
  o.dry_breaker_sequences = {{9, 1}};  // only one token follows the breaker
  EXPECT_EQ(One(o, {0, 0, 0, 4, 3.5f, 0, 0, 0, 0, 0}, {1, 2, 3, 9, 1, 2}), 3);
  o.dry_breaker_sequences.clear();
  o.dry_last_n = 5;  // the first 1 is out of sight: length 1
  EXPECT_EQ(One(o, {0, 0, 0, 4, 3.5f, 0, 0, 0, 0, 0}, {1, 2, 3, 9, 1, 2}), 3);
}

// DRY against its definition, quadratically, on random timelines of a small alphabet.
TEST(Sampler, DryEqualsItsDefinition) {
  std::mt19937 engine(3);
  for (int round = 0; round < 200; ++round) {
    const int n = 2 + engine() % 40, vocab = 2 + engine() % 3;
    std::vector<TokenId> t(n);
    for (TokenId& id : t) id = static_cast<TokenId>(engine() % vocab);
    SamplingOptions o;
    o.temperature = 0;
    o.dry_multiplier = 0.5;
    o.dry_base = 1.25;
    std::vector<float> logits(vocab);
    for (float& x : logits) x = static_cast<float>(engine() % 1000) / 100;
    std::vector<double> want(logits.begin(), logits.end());
    for (int id = 0; id < vocab; ++id) {
      int longest = -1;
      for (int next = 1; next < n; ++next) {
        int length = 0;
        while (length < next && t[next - 1 - length] == t[n - 1 - length]) ++length;
        if (t[next] == id) longest = std::max(longest, length);
      }
      if (longest >= 2) want[id] = float(want[id] - 0.5 * std::pow(1.25, longest - 2));
    }
    const auto best = std::max_element(want.begin(), want.end()) - want.begin();
    EXPECT_EQ(One(o, logits, t), best) << round;
  }
}

TEST(Sampler, PenaltiesLeaveNoTraceBetweenCalls) {
  SamplingOptions o;
  o.temperature = 0;
  o.repeat_penalty = 1.3;
  o.dry_multiplier = 0.8;
  TokenSampler reused(o, 20);
  std::mt19937 engine(9);
  std::vector<TokenId> timeline;
  for (int i = 0; i < 200; ++i) {
    const std::vector<float> logits = RandomLogits(100 + i, 20);
    const TokenId id = *reused.Sample(logits, timeline);
    EXPECT_EQ(id, One(o, logits, timeline));
    timeline.push_back(i % 3 ? id : static_cast<TokenId>(engine() % 20));
  }
}

TEST(Sampler, RangesAreCheckedByName) {
  const auto rejects = [](const char* name, auto set) {
    SamplingOptions o;
    set(o);
    const Status status = ValidateSampling(o, 100);
    EXPECT_EQ(status.code(), Code::kUsage) << name;
    EXPECT_NE(status.ToString().find(name), std::string::npos) << status.ToString();
    TokenSampler sampler(o, 100);
    EXPECT_EQ(sampler.Sample(std::vector<float>(100), {}).status().code(), Code::kUsage) << name;
  };
  rejects("temperature", [](auto& o) { o.temperature = -1; });
  rejects("temperature", [](auto& o) { o.temperature = NAN; });
  rejects("top_k", [](auto& o) { o.top_k = -1; });
  rejects("top_p", [](auto& o) { o.top_p = 1.01; });
  rejects("min_p", [](auto& o) { o.min_p = -0.1; });
  rejects("typical_p", [](auto& o) { o.typical_p = NAN; });
  rejects("repeat_penalty", [](auto& o) { o.repeat_penalty = 0; });
  rejects("presence_penalty", [](auto& o) { o.presence_penalty = INFINITY; });
  rejects("frequency_penalty", [](auto& o) { o.frequency_penalty = NAN; });
  rejects("penalty_last_n", [](auto& o) { o.penalty_last_n = -2; });
  rejects("dry_base", [](auto& o) { o.dry_base = 0.5; });
  rejects("dry_last_n", [](auto& o) { o.dry_last_n = -2; });
  rejects("logit_bias", [](auto& o) { o.logit_bias = {{100, 1}}; });
  rejects("logit_bias", [](auto& o) { o.logit_bias = {{-2, 1}}; });
  rejects("logit_bias", [](auto& o) { o.logit_bias = {{2, NAN}}; });
  rejects("logit_bias", [](auto& o) { o.logit_bias = {{2, INFINITY}}; });
  rejects("dry_breakers", [](auto& o) { o.dry_breakers = {100}; });
  EXPECT_TRUE(ValidateSampling(SamplingOptions(), 100).ok());
}

TEST(GenerationDefaults, AreTakenAndChecked) {
  SamplingOptions o;
  EXPECT_TRUE(ApplyGenerationDefaults("{}", &o).ok());
  EXPECT_EQ(o.top_k, 40);
  ASSERT_TRUE(ApplyGenerationDefaults(
                  R"({"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0,"repetition_penalty":1.05,
                      "do_sample":true,"eos_token_id":[1,2],"typical_p":null})",
                  &o)
                  .ok());
  EXPECT_EQ(o.temperature, 0.6);
  EXPECT_EQ(o.top_k, 20);
  EXPECT_EQ(o.min_p, 0);
  EXPECT_EQ(o.repeat_penalty, 1.05);
  EXPECT_EQ(o.typical_p, 1);
  ASSERT_TRUE(ApplyGenerationDefaults(R"({"do_sample":false,"top_k":-1})", &o).ok());
  EXPECT_EQ(o.temperature, 0);
  EXPECT_EQ(o.top_k, 0);
  for (const char* bad :
       {"[]", "{", R"({"top_p":"x"})", R"({"temperature":-1})", R"({"do_sample":1})"}) {
    EXPECT_EQ(ApplyGenerationDefaults(bad, &o).code(), Code::kBadModel) << bad;
  }
  EXPECT_EQ(o.temperature, 0);  // untouched by a failure
}

// P02: 150,000 logits without top-k, beside a plain pass over them that takes an exponential of
// each, in turns: under load both slow down. The numbers are in docs/sampling.md.
TEST(Sampler, FastOnALargeVocabulary) {
  const auto measure = [](const SamplingOptions& o, const std::vector<float>& logits) {
    TokenSampler sampler(o, static_cast<uint32_t>(logits.size()));
    std::vector<TokenId> timeline = {1, 2, 3};
    const auto ms = [](const auto& work) {
      const auto start = std::chrono::steady_clock::now();
      work();
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
          .count();
    };
    std::pair<double, double> best = {1e9, 1e9};  // the sampler, the plain pass
    float sum = 0;
    for (int i = 0; i < 9; ++i) {
      best.first =
          std::min(best.first, ms([&] { EXPECT_TRUE(sampler.Sample(logits, timeline).ok()); }));
      best.second = std::min(best.second, ms([&] {
                               for (float x : logits) sum += std::exp(x - 30);
                             }));
    }
    EXPECT_GT(sum, 0);
    return best;
  };
  const std::vector<float> peaked = RandomLogits(1, 150000, 6), flat(150000, 1.5f);
  SamplingOptions min_p = Off();
  min_p.min_p = 0.05;
  SamplingOptions top_p = Off();
  top_p.top_p = 0.95;
  SamplingOptions usual;
  SamplingOptions everything = Off();
  everything.top_p = 0.9;
  everything.typical_p = 0.9;
  everything.min_p = 0.01;
  everything.repeat_penalty = 1.1;
  for (const auto& [name, o] : {std::pair{"min_p", min_p},
                                {"top_p", top_p},
                                {"usual", usual},
                                {"everything", everything}}) {
    const auto [a, plain] = measure(o, peaked);
    const auto [b, plain_b] = measure(o, flat);
    std::printf(
        "[ sampler  ] 150k vocabulary, %-10s %.2f ms peaked, %.2f ms flat (plain pass %.2f)\n",
        name, a, b, plain);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (std::string_view(name) == "min_p" || std::string_view(name) == "usual") {
      EXPECT_LT(a, 4 * plain) << name;
      EXPECT_LT(b, 4 * plain_b) << name;
    }
#endif
  }
}

}  // namespace
}  // namespace sluice
