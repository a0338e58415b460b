#include "cli/chat_repl.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/args.h"
#include "cli/console.h"
#include "cli/files.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/report.h"

namespace sluice::cli {
namespace {

constexpr const char* kHelp =
    "  /help             this list\n"
    "  /clear            forget the conversation, keep the system text\n"
    "  /undo             forget the last question and its answer; the up arrow brings the\n"
    "                    question back, to be edited\n"
    "  /system [TEXT]    set the system text for the next answer (none: remove it)\n"
    "  /set NAME VALUE   temp, top-k, top-p, min-p, typical-p, repeat-penalty,\n"
    "                    presence-penalty, frequency-penalty, seed, n (none: show)\n"
    "  /continue         go on with an answer that was cut\n"
    "  /context-full [stop|drop|summarise]\n"
    "                    when the context is full: refuse, drop the oldest turns, or have the\n"
    "                    model sum them up (none: show)\n"
    "  /save [FILE]      keep the chat in a session file (none: that of --session);\n"
    "                    FILE.json: the conversation as JSON\n"
    "  /load FILE        go on with the chat of a session file\n"
    "  /stats            speed, disk traffic and memory so far\n"
    "  /quit             leave (also Ctrl-D, or Ctrl-C twice)\n"
    "  A line that ends in \\ goes on in the next one; \"\"\" opens and closes a block.\n"
    "  Ctrl-C stops an answer.\n";

void Tell(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

template <typename T>
Status SetInt(const std::string& value, int64_t low, int64_t high, T* out) {
  SLUICE_ASSIGN(const int64_t number, ParseInt(value, low, high));
  *out = static_cast<T>(number);
  return Status();
}

Status SetDouble(const std::string& value, double* out) {
  SLUICE_ASSIGN(*out, ParseNumber(value, -1e30, 1e30));
  return Status();
}

// "/set NAME VALUE"; the options stay as they were when the value is out of range.
Status Set(const std::string& name, const std::string& value, GenerateOptions* options) {
  SamplingOptions s = options->sampling;
  int64_t max_tokens = options->max_tokens;
  Status status(Code::kUsage, fmt::format("nothing is called '{}'", name), "", "see /help");
  if (name == "temp" || name == "temperature") status = SetDouble(value, &s.temperature);
  if (name == "top-k") status = SetInt(value, 0, INT32_MAX, &s.top_k);
  if (name == "top-p") status = SetDouble(value, &s.top_p);
  if (name == "min-p") status = SetDouble(value, &s.min_p);
  if (name == "typical-p") status = SetDouble(value, &s.typical_p);
  if (name == "repeat-penalty") status = SetDouble(value, &s.repeat_penalty);
  if (name == "presence-penalty") status = SetDouble(value, &s.presence_penalty);
  if (name == "frequency-penalty") status = SetDouble(value, &s.frequency_penalty);
  if (name == "seed") status = SetInt(value, 0, INT64_MAX, &s.seed);
  if (name == "n") status = SetInt(value, -1, INT32_MAX, &max_tokens);
  SLUICE_TRY(status);
  SLUICE_TRY(ValidateSampling(s, 0));
  options->sampling = std::move(s);
  options->max_tokens = max_tokens;
  return Status();
}

class Repl {
 public:
  Repl(Engine* engine, Chat* chat, ChatSettings settings)
      : engine_(engine), settings_(std::move(settings)), chat_(*chat) {
    settings_.generate.cancel = CancelFlag();
    settings_.generate.on_text = [this](std::string_view text) {
      ClearProgressBar();
      if (output_.ok()) output_ = Out(text);
      if (!output_.ok()) CancelFlag()->store(true);
    };
  }

  Status Loop() {
    Tell(Dim("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.") + "\n");
    if (settings_.resumed) TellResumed(settings_.session_path);
    bool interrupted = false;
    std::string message;
    while (!done_ && !TerminateRequested()) {
      const LineEditor::Outcome outcome = editor_.Read(&message);
      if (outcome == LineEditor::Outcome::kEnd) {
        Tell("\n");  // the prompt's line is left
        break;
      }
      if (outcome == LineEditor::Outcome::kInterrupted) {
        if (interrupted) break;
        interrupted = true;
        Tell(Dim("Ctrl-C again, or Ctrl-D, leaves.") + "\n");
        continue;
      }
      interrupted = false;
      if (message.empty()) continue;
      const Status status = message[0] == '/' ? Command(message) : Answer(message);
      SLUICE_TRY(output_);
      if (!status.ok()) Fail(status);
    }
    return saved_ever_ ? Status() : KeepSession();  // a new chat without a turn, a full disk
  }

 private:
  std::string Turns() const {
    return chat_.turns() == 1 ? std::string("1 turn") : fmt::format("{} turns", chat_.turns());
  }
  static void Say(const std::string& text) { Tell(Dim("(" + text + ")") + "\n"); }

  void TellResumed(const std::string& path) {
    Tell(Dim(fmt::format(
             "{}: {} so far.{}", path, Turns(),
             chat_.can_continue() ? " The last answer was cut; /continue goes on." : "")) +
         "\n");
  }

  void TellSettings() const {
    const SamplingOptions& s = settings_.generate.sampling;
    Tell(fmt::format(
        "  temp {}, top-k {}, top-p {}, min-p {}, typical-p {}, repeat-penalty {},\n"
        "  presence-penalty {}, frequency-penalty {}, seed {}, n {}\n",
        s.temperature, s.top_k, s.top_p, s.min_p, s.typical_p, s.repeat_penalty, s.presence_penalty,
        s.frequency_penalty, s.seed, settings_.generate.max_tokens));
  }

  // --stats: what this answer cost; the table at the end sums up all of them.
  static void TellTurn(const GenerateResult& result) {
    Tell(Dim(fmt::format("({} prompt tokens processed, {} were known already; {} answered)",
                         result.prompt_tokens - result.reused_tokens, result.reused_tokens,
                         result.ids.size())) +
         "\n");
  }

  // To the file of --session, if there is one; a failure is told and the chat goes on.
  Status KeepSession() {
    if (settings_.session_path.empty()) return Status();
    saved_ = chat_.Save(settings_.session_path, settings_.generate);
    saved_ever_ = saved_.ok();
    return saved_;
  }

  Status Answer(const std::string& message) {
    return Show([&] { return chat_.Ask(message, settings_.generate, Notice); });
  }

  template <typename Call>
  Status Show(const Call& call) {
    const WorkScope work;
    Result<GenerateResult> result = call();
    ClearProgressBar();
    if (!result.ok()) return result.status();
    const Status kept = KeepSession();
    if (MidLine()) SLUICE_TRY(Out("\n"));
    if (settings_.stats) TellTurn(*result);
    const char* on = chat_.can_continue() ? " /continue goes on." : "";
    if (result->finish_reason == "cancelled") Tell(Dim(fmt::format("(stopped){}", on)) + "\n");
    if (result->finish_reason == "length")
      Tell(Dim(fmt::format("(cut at the token limit){}", on)) + "\n");
    if (result->finish_reason == "context") {
      Notice(
          fmt::format("the context of {} tokens is full: the answer ends here; /clear makes room",
                      engine_->context()));
    }
    return kept;
  }

  Status Command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/quit" || name == "/exit") {
      done_ = true;
    } else if (name == "/help") {
      Tell(kHelp);
    } else if (name == "/clear") {
      chat_.Clear();
      Say("forgotten");
      return KeepSession();
    } else if (name == "/undo") {
      if (!chat_.Undo()) return Status(Code::kUsage, "there is nothing to undo");
      Say(fmt::format("forgotten; {} left", Turns()));
      return KeepSession();
    } else if (name == "/system") {
      chat_.SetSystem(rest);
      Say(rest.empty() ? "no system text" : "the system text is for the next answer");
      return KeepSession();
    } else if (name == "/continue") {
      return Show([&] { return chat_.Continue(settings_.generate, Notice); });
    } else if (name == "/context-full") {
      return SetContextFull(rest);
    } else if (name == "/stats") {
      Tell(StatsTable(engine_->plan(), engine_->stats()));
    } else if (name == "/save") {
      return Save(rest);
    } else if (name == "/load") {
      return Load(rest);
    } else if (name == "/set" && rest.empty()) {
      TellSettings();
    } else if (name == "/set") {
      const size_t cut = rest.find(' ');
      if (cut == std::string::npos)
        return Status(Code::kUsage, "want /set NAME VALUE", "", "/set alone shows all");
      SLUICE_TRY(Set(rest.substr(0, cut), rest.substr(cut + 1), &settings_.generate));
      return KeepSession();
    } else {
      return Status(Code::kUsage, fmt::format("unknown command {}", name), "", "see /help");
    }
    return Status();
  }

