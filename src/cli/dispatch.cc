#include <fmt/format.h>

#include <clocale>
#include <cstdio>

#include "base/log.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"

namespace sluice::cli {
namespace {

constexpr const char* kVersion = "0.1.0";

struct Verb {
  const char* name;
  const char* summary;
  Status (*run)(const VerbArgs& args);
};

constexpr Verb kVerbs[] = {
    {"run", "answer a prompt, or chat", CmdRun},
    {"plan", "the byte table and the predicted rate; loads nothing", CmdPlan},
    {"inspect", "what a model file holds", CmdInspect},
    {"tokenize", "text to token ids and back", CmdTokenize},
    {"render", "the exact text of a chat template", CmdRender},
    {"quant", "raw blocks of a weight type to float32 and back", CmdQuant},
    {"logits", "the logits of given tokens as a .npy file", CmdLogits},
    {"bench", "measure prefill and decode", CmdBench},
    {"forge", "a synthetic file of a real model's exact shape", CmdForge},
    {"simulate", "replay a routing trace over cache sizes and policies", CmdSimulate},
    {"cache", "what is kept of prompts between runs", CmdCache},
};

std::string Help() {
  std::string text =
      "sluice runs language models that are bigger than memory, inside the budget you name.\n\n"
      "usage: sluice VERB [arguments]\n\n";
  for (const Verb& verb : kVerbs) text += fmt::format("  {:<10} {}\n", verb.name, verb.summary);
  return text +
         "\nsluice VERB --help lists a verb's options. Try: sluice run -p \"Hello\" --budget 72M\n";
}

std::string VerbNames() {
  std::string names;
  for (const Verb& verb : kVerbs) names += (names.empty() ? "" : ", ") + std::string(verb.name);
  return names;
}

Status UnknownVerb(const std::string& name) {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  const std::string nearest = Nearest(name, names);
  return Status(Code::kUsage, fmt::format("unknown verb '{}'", name), "",
                (nearest.empty() ? "" : fmt::format("did you mean {}? ", nearest)) +
                    "the verbs are " + VerbNames());
}

Status Dispatch(const std::vector<std::string>& words) {
  if (words.empty()) return Status(Code::kUsage, "no verb", "", "the verbs are " + VerbNames());
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") return Out(Help());
  if (words[0] == "--version" || words[0] == "version") {
    return Out(fmt::format("sluice {}\n", kVersion));
  }
  for (const Verb& verb : kVerbs) {
    if (words[0] == verb.name) return verb.run(VerbArgs(words.begin() + 1, words.end()));
  }
  return UnknownVerb(words[0]);
}

}  // namespace

int Main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");  // for the line editor; numbers stay as in C
  InstallInterrupt();
  SetLogSink([](LogLevel level, std::string_view message) {
    if (level != LogLevel::kInfo) Notice(message);
  });
  const Status status = Dispatch(std::vector<std::string>(argv + 1, argv + std::max(argc, 1)));
  const int code = status.ok() ? 0 : Fail(status);
  SetLogSink({});
  return code;
}

}  // namespace sluice::cli
