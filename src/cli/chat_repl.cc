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
    "  /undo             forget the last question and its answer\n"
    "  /system [TEXT]    set the system text for the next answer (none: remove it)\n"
    "  /set NAME VALUE   temp, top-k, top-p, min-p, typical-p, repeat-penalty,\n"
    "                    presence-penalty, frequency-penalty, seed, n\n"
    "  /stats            speed, disk traffic and memory so far\n"
    "  /save FILE        write the conversation as JSON\n"
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
  Repl(Engine* engine, Session* session, ChatSettings settings)
      : engine_(engine), settings_(std::move(settings)), chat_(engine, session) {
    chat_.SetSystem(settings_.system);
    chat_.SetContextFull(settings_.context_full);
    chat_.SetTemplateOptions(settings_.render);
    settings_.generate.cancel = CancelFlag();
    settings_.generate.on_text = [this](std::string_view text) {
      ClearProgressBar();
      if (output_.ok()) output_ = Out(text);
      if (!output_.ok()) CancelFlag()->store(true);
    };
  }

  Status Loop() {
    Tell(Dim("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.") + "\n");
    bool interrupted = false;
    std::string message;
    while (!done_ && !TerminateRequested()) {
      const LineEditor::Outcome outcome = editor_.Read(&message);
      if (outcome == LineEditor::Outcome::kEnd) break;
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
    return Status();
  }

 private:
  Status Answer(const std::string& message) {
    const WorkScope work;
    Result<GenerateResult> result = chat_.Ask(message, settings_.generate, Notice);
    ClearProgressBar();
    if (!result.ok()) return result.status();
    if (!result->text.empty() && !result->text.ends_with('\n')) SLUICE_TRY(Out("\n"));
    if (result->finish_reason == "cancelled") Tell(Dim("(stopped)") + "\n");
    if (result->finish_reason == "length") Tell(Dim("(cut at the token limit)") + "\n");
    if (result->finish_reason == "context") {
      Notice(
          fmt::format("the context of {} tokens is full: the answer ends here; /clear makes room",
                      engine_->context()));
    }
    return Status();
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
    } else if (name == "/undo") {
      if (!chat_.Undo()) return Status(Code::kUsage, "there is nothing to undo");
    } else if (name == "/system") {
      chat_.SetSystem(rest);
    } else if (name == "/stats") {
      Tell(StatsTable(engine_->plan(), engine_->stats()));
    } else if (name == "/save") {
      return Save(rest);
    } else if (name == "/set") {
      const size_t cut = rest.find(' ');
      if (cut == std::string::npos) return Status(Code::kUsage, "want /set NAME VALUE");
      return Set(rest.substr(0, cut), rest.substr(cut + 1), &settings_.generate);
    } else {
      return Status(Code::kUsage, fmt::format("unknown command {}", name), "", "see /help");
    }
    return Status();
  }

  Status Save(const std::string& path) {
    if (path.empty()) return Status(Code::kUsage, "want /save FILE");
    SLUICE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
    SLUICE_TRY(file.Write(chat_.HistoryJson() + "\n"));
    return file.Commit();
  }

  Engine* engine_;
  ChatSettings settings_;
  Chat chat_;
  LineEditor editor_;
  Status output_;
  bool done_ = false;
};

}  // namespace

Status RunChat(Engine* engine, ChatSettings settings) {
  SLUICE_ASSIGN(const auto session, Session::Create(engine));
  const bool stats = settings.stats;
  SLUICE_TRY(Repl(engine, session.get(), std::move(settings)).Loop());
  if (stats) Tell(StatsTable(engine->plan(), engine->stats()));
  return Status();
}

}  // namespace sluice::cli