  Status SetContextFull(const std::string& name) {
    const char* const kNames[] = {"stop", "drop", "summarise"};
    if (name.empty()) {
      Tell(fmt::format("  {}\n", kNames[static_cast<int>(chat_.context_full())]));
      return Status();
    }
    for (int i = 0; i < 3; ++i) {
      if (name != kNames[i]) continue;
      chat_.SetContextFull(static_cast<ContextFull>(i));
      return KeepSession();
    }
    return Status(Code::kUsage, "want /context-full stop, drop or summarise");
  }

  Status Load(const std::string& path) {
    if (path.empty()) return Status(Code::kUsage, "want /load FILE");
    SLUICE_TRY(chat_.Load(path, &settings_.generate));
    TellResumed(path);
    return KeepSession();
  }

  Status Save(const std::string& path) {
    if (settings_.private_session) {
      return Status(Code::kUsage, "this chat is private: nothing of it is stored");
    }
    if (path.empty()) {
      if (settings_.session_path.empty())
        return Status(Code::kUsage, "want /save FILE", "", "or start with --session FILE");
      SLUICE_TRY(KeepSession());
    } else if (path.ends_with(".json")) {
      SLUICE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
      SLUICE_TRY(file.Write(chat_.HistoryJson() + "\n"));
      SLUICE_TRY(file.Commit());
    } else {
      SLUICE_TRY(chat_.Save(path, settings_.generate));
    }
    Say("saved: " + (path.empty() ? settings_.session_path : path));
    return Status();
  }

  Engine* engine_;
  ChatSettings settings_;
  Chat& chat_;
  LineEditor editor_;
  Status output_, saved_;
  bool saved_ever_ = false;
  bool done_ = false;
};

}  // namespace

Status RunChat(Engine* engine, Chat* chat, ChatSettings settings) {
  const bool stats = settings.stats;
  const Status status = Repl(engine, chat, std::move(settings)).Loop();
  if (stats) Tell(StatsTable(engine->plan(), engine->stats()));
  return status;
}

}  // namespace sluice::cli
