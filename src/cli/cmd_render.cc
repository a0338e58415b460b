#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/console.h"
#include "cli/engine_args.h"
#include "cli/files.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "sluice/tokenizer.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

// Days since 1970-01-01 of a date of the Gregorian calendar (Hinnant, "chrono-compatible low-level
// date algorithms", 2013).
int64_t DaysFromCivil(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2;
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

int DaysInMonth(int year, int month) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  return kDays[month - 1] + (month == 2 && leap);
}

// "2025-03-09T12:00:00" (a space instead of T, or the date alone, too) as seconds since 1970, no
// time zone.
Result<int64_t> ParseCivilTime(const std::string& text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, end = 0;
  const int length = static_cast<int>(text.size());
  bool ok = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &year, &month, &day, &hour,
                        &minute, &second, &end) == 6 &&
            end == length;
  if (!ok) {
    ok = std::sscanf(text.c_str(), "%4d-%2d-%2d %2d:%2d:%2d%n", &year, &month, &day, &hour, &minute,
                     &second, &end) == 6 &&
         end == length;
  }
  if (!ok) {
    hour = minute = second = 0;
    ok =
        std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &end) == 3 && end == length;
  }
  ok = ok && year >= 1970 && month >= 1 && month <= 12 && day >= 1 &&
       day <= DaysInMonth(year, month) && hour >= 0 && hour < 24 && minute >= 0 && minute < 60 &&
       second >= 0 && second < 60;
  if (!ok) {
    return Status(Code::kUsage, fmt::format("'{}' is no time from 1970 on", text), "",
                  "want 2025-03-09T12:00:00");
  }
  return DaysFromCivil(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
}

// Reads a JSON file and checks what it is; the text itself goes on untouched, key order included.
Result<std::string> ReadJson(const std::string& path, bool want_array) {
  SLUICE_ASSIGN(std::string text, ReadAll(path));
  const auto json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Status(Code::kUsage, "not valid JSON", path);
  if (want_array ? !json.is_array() : !json.is_object()) {
    return Status(Code::kUsage, want_array ? "want a JSON array" : "want a JSON object", path);
  }
  return text;
}

struct Messages {
  std::string messages, tools;
};

// An array of messages, or a request object with "messages" (and perhaps "tools").
Result<Messages> ReadMessages(const std::string& path) {
  SLUICE_ASSIGN(std::string text, ReadAll(path));
  const auto json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_array()) return Messages{std::move(text), {}};
  if (!json.is_object() || !json.contains("messages") || !json["messages"].is_array()) {
    return Status(Code::kUsage, json.is_discarded() ? "not valid JSON" : "no array of messages",
                  path, "want [{\"role\":\"user\",\"content\":\"...\"}]");
  }
  Messages out{Dump(json["messages"]), {}};
  if (json.contains("tools") && json["tools"].is_array()) out.tools = Dump(json["tools"]);
  return out;
}

struct Options {
  std::string model;
  std::optional<std::string> template_path, special, messages, tools;
  bool no_generation_prompt = false;
  RenderOptions render;
};

void Declare(Args* args, Options* o) {
  args->Positional("MODEL", &o->model, false, "a .gguf file, or a folder with tokenizer files");
  args->Text("--template", &o->template_path, "a Jinja template instead of a model");
  args->Text("--special", &o->special, "JSON file with bos_token, eos_token, ... for --template");
  args->Text("-f,--file", &o->messages, "JSON file with the messages; - is stdin");
  args->Text("--tools", &o->tools, "JSON file with the tools");
  args->Flag("--no-generation-prompt", &o->no_generation_prompt,
             "end after the last message, without the answer's beginning");
  args->Values(
      "--set", "KEY=JSON",
      [o](const std::string& text) { return AddVariable(text, &o->render.extra_json); },
      "a template variable; repeatable");
  args->Value(
      "--now", "TIME",
      [o](const std::string& text) -> Status {
        SLUICE_ASSIGN(o->render.now_unix, ParseCivilTime(text));
        return Status();
      },
      "what strftime_now says: 2025-03-09T12:00:00 (default: the clock)");
}

}  // namespace

Status CmdRender(const VerbArgs& words) {
  Args args("render", "The chat template's exact text; no line end is added.");
  Options o;
  Declare(&args, &o);
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  if (o.model.empty() == !o.template_path.has_value()) {
    return Status(Code::kUsage, "give either MODEL or --template", "", "see sluice render --help");
  }
  if (o.special && !o.template_path) {
    return Status(Code::kUsage, "--special goes with --template", "", "a MODEL has its own");
  }
  if (!o.messages) return Status(Code::kUsage, "-f MESSAGES.json is missing");
  o.render.add_generation_prompt = !o.no_generation_prompt;
  SLUICE_ASSIGN(Messages messages, ReadMessages(*o.messages));
  o.render.tools_json = messages.tools;
  if (o.tools) {
    SLUICE_ASSIGN(o.render.tools_json, ReadJson(*o.tools, /*want_array=*/true));
  }
  std::string special;
  if (o.special) {
    SLUICE_ASSIGN(special, ReadJson(*o.special, /*want_array=*/false));
  }
  if (o.template_path) {
    SLUICE_ASSIGN(const std::string source, ReadAll(*o.template_path));
    SLUICE_ASSIGN(const std::string text,
                  RenderTemplate(source, special, messages.messages, o.render));
    return Out(text);
  }
  SLUICE_ASSIGN(const auto model, TextModel::Open(o.model));
  SLUICE_ASSIGN(const std::string text, model->Render(messages.messages, o.render));
  return Out(text);
}

}  // namespace sluice::cli
