// Ranges of the sampling options, and what a model's generation_config says about them.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "sluice/sampling.h"

namespace sluice {
namespace {

struct Range {
  const char* name;
  double value, low, high;
  const char* meaning;
};

Status CheckRanges(const SamplingOptions& o) {
  constexpr double kHuge = 1e30;  // finite, and far beyond any use
  const Range ranges[] = {
      {"temperature", o.temperature, 0, kHuge, "0 is greedy"},
      {"top_k", double(o.top_k), 0, INT32_MAX, "0 is off"},
      {"top_p", o.top_p, 0, 1, "1 is off"},
      {"min_p", o.min_p, 0, 1, "0 is off"},
      {"typical_p", o.typical_p, 0, 1, "1 is off"},
      {"repeat_penalty", o.repeat_penalty, 1e-6, 1e6, "1 is off"},
      {"presence_penalty", o.presence_penalty, -kHuge, kHuge, "0 is off"},
      {"frequency_penalty", o.frequency_penalty, -kHuge, kHuge, "0 is off"},
      {"penalty_last_n", double(o.penalty_last_n), -1, INT32_MAX, "-1 is the whole timeline"},
      {"dry_multiplier", o.dry_multiplier, 0, kHuge, "0 is off"},
      {"dry_base", o.dry_base, 1, kHuge, "the default is 1.75"},
      {"dry_allowed_length", double(o.dry_allowed_length), 0, INT32_MAX, "the default is 2"},
      {"dry_last_n", double(o.dry_last_n), -1, INT32_MAX, "-1 is the whole timeline"},
  };
  for (const Range& r : ranges) {
    if (r.value >= r.low && r.value <= r.high) continue;
    return Status(Code::kUsage, fmt::format("{} is {}", r.name, r.value), "sampling options",
                  fmt::format("want {} to {}; {}", r.low, r.high, r.meaning));
  }
  return Status();
}

Status CheckId(const char* name, TokenId id, uint32_t vocab) {
  if (id >= 0 && (vocab == 0 || static_cast<uint32_t>(id) < vocab)) return Status();
  return Status(Code::kUsage, fmt::format("{} names token id {}", name, id), "sampling options",
                fmt::format("the vocabulary has ids 0 to {}", int64_t{vocab} - 1));
}

using nlohmann::json;

Status BadKey(const char* key, const json& value) {
  return Status(Code::kBadModel,
                fmt::format("generation_config has {} = {}", key,
                            value.dump(-1, ' ', false, json::error_handler_t::replace)),
                "generation_config", "set the option on the command line or mend the file");
}

// Reads a number in [low, high] into *out; absent and null keys leave it alone.
Status Take(const json& object, const char* key, double low, double high, double* out) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return Status();
  if (!it->is_number()) return BadKey(key, *it);
  const double value = it->get<double>();
  if (!(value >= low && value <= high)) return BadKey(key, *it);
  *out = value;
  return Status();
}

}  // namespace

Status ValidateSampling(const SamplingOptions& options, uint32_t vocab) {
  SLUICE_TRY(CheckRanges(options));
  for (const auto& [id, bias] : options.logit_bias) {
    SLUICE_TRY(CheckId("logit_bias", id, vocab));
    if (std::isnan(bias) || bias == INFINITY) {
      return Status(Code::kUsage, fmt::format("logit_bias of token {} is {}", id, bias),
                    "sampling options", "want a finite number, or -inf to ban the token");
    }
  }
  for (TokenId id : options.dry_breakers) SLUICE_TRY(CheckId("dry_breakers", id, vocab));
  for (const auto& sequence : options.dry_breaker_sequences) {
    if (sequence.empty()) return Status(Code::kUsage, "a DRY breaker sequence is empty");
    for (TokenId id : sequence) SLUICE_TRY(CheckId("dry_breaker_sequences", id, vocab));
  }
  return Status();
}

Status ApplyGenerationDefaults(const std::string& text, SamplingOptions* options) {
  if (text.empty()) return Status();
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return Status(Code::kBadModel, "generation_config is no JSON object", "generation_config");
  }
  SamplingOptions o = *options;
  double top_k = o.top_k;
  SLUICE_TRY(Take(object, "temperature", 0, 1e30, &o.temperature));
  SLUICE_TRY(Take(object, "top_k", -1, INT32_MAX, &top_k));
  SLUICE_TRY(Take(object, "top_p", 0, 1, &o.top_p));
  SLUICE_TRY(Take(object, "min_p", 0, 1, &o.min_p));
  SLUICE_TRY(Take(object, "typical_p", 0, 1, &o.typical_p));
  SLUICE_TRY(Take(object, "repetition_penalty", 1e-6, 1e6, &o.repeat_penalty));
  o.top_k = top_k > 0 ? static_cast<int>(top_k) : 0;
  const auto do_sample = object.find("do_sample");
  if (do_sample != object.end() && !do_sample->is_null()) {
    if (!do_sample->is_boolean()) return BadKey("do_sample", *do_sample);
    if (!do_sample->get<bool>()) o.temperature = 0;
  }
  *options = std::move(o);
  return Status();
}

}  // namespace sluice
