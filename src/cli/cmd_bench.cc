#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/limits.h"
#include "cli/console.h"
#include "cli/engine_args.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/kernel_table.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "sluice/session.h"

namespace sluice::cli {
namespace {

struct Options {
  std::string model;
  std::optional<std::string> ids_file;
  uint32_t prompt_tokens = 128, decode = 32, repeat = 3, seconds = 20, prefix_tokens = 0, seed = 1;
  bool json = false, kernels = false;
  EngineOptions engine;
};

// Ids that look like no text at all but are the same on every machine.
std::vector<TokenId> MadeUpIds(uint32_t count, uint32_t vocab, uint64_t seed = 1) {
  std::vector<TokenId> ids;
  uint64_t state = seed;
  for (uint32_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;  // Knuth, MMIX
    ids.push_back(static_cast<TokenId>((state >> 33) % vocab));
  }
  return ids;
}

Result<std::vector<TokenId>> PromptIds(const Options& o, uint32_t vocab) {
  if (!o.ids_file) return MadeUpIds(o.prompt_tokens, vocab);
  SLUICE_ASSIGN(const std::string text, ReadAll(*o.ids_file));
  SLUICE_ASSIGN(std::vector<TokenId> ids, ParseIds(text));
  if (ids.empty()) return Status(Code::kUsage, "there are no token ids", *o.ids_file);
  for (TokenId id : ids) {
    if (static_cast<uint32_t>(id) >= vocab) {
      return Status(Code::kUsage, fmt::format("token id {} is not in the vocabulary", id),
                    *o.ids_file);
    }
  }
  return ids;
}

// With --prefix-tokens: what all runs begin with, then something that no other run has.
std::vector<TokenId> PromptOf(const Options& o, std::vector<TokenId> prompt, uint32_t run,
                              uint32_t vocab) {
  if (o.prefix_tokens == 0) return prompt;
  std::vector<TokenId> ids = MadeUpIds(o.prefix_tokens, vocab);
  for (TokenId id : MadeUpIds(o.prompt_tokens, vocab, (uint64_t{o.seed} << 32) + run + 2))
    ids.push_back(id);
  return ids;
}

// One prompt and one greedy answer that ignores end tokens, from an empty timeline; what others
// left of a common beginning is found.
Result<Stats> Once(const Options& o, Engine* engine, Session* session,
                   std::span<const TokenId> prompt) {
  session->Rewind(0);
  engine->ResetStats();
  if (o.prefix_tokens > 0) {
    const uint32_t known = session->Align(prompt);
    session->Mark(o.prefix_tokens);
    prompt = prompt.subspan(known);
  }
  SLUICE_TRY(session->Append(prompt, {}, CancelFlag()));
  SamplingOptions greedy;
  greedy.temperature = 0;
  Sampler sampler(greedy, engine->vocab_size());
  for (uint32_t i = 0; i < o.decode; ++i) {
    SLUICE_ASSIGN(const TokenId id, sampler.Sample(session->logits(), session->tokens()));
    SLUICE_TRY(session->Append({&id, 1}, {}, CancelFlag()));
  }
  // The disk of a busy machine differs from minute to minute. Forgets the cached experts.
  if (o.prefix_tokens == 0) engine->MeasureMachine();
  return engine->stats();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0 : n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Each figure's own median; what is no figure (hash, names, totals) is that of the last run.
Stats MedianStats(const std::vector<Stats>& runs) {
  Stats out = runs.back();
  for (double Stats::*field :
       {&Stats::ttft_s, &Stats::prefill_s, &Stats::decode_s, &Stats::prefill_tok_s,
        &Stats::decode_tok_s, &Stats::hit_rate, &Stats::bytes_per_token, &Stats::stall_ms_per_token,
        &Stats::compute_ms_per_token, &Stats::bound_tok_s, &Stats::bound_fraction,
        &Stats::shared_bound_tok_s, &Stats::shared_bound_fraction, &Stats::prefill_int8_gops,
        &Stats::int8_peak_gops, &Stats::prefill_int8_fraction, &Stats::lookahead_accuracy}) {
    std::vector<double> values;
    for (const Stats& run : runs) values.push_back(run.*field);
    out.*field = Median(std::move(values));
  }
  return out;
}

std::string Table(const std::vector<Stats>& runs, const Stats& median, double load_s) {
  std::string out = fmt::format("load {}, {} tokens in, {} out\n\n", FormatDuration(load_s),
                                median.prompt_tokens, median.decode_tokens);
  out += fmt::format("  {:<8}{:>14}{:>14}{:>12}{:>12}{:>14}\n", "run", "prefill tok/s",
                     "decode tok/s", "stall ms", "compute ms", "read/token");
  const auto line = [&](const std::string& name, const Stats& s) {
    out += fmt::format("  {:<8}{:>14.1f}{:>14.2f}{:>12.2f}{:>12.2f}{:>14}\n", name, s.prefill_tok_s,
                       s.decode_tok_s, s.stall_ms_per_token, s.compute_ms_per_token,
                       FormatBytes(static_cast<uint64_t>(s.bytes_per_token)));
  };
  for (size_t i = 0; i < runs.size(); ++i) line(std::to_string(i + 1), runs[i]);
  line("median", median);
  out += fmt::format("\n  peak memory {} of the budget {}", FormatBytes(median.peak_rss_bytes),
                     FormatBytes(median.budget_bytes));
  if (median.bound_tok_s > 0) {
    out += fmt::format("; {:.0f} % of the bound {:.1f} tok/s", median.bound_fraction * 100,
                       median.bound_tok_s);
    if (median.shared_bound_tok_s > 0 && median.bytes_per_token > 0) {
      out += fmt::format(
          ",\n  {:.0f} % of the {:.1f} tok/s left when reading and computing slow each "
          "other down as here",
          median.shared_bound_fraction * 100, median.shared_bound_tok_s);
    }
  }
  if (median.prefill_int8_fraction > 0) {
    out += fmt::format(
        "\n  prefill multiplies {:.1f} GOP/s of int8{}, {:.0f} % of the {:.1f} GOP/s on registers",
        median.prefill_int8_gops,
        median.act_planes > 1 ? fmt::format(" ({} planes per weight)", median.act_planes) : "",
        median.prefill_int8_fraction * 100, median.int8_peak_gops);
  }
  return out + fmt::format("\n  {} {}, logits {}\n", median.isa, median.io, median.logits_hash);
}

void Declare(Args* args, Options* o) {
  args->Positional("MODEL", &o->model, false, "a .gguf file or a Hugging Face folder");
  args->Text("--ids-file", &o->ids_file, "prompt as token ids");
  args->Int("--prompt-tokens", &o->prompt_tokens, 1, limits::kContextMax,
            "length of a made-up prompt (default 128)");
  args->Int("--decode", &o->decode, 1, limits::kContextMax, "tokens to decode (default 32)");
  args->Int("--repeat", &o->repeat, 1, 1000, "runs; the medians count (default 3)");
  args->Int("--prefix-tokens", &o->prefix_tokens, 1, limits::kContextMax,
            "every run begins with these, found again in memory and in the prefix store");
  args->Int("--seed", &o->seed, 1, INT32_MAX,
            "with --prefix-tokens: what follows them (default 1)");
  args->Flag("--kernels", &o->kernels,
             "each kernel on its own beside the best of the machine; needs no model");
  args->Int("--seconds", &o->seconds, 1, 600, "time for --kernels (default 20)");
  args->Flag("--json", &o->json, "as JSON");
  AddEngineArgs(args, &o->engine);
}

Status BenchKernelsOnly(const Options& o) {
  SLUICE_ASSIGN(const KernelBench bench,
                BenchKernels({.isa = o.engine.isa,
                              .threads = o.engine.threads,
                              .seconds_max = static_cast<double>(o.seconds)}));
  return Out(o.json ? Dump(KernelJson(bench)) + "\n" : KernelTable(bench));
}

}  // namespace

Status CmdBench(const VerbArgs& words) {
  Args args("bench", "Measures prefill and decode of one prompt, repeated.");
  Options o;
  o.engine.prefix_store_bytes = 0;  // what is measured is computing, not keeping
  Declare(&args, &o);
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  if (o.ids_file && o.prefix_tokens > 0)
    return Status(Code::kUsage, "--prefix-tokens makes up its prompts", "", "drop --ids-file");
  if (o.kernels) return BenchKernelsOnly(o);
  SLUICE_ASSIGN(const std::string model, ModelOrDefault(o.model));
  const WorkScope work;
  if (o.prefix_tokens > 0 && o.engine.prefix_store_bytes == 0)
    o.engine.prefix_store_bytes = EngineOptions().prefix_store_bytes;
  o.engine.need_text = false;
  o.engine.progress = MakeProgressBar();
  SLUICE_ASSIGN(const auto engine, Engine::Open(model, o.engine));
  SLUICE_ASSIGN(const std::vector<TokenId> prompt, PromptIds(o, engine->vocab_size()));
  SLUICE_ASSIGN(const auto session, Session::Create(engine.get()));
  const double load_s = engine->stats().load_s;
  std::vector<Stats> runs;
  for (uint32_t i = 0; i < o.repeat; ++i) {
    const std::vector<TokenId> ids = PromptOf(o, prompt, i, engine->vocab_size());
    SLUICE_ASSIGN(Stats stats, Once(o, engine.get(), session.get(), ids));
    if (o.prefix_tokens > 0) session->Keep(/*with_state=*/true);
    runs.push_back(std::move(stats));
  }
  ClearProgressBar();
  Stats median = MedianStats(runs);
  median.load_s = load_s;
  if (!o.json) return Out(Table(runs, median, load_s));
  nlohmann::ordered_json json = StatsJson(median);
  json["runs"] = nlohmann::ordered_json::array();
  for (const Stats& run : runs) {
    json["runs"].push_back({{"ttft_s", run.ttft_s},
                            {"prefill_s", run.prefill_s},
                            {"prompt_tokens", run.prompt_tokens},
                            {"reused_tokens", run.reused_tokens},
                            {"prefill_bytes_read", run.prefill_bytes_read},
                            {"prefill_tok_s", run.prefill_tok_s},
                            {"prefill_int8_gops", run.prefill_int8_gops},
                            {"int8_peak_gops", run.int8_peak_gops},
                            {"decode_tok_s", run.decode_tok_s},
                            {"stall_ms_per_token", run.stall_ms_per_token},
                            {"logits_hash", run.logits_hash}});
  }
  return Out(Dump(json) + "\n");
}

}  // namespace sluice::cli
