#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
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
  std::optional<std::string> model_option, prompt, file, ids, system, session;
  bool raw = false, special = false, ignore_eos = false, stats = false, json = false;
  bool go_on = false;
  double save_every_s = 5;
  std::optional<int64_t> max_tokens;
  std::optional<ContextFull> context_full;
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
  args->Text("--session", &o->session,
             "keep the chat in this file and take it up again; a missing one begins a new chat");
  args->Flag("--continue", &o->go_on, "with --session: go on with the answer that was cut");
  args->Value(
      "--save-every", "S",
      [o](const std::string& text) -> Status {
        SLUICE_ASSIGN(o->save_every_s, ParseNumber(text, 0, 1e9));
        return Status();
      },
      "with --session: save an answer on its way every S seconds (default 5; 0: each token)");
  args->Group("Answer");
  args->Value(
      "-n,--predict", "N",
      [o](const std::string& text) -> Status {
        SLUICE_ASSIGN(o->max_tokens, ParseInt(text, -1, INT32_MAX));
        return Status();
      },
      "tokens at most (-1: until it ends)");
  args->Texts("--stop", &o->stops, "end before this text; repeatable");
  args->Flag("--ignore-eos", &o->ignore_eos, "never let the model end the answer");
  args->Choice(
      "--context-full", "stop|drop|summarise",
      [o](int i) { o->context_full = static_cast<ContextFull>(i); },
      "in a chat: refuse, drop the oldest turns (default), or have the model sum them up");
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
  if (o.ids || o.go_on) return std::optional<std::string>("");
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
  g.max_tokens = o.max_tokens.value_or(-1);
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
  if (o.system && !o.raw && !o.ids) MarkSystemPrompt(session.get(), *o.system, o.render);
  const Result<GenerateResult> result = Generate(session.get(), prompt, generate);
  ClearProgressBar();
  SLUICE_TRY(output);
  if (!result.ok()) return result.status();
  return Report(o, *engine, generate, *result, prompt);
}

bool IsThere(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 || errno != ENOENT;
}

// A chat that will not be kept is better known before it is held than after.
void WarnUnwritable(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK | X_OK) == 0) return;
  Notice(fmt::format("the chat will not be kept: {} ({})", std::strerror(errno), folder));
}

// What can be known of a session file before a model is loaded, which may take a while.
Status CheckSessionFile(const Options& o) {
  if (!o.session) return Status();
  WarnUnwritable(*o.session);
  if (!IsThere(*o.session)) {
    if (!o.go_on) return Status();
    return Status(Code::kUsage, "there is no chat to continue", *o.session);
  }
  SLUICE_ASSIGN(const SessionInfo info, Chat::Inspect(*o.session));
  if (!o.go_on || info.cut) return Status();
  return Status(Code::kUsage, "the last answer was not cut", *o.session, "ask something new");
}

// The chat of a session file, or a new one; flags go before what the file holds.
Status BeginChat(const Options& o, const Engine& engine, Chat* chat, GenerateOptions* generate,
                 bool* resumed) {
  *resumed = o.session && IsThere(*o.session);
  RenderOptions render = o.render;
  if (*resumed) {
    SLUICE_TRY(chat->Load(*o.session, generate));
    SLUICE_ASSIGN(generate->sampling, OverrideSampling(o.sampling, std::move(generate->sampling),
                                                       engine.text(), engine.vocab_size()));
    if (o.max_tokens) generate->max_tokens = *o.max_tokens;
    if (!o.stops.empty()) generate->stops = o.stops;
    if (o.ignore_eos) generate->ignore_eog = true;
    render = chat->template_options();
    if (!o.render.extra_json.empty()) render.extra_json = o.render.extra_json;
  } else {
    SLUICE_ASSIGN(*generate, MakeGenerateOptions(o, engine));
  }
  generate->cancel = CancelFlag();
  chat->SetTemplateOptions(render);
  if (o.system) chat->SetSystem(*o.system);
  if (o.context_full) chat->SetContextFull(*o.context_full);
  if (o.session) chat->SetAutosave(*o.session, o.save_every_s);
  return Status();
}

// One turn of a chat that is kept in a file.
Status AnswerInSession(const Options& o, Engine* engine, const std::string& model,
                       const std::string& text) {
  if (!engine->text()->has_chat_template()) return NoTemplate(model);
  SLUICE_ASSIGN(const auto session, Session::Create(engine));
  Chat chat(engine, session.get());
  GenerateOptions generate;
  bool resumed = false;
  SLUICE_TRY(BeginChat(o, *engine, &chat, &generate, &resumed));
  Status output;
  if (!o.json) {
    generate.on_text = [&](std::string_view piece) {
      ClearProgressBar();
      if (output.ok()) output = Out(piece);
      if (!output.ok()) CancelFlag()->store(true);
    };
  }
  const Result<GenerateResult> result =
      o.go_on ? chat.Continue(generate, Notice) : chat.Ask(text, generate, Notice);
  ClearProgressBar();
  if (!result.ok()) return result.status();
  const Status saved = chat.Save(*o.session, generate);
  SLUICE_TRY(output);
  const std::vector<TokenId>& timeline = session->tokens();
  const size_t prompt = std::min<size_t>(result->prompt_tokens, timeline.size());
  const Status reported =
      Report(o, *engine, generate, *result, {timeline.begin(), timeline.begin() + prompt});
  if (reported.ok()) return saved;
  if (!saved.ok()) Fail(saved);
  return reported;
}

Status CheckCombination(const Options& o) {
  if (o.prompt.has_value() + o.file.has_value() + o.ids.has_value() > 1) {
    return Status(Code::kUsage, "give only one of -p, -f and --ids");
  }
  if (o.session && (o.raw || o.ids)) {
    return Status(Code::kUsage, "--session keeps a chat", "", "drop --raw and --ids");
  }
  if (o.session && o.engine.private_session) {
    return Status(Code::kUsage, "--private stores nothing, --session does", "", "give one of them");
  }
  if (o.go_on && (!o.session || o.prompt || o.file)) {
    return Status(Code::kUsage, "--continue takes --session and no prompt");
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
  SLUICE_TRY(CheckSessionFile(o));
  SLUICE_ASSIGN(const std::optional<std::string> prompt, PromptText(o));
  o.engine.progress = MakeProgressBar();
  if (prompt) {
    const WorkScope work;
    SLUICE_ASSIGN(const auto engine, OpenEngine(o, model));
    if (o.session) return AnswerInSession(o, engine.get(), model, *prompt);
    return AnswerOnce(o, engine.get(), model, *prompt);
  }
  SLUICE_ASSIGN(const auto engine, Engine::Open(model, o.engine));
  ClearProgressBar();
  if (!engine->text()->has_chat_template()) return NoTemplate(model);
  SLUICE_ASSIGN(const auto session, Session::Create(engine.get()));
  Chat chat(engine.get(), session.get());
  ChatSettings settings;
  SLUICE_TRY(BeginChat(o, *engine, &chat, &settings.generate, &settings.resumed));
  settings.stats = o.stats;
  settings.session_path = o.session.value_or("");
  settings.private_session = o.engine.private_session;
  return RunChat(engine.get(), &chat, std::move(settings));
}

}  // namespace sluice::cli
