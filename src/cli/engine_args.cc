#include "cli/engine_args.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "cli/state_dir.h"

namespace sluice::cli {
namespace {

constexpr const char* kDefaultModel =
    "SmolLM2-135M-Instruct.Q4_1.gguf";  // what tools/setup fetches
// llama.cpp's defaults: a line break, a colon, a quote or a star ends a repetition.
const char* const kDryBreakers[] = {"\n", ":", "\"", "*"};

Status SetBudget(const std::string& text, EngineOptions* options) {
  if (text == "auto") {
    options->budget_bytes = 0;
    return Status();
  }
  const std::optional<uint64_t> bytes = ParseSize(text);
  if (!bytes || *bytes == 0) {
    return Status(Code::kUsage, fmt::format("'{}' is not a size", text), "",
                  "want a number with K, M or G, such as 512M, or auto");
  }
  options->budget_bytes = *bytes;
  return Status();
}

// A number of tokens, or of bytes with a unit.
Status SetKvMemory(const std::string& text, EngineOptions* options) {
  const std::optional<uint64_t> value = ParseSize(text);
  if (!value || *value == 0) {
    return Status(Code::kUsage, fmt::format("'{}' is neither tokens nor a size", text), "",
                  "want tokens, such as 4096, or bytes with a unit, such as 64M");
  }
  const bool tokens = text.find_first_not_of("0123456789") == std::string::npos;
  options->kv_memory_tokens = tokens ? *value : 0;
  options->kv_memory_bytes = tokens ? 0 : *value;
  return Status();
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void AddOptionalInt(Args* args, const std::string& names, std::optional<int64_t>* out, int64_t low,
                    int64_t high, const std::string& help) {
  args->Value(
      names, "N",
      [=](const std::string& text) -> Status {
        SLUICE_ASSIGN(*out, ParseInt(text, low, high));
        return Status();
      },
      help);
}

// "15043=-1.5", "15043=-inf"; also llama.cpp's "15043-1.5" and "15043+2".
Status AddBias(const std::string& text, SamplingArgs* sampling) {
  const size_t cut = text.find_first_of("=+-", 1);
  const Status bad(Code::kUsage, fmt::format("'{}' is no logit bias", text), "",
                   "want ID=B, such as 15043=-1.5 or 15043=-inf");
  if (cut == std::string::npos) return bad;
  const Result<int64_t> id = ParseInt(text.substr(0, cut), 0, INT32_MAX);
  std::string number = text.substr(text[cut] == '=' ? cut + 1 : cut);
  if (!number.empty() && number[0] == '+') number.erase(0, 1);
  const Result<double> bias = ParseNumber(number, -INFINITY, INFINITY);
  if (!id.ok() || !bias.ok()) return bad;
  sampling->logit_bias.emplace_back(static_cast<TokenId>(*id), *bias);
  return Status();
}

template <typename From, typename To>
void Override(const std::optional<From>& flag, To* value) {
  if (flag) *value = static_cast<To>(*flag);
}

}  // namespace

// llama.cpp's names. What makes no sense together, or with the model, is refused when it is opened.
void AddRopeArgs(Args* args, RopeOptions* o) {
  args->Choice(
      "--rope-scaling", "none|linear|yarn", [o](int i) { o->mode = static_cast<RopeMode>(i + 1); },
      "how positions beyond the trained context are scaled (default: as the model file says)");
  const auto number = [args](const char* name, double low, double* out, const char* help) {
    args->Value(
        name, "F",
        [=](const std::string& text) -> Status {
          SLUICE_ASSIGN(*out, ParseNumber(text, low, 1e12));
          if (*out > low) return Status();
          return Status(Code::kUsage, fmt::format("'{}' is not above {}", text, low));
        },
        help);
  };
  number("--rope-scale", 0, &o->scale, "the context grows by this factor");
  number("--rope-freq-base", 1, &o->freq_base, "base of the frequencies");
  args->Int("--yarn-orig-ctx", &o->yarn_orig_ctx, 1, limits::kContextMax,
            "the context the model was trained with (default: as the model file says)");
}

void AddPlanArgs(Args* args, EngineOptions* o) {
  args->Group("Memory and machine");
  args->Value(
      "--budget", "SIZE", [o](const std::string& text) { return SetBudget(text, o); },
      "memory of the whole process: 3G, 512M, auto (default: auto)");
  args->Int("-c,--ctx,--ctx-size", &o->context, 1, limits::kContextMax,
            "context in tokens (default: the model's, at most 4096)");
  args->Int("-b,--chunk,--batch-size", &o->chunk, 1, limits::kContextMax,
            "prompt tokens per pass (default: what the budget allows)");
  args->Int("-t,--threads", &o->threads, 1, limits::kThreadsMax,
            "threads (default: the fast cores)");
  args->Value(
      "--kv-memory", "N", [o](const std::string& text) { return SetKvMemory(text, o); },
      "KV in memory: tokens (4096) or bytes (64M); the rest of the context spills to a file "
      "(default: all of it, or a third of the budget)");
  if (const std::string scratch = Environment("TMPDIR"); !scratch.empty()) o->scratch_dir = scratch;
  args->Value(
      "--scratch-dir", "DIR",
      [o](const std::string& value) {
        o->scratch_dir = value;
        return Status();
      },
      "where files without a name are made: spilled KV, snapshots (default: TMPDIR or /var/tmp)");
  args->Choice(
      "--kv", "auto|f32|f16|q8|k8v4", [o](int i) { o->kv = static_cast<KvType>(i); },
      "format of the KV cache; q8 and k8v4 change the answer a little");
  args->Choice(
      "--act", "q8|f32|q16|auto", [o](int i) { o->act = static_cast<ActType>(i); },
      "activations in int8, in floats (the reference mode), or in two int8 planes (the default of "
      "small models)");
  o->state_dir = DefaultStateDir();
  args->Value(
      "--state-dir", "DIR",
      [o](const std::string& value) {
        o->state_dir = value;
        return Status();
      },
      "what is remembered between runs (default: ~/.local/state/sluice)");
  AddRopeArgs(args, &o->rope);
  args->Int("--lookahead", &o->lookahead, 0, 2,
            "layers whose experts are guessed and read ahead (default: none or one, by trial)");
}

void AddEngineArgs(Args* args, EngineOptions* o) {
  AddPlanArgs(args, o);
  o->isa = Environment("SLUICE_ISA");
  args->Value(
      "--cpus", "LIST",
      [o](const std::string& text) -> Status {
        SLUICE_ASSIGN(o->cpus, ParseCpus(text));
        for (const int cpu : o->cpus) {
          if (CanRunOn(cpu)) continue;
          return Status(Code::kUsage, fmt::format("threads cannot run on processor {}", cpu), "",
                        fmt::format("this process may use {}", fmt::join(AllowedCpus(), ",")));
        }
        return Status();
      },
      "pin the threads to these processors: 0,2 or 0-3");
  args->Choice(
      "--io", "auto|uring|pread|buffered", [o](int i) { o->io = static_cast<IoMode>(i); },
      "how weights are read");
  args->Int("--io-depth", &o->io_depth, 1, 64,
            "reads in flight (default: what the device was found to like)");
  const auto text = [args](const char* name, const char* kind, std::string* out, const char* help) {
    args->Value(
        name, kind,
        [out](const std::string& value) {
          *out = value;
          return Status();
        },
        help);
  };
  text("--isa", "NAME", &o->isa, "use a lower instruction set (also SLUICE_ISA)");
  text("--policy", "NAME", &o->policy, "expert cache policy");
  args->Int("--expert-slots", &o->expert_slots, 0, INT32_MAX,
            "at most this many experts in memory (for tests and curves)");
  args->Value(
      "--lookahead-noise", "P",
      [o](const std::string& value) -> Status {
        SLUICE_ASSIGN(o->lookahead_noise, ParseNumber(value, 0, 1));
        return Status();
      },
      "replace this share of the guesses by random ones (for tests: real models guess 81-89 %)");
  args->Flag("--no-prefix-store", &o->no_prefix_store,
             "neither use nor keep what was computed for the beginning of a text");
  args->Value(
      "--prefix-store", "SIZE",
      [o](const std::string& text) -> Status {
        const std::optional<uint64_t> bytes = ParseSize(text);
        if (!bytes) return Status(Code::kUsage, fmt::format("'{}' is not a size", text));
        o->prefix_store_bytes = *bytes;
        return Status();
      },
      "room on disk for what was computed (default 4G)");
  args->Flag("--private", &o->private_session,
             "store nothing of this run: neither its texts nor its state");
  text("--route-trace", "FILE", &o->route_trace_path, "write the experts chosen");
  text("--timeline", "FILE", &o->timeline_path, "write what happened when");
  args->Flag("--mlock", &o->mlock, "lock the memory against swapping, if allowed");
}

void AddSamplingArgs(Args* args, SamplingArgs* s) {
  args->Group("Picking tokens (defaults: the model's generation_config, else docs/sampling.md)");
  args->Flag("--greedy", &s->greedy, "always the likeliest token, as --temp 0");
  args->Number("--temp,--temperature", &s->temperature, 0, 1e30, "0 is greedy");
  AddOptionalInt(args, "--top-k", &s->top_k, 0, INT32_MAX, "keep the K likeliest; 0 is off");
  args->Number("--top-p", &s->top_p, 0, 1, "keep the likeliest that reach P; 1 is off");
  args->Number("--min-p", &s->min_p, 0, 1, "drop what is below P of the likeliest; 0 is off");
  args->Number("--typical,--typical-p", &s->typical_p, 0, 1, "locally typical; 1 is off");
  args->Number("--repeat-penalty", &s->repeat_penalty, 1e-6, 1e6, "1 is off");
  AddOptionalInt(args, "--repeat-last-n", &s->penalty_last_n, -1, INT32_MAX,
                 "window of the penalties; -1 is everything");
  args->Number("--presence-penalty", &s->presence_penalty, -1e30, 1e30, "0 is off");
  args->Number("--frequency-penalty", &s->frequency_penalty, -1e30, 1e30, "0 is off");
  args->Number("--dry-multiplier", &s->dry_multiplier, 0, 1e30, "0 is off");
  args->Number("--dry-base", &s->dry_base, 1, 1e30, "default 1.75");
  AddOptionalInt(args, "--dry-allowed-length", &s->dry_allowed_length, 0, INT32_MAX, "default 2");
  AddOptionalInt(args, "--dry-penalty-last-n", &s->dry_last_n, -1, INT32_MAX,
                 "-1 is everything (default)");
  args->Texts("--dry-sequence-breaker", &s->dry_breakers,
              "replaces the breakers \\n : \" *; none for none; repeatable");
  args->Values(
      "--logit-bias", "ID=B", [s](const std::string& text) { return AddBias(text, s); },
      "add B to the logit of a token; -inf bans it; repeatable");
  args->Value(
      "-s,--seed", "N",
      [s](const std::string& text) -> Status {
        if (text == "-1") return Status();  // llama.cpp's word for a random one
        SLUICE_ASSIGN(s->seed, ParseUnsigned(text));
        return Status();
      },
      "same seed, same text (default: random)");
}

Result<SamplingOptions> ResolveSampling(const SamplingArgs& flags, const std::string& defaults_json,
                                        const TextModel* text, uint32_t vocab) {
  SamplingOptions o;
  SLUICE_TRY(ApplyGenerationDefaults(defaults_json, &o));
  o.seed = std::random_device()();
  return OverrideSampling(flags, std::move(o), text, vocab);
}

Result<SamplingOptions> OverrideSampling(const SamplingArgs& flags, SamplingOptions o,
                                         const TextModel* text, uint32_t vocab) {
  const bool dry_before = o.dry_multiplier > 0;
  Override(flags.temperature, &o.temperature);
  Override(flags.top_k, &o.top_k);
  Override(flags.top_p, &o.top_p);
  Override(flags.min_p, &o.min_p);
  Override(flags.typical_p, &o.typical_p);
  Override(flags.repeat_penalty, &o.repeat_penalty);
  Override(flags.presence_penalty, &o.presence_penalty);
  Override(flags.frequency_penalty, &o.frequency_penalty);
  Override(flags.penalty_last_n, &o.penalty_last_n);
  Override(flags.dry_multiplier, &o.dry_multiplier);
  Override(flags.dry_base, &o.dry_base);
  Override(flags.dry_allowed_length, &o.dry_allowed_length);
  Override(flags.dry_last_n, &o.dry_last_n);
  if (flags.greedy) o.temperature = 0;
  if (!flags.logit_bias.empty()) o.logit_bias = flags.logit_bias;
  Override(flags.seed, &o.seed);
  const bool breakers_known = dry_before && flags.dry_breakers.empty();
  if (o.dry_multiplier > 0 && text && !breakers_known) {
    o.dry_breakers.clear();
    o.dry_breaker_sequences.clear();
    std::vector<std::string> breakers(std::begin(kDryBreakers), std::end(kDryBreakers));
    if (!flags.dry_breakers.empty()) breakers = flags.dry_breakers;
    if (breakers != std::vector<std::string>{"none"}) AddDryBreakers(*text, breakers, &o);
  }
  SLUICE_TRY(ValidateSampling(o, vocab));
  return o;
}

Result<std::string> ModelOrDefault(const std::string& given) {
  if (!given.empty()) return given;
  std::string folder = Environment("SLUICE_MODELS");
  if (folder.empty()) folder = Environment("HOME") + "/.cache/sluice";
  const std::string path = folder + "/" + kDefaultModel;
  if (access(path.c_str(), R_OK) == 0) return path;
  return Status(Code::kUsage, "no MODEL is given and the default model is not there", path,
                "fetch it with tools/setup (or make setup), or name a model");
}

Status AddVariable(const std::string& assignment, std::string* object_json) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Status(Code::kUsage, fmt::format("'{}' is no assignment", assignment), "",
                  "want key=JSON, such as enable_thinking=false");
  }
  const std::string value = assignment.substr(equals + 1);
  auto parsed = nlohmann::ordered_json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    return Status(Code::kUsage, fmt::format("'{}' is no JSON", value), "",
                  "a text needs its quotes: name='\"Ada\"'");
  }
  auto object = object_json->empty() ? nlohmann::ordered_json::object()
                                     : nlohmann::ordered_json::parse(*object_json, nullptr, false);
  object[assignment.substr(0, equals)] = std::move(parsed);
  *object_json = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return Status();
}

}  // namespace sluice::cli
