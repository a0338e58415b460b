// The option groups that several verbs share: where the model is, how the engine runs, how tokens
// are picked.
//
// Contract: Add* declares, the structs hold what was given; nothing is read from the environment
// except the defaults named here (SLUICE_MODELS, SLUICE_ISA). Flags override the model's
// generation_config.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "sluice/engine.h"
#include "sluice/generate.h"

namespace sluice::cli {

// --budget --ctx --chunk --threads --cpus --kv --act --io --isa --lookahead --mlock --private
// --rope-scaling ...
void AddEngineArgs(Args* args, EngineOptions* options);
// The subset that decides a plan.
void AddPlanArgs(Args* args, EngineOptions* options);

struct SamplingArgs {
  bool greedy = false;
  std::optional<double> temperature, top_p, min_p, typical_p;
  std::optional<double> repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<double> dry_multiplier, dry_base;
  std::optional<int64_t> top_k, penalty_last_n, dry_allowed_length, dry_last_n;
  std::optional<uint64_t> seed;
  std::vector<std::string> dry_breakers;
  std::vector<std::pair<TokenId, double>> logit_bias;
};
void AddSamplingArgs(Args* args, SamplingArgs* sampling);

// The model's defaults, then the flags; text may be null. kUsage naming what is out of range.
Result<SamplingOptions> ResolveSampling(const SamplingArgs& flags, const std::string& defaults_json,
                                        const TextModel* text, uint32_t vocab);

// Options that came from elsewhere (a session file), then the flags.
Result<SamplingOptions> OverrideSampling(const SamplingArgs& flags, SamplingOptions base,
                                         const TextModel* text, uint32_t vocab);

// MODEL as given, or the small default model; kUsage with a hint when that is absent.
Result<std::string> ModelOrDefault(const std::string& given);

// Template variables: "key=JSON" into a JSON object text. kUsage when the value is no JSON.
Status AddVariable(const std::string& assignment, std::string* object_json);

}  // namespace sluice::cli
