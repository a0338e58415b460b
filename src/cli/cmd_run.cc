#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/chat_repl.h"
#include "cli/console.h"
#include "cli/engine_args.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "cli/verbs.h"

namespace sluice::cli {
namespace {

struct Options {
  std::string model;
  std::optional<std::string> model_option, prompt, file, ids, system;
  bool raw = false, special = false, ignore_eos = false, stats = false, json = false;
  int64_t max_tokens = -1;
  ContextFull context_full = ContextFull::kDrop;
  std::vector<std::string> stops;
  RenderOptions render;
  SamplingArgs sampling;
  EngineOptions engine;
};

void Declare(Args* args, Options* o) {
  args->Positional(
      "MODEL", &o->model, false,
      "a .gguf file or a Hugging Face folder (default: the small model of tools/setup)");
  args->Group("Prompt");
  args->Text("-m,--model", &o->model_option, "the same as MODEL");
  args->Text("-p,--prompt", &o->prompt, "the prompt");
  args->Text("-f,--file", &o->file, "read the prompt from a file; - is stdin");
  args->Text("--ids", &o->ids, "the prompt as token ids: 1,2,3");
  args->Text("--system", &o->system, "system text of the chat template");
  args->Flag("--raw", &o->raw, "no chat template: the model continues the text");
  args->Flag("--special", &o->special, "with --raw: control tokens in the prompt count as such");
  args->Values(
      "--set", "KEY=JSON",
      [o](const std::string& text) { return AddVariable(text, &o->render.extra_json); },
      "a template variable, such as enable_thinking=false; repeatable");
  args->Group("Answer");
  args->Int("-n,--predict", &o->max_tokens, -1, INT32_MAX, "tokens at most (-1: until it ends)");
  args->Texts("--stop", &o->stops, "end before this text; repeatable");
  args->Flag("--ignore-eos", &o->ignore_eos, "never let the model end the answer");
  args->Choice(
      "--context-full", "stop|drop",
      [o](int i) { o->context_full = i == 0 ? ContextFull::kStop : ContextFull::kDrop; },
      "in a chat: refuse, or drop the oldest turns (default)");
  args->Flag("--stats", &o->stats, "print speed, traffic and memory at the end");
  args->Flag("--json", &o->json, "one JSON object instead of text");
  AddSamplingArgs(args, &o->sampling);
  AddEngineArgs(args, &o->engine);
}

Status NoTemplate(const std::string& model) {
  return Status(Code::kUsage, "the model has no chat template", model,
                "use --raw to let it continue the prompt as text");
}

// The prompt's text, wherever it comes from; nullopt: chat at the terminal.
Result<std::optional<std::string>> PromptText(const Options& o) {
  if (o.prompt) return o.prompt;
  if (o.ids) return std::optional<std::string>("");
  if (!o.file && IsTerminal(STDIN_FILENO)) {
    if (IsTerminal(STDOUT_FILENO) && !o.json && !o.raw) return std::optional<std::string>();
    return Status(Code::kUsage, "no prompt", "",
                  "use -p TEXT, -f FILE, or a terminal for a chat (without --raw and --json)");
  }
  SLUICE_ASSIGN(std::string text, ReadAll(o.file.value_or("-")));
  // Editors and echo end a file with a line end that nobody meant as part of the prompt.
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (!o.file && text.empty()) {
    return Status(Code::kUsage, "no prompt: standard input is empty", "", "use -p TEXT or -f FILE");
  }
  return std::optional<std::string>(std::move(text));
}

Result<std::vector<TokenId>> PromptIds(const Options& o, const Engine& engine,
                                       const std::string& model, const std::string& text) {
  if (o.ids) {
    SLUICE_ASSIGN(std::vector<TokenId> ids, ParseIds(*o.ids));
    for (TokenId id : ids) {
      if (static_cast<uint32_t>(id) < engine.vocab_size()) continue;
      return Status(Code::kUsage, fmt::format("token id {} is not in the vocabulary", id), "--ids",
                    fmt::format("ids go from 0 to {}", engine.vocab_size() - 1));
    }
    return ids;
  }
  const TextModel& tokenizer = *engine.text();
  if (o.raw) return tokenizer.Encode(text, o.special, /*add_bos=*/true);
  if (!tokenizer.has_chat_template()) return NoTemplate(model);
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (o.system) messages.push_back({{"role", "system"}, {"content", *o.system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  return tokenizer.RenderIds(Dump(messages), o.render);
}

// Ids need no tokenizer; where the model has none, the answer is ids only.
Result<std::unique_ptr<Engine>> OpenEngine(const Options& o, const std::string& model) {
  Result<std::unique_ptr<Engine>> engine = Engine::Open(model, o.engine);
  if (engine.ok() || !o.ids) return engine;
  EngineOptions without = o.engine;
  without.need_text = false;
  Result<std::unique_ptr<Engine>> plain = Engine::Open(model, without);
  if (!plain.ok()) return plain;
  Notice("ids only: " + engine.status().ToString());
  return plain;
}

Result<GenerateOptions> MakeGenerateOptions(const Options& o, const Engine& engine) {
  GenerateOptions g;
  SLUICE_ASSIGN(g.sampling, ResolveSampling(o.sampling, engine.generation_defaults_json(),
                                            engine.text(), engine.vocab_size()));
  g.max_tokens = o.max_tokens;
  g.stops = o.stops;
  g.ignore_eog = o.ignore_eos;
  g.cancel = CancelFlag();
  return g;
}

Status Report(const Options& o, const Engine& engine, const GenerateOptions& generate,
              const GenerateResult& result, const std::vector<TokenId>& prompt) {
  const Stats stats = engine.stats();
  if (o.json) {
    SLUICE_TRY(Out(Dump({{"text", result.text},
                         {"ids", result.ids},
                         {"prompt_ids", prompt},
                         {"finish_reason", result.finish_reason},
                         {"seed", generate.sampling.seed},
                         {"stats", StatsJson(stats)}}) +
                   "\n"));
  } else if (!engine.text()) {
    std::string line;
    for (TokenId id : result.ids) line += (line.empty() ? "" : ",") + std::to_string(id);
    SLUICE_TRY(Out(line + "\n"));
  } else if (!result.text.empty() && !result.text.ends_with('\n')) {
    SLUICE_TRY(Out("\n"));
  }
  if (o.stats) {
    std::string table = StatsTable(engine.plan(), stats);
    if (generate.sampling.temperature > 0)
      table += fmt::format("  seed: {}\n", generate.sampling.seed);
    std::fputs(table.c_str(), stderr);
  }
  if (result.finish_reason == "context") {
    return Status(
        Code::kContextFull,
        fmt::format("the context of {} tokens is full: the answer ends here", engine.context()), "",
        "a larger --ctx makes room");
  }
  if (result.finish_reason == "cancelled") return Status(Code::kFailed, "cancelled");
  return Status();
}

Status AnswerOnce(const Options& o, Engine* engine, const std::string& model,
                  const std::string& text) {
  SLUICE_ASSIGN(const std::vector<TokenId> prompt, PromptIds(o, *engine, model, text));
  SLUICE_ASSIGN(GenerateOptions generate, MakeGenerateOptions(o, *engine));
  Status output;
  if (!o.json) {
    generate.on_text = [&](std::string_view piece) {
      ClearProgressBar();
      if (output.ok()) output = Out(piece);
      if (!output.ok()) CancelFlag()->store(true);  // nobody reads on
    };
  }
  SLUICE_ASSIGN(const auto session, Session::Create(engine));
  const Result<GenerateResult> result = Generate(session.get(), prompt, generate);
  ClearProgressBar();
  SLUICE_TRY(output);
  if (!result.ok()) return result.status();
  return Report(o, *engine, generate, *result, prompt);
}

Status CheckCombination(const Options& o) {
  if (o.prompt.has_value() + o.file.has_value() + o.ids.has_value() > 1) {
    return Status(Code::kUsage, "give only one of -p, -f and --ids");
  }
  if (o.model_option && !o.model.empty()) {
    return Status(Code::kUsage, "the model is given twice", "", "MODEL and -m are the same");
  }
  if (o.special && !o.raw) return Status(Code::kUsage, "--special goes with --raw");
  if (o.raw && o.system) {
    return Status(Code::kUsage, "--system needs the chat template", "", "drop --raw or --system");
  }
  return Status();
}

}  // namespace

Status CmdRun(const VerbArgs& words) {
  Args args("run",
            "Answers a prompt, or chats when there is none and the terminal is interactive.");
  Options o;
  Declare(&args, &o);
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  SLUICE_TRY(CheckCombination(o));
  SLUICE_ASSIGN(const std::string model, ModelOrDefault(o.model_option.value_or(o.model)));
  SLUICE_ASSIGN(const std::optional<std::string> prompt, PromptText(o));
  o.engine.progress = MakeProgressBar();
  if (prompt) {
    const WorkScope work;
    SLUICE_ASSIGN(const auto engine, OpenEngine(o, model));
    return AnswerOnce(o, engine.get(), model, *prompt);
  }
  SLUICE_ASSIGN(const auto engine, Engine::Open(model, o.engine));
  ClearProgressBar();
  if (!engine->text()->has_chat_template()) return NoTemplate(model);
  SLUICE_ASSIGN(GenerateOptions generate, MakeGenerateOptions(o, *engine));
  return RunChat(engine.get(),
                 {o.system.value_or(""), o.context_full, o.render, std::move(generate), o.stats});
}

}  // namespace sluice::cli
