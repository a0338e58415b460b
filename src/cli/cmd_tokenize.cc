#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/console.h"
#include "cli/files.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "sluice/tokenizer.h"

namespace sluice::cli {
namespace {

struct Options {
  std::string model;
  std::optional<std::string> text, file, ids;
  bool special = false, bos = false, json = false, decode = false, skip_special = false;
};

Status Decode(const Options& o, const TextModel& model) {
  SLUICE_ASSIGN(const std::vector<TokenId> ids, ParseIds(*o.ids));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<uint32_t>(ids[i]) < model.vocab_size()) continue;
    return Status(Code::kUsage,
                  fmt::format("token id {} (number {}) is not in the vocabulary", ids[i], i + 1),
                  "--ids", fmt::format("ids go from 0 to {}", model.vocab_size() - 1));
  }
  const std::string text = model.Decode(ids, !o.skip_special);
  if (o.json) return Out(Dump({{"text", text}}) + "\n");
  // The exact text; only a person at a terminal gets a line end that is not in it.
  return Out(text + (IsTerminal(STDOUT_FILENO) ? "\n" : ""));
}

Status Encode(const Options& o, const TextModel& model) {
  std::string text = o.text.value_or("");
  if (o.file) {
    SLUICE_ASSIGN(text, ReadAll(*o.file));
  }
  // Asked for by name, BOS is written before whatever the text holds, as the reference tokenizers
  // do; only generation takes care not to double it.
  std::vector<TokenId> ids;
  if (o.bos) ids = model.Encode("", /*special=*/false, /*add_bos=*/true);
  const std::vector<TokenId> rest = model.Encode(text, o.special, /*add_bos=*/false);
  ids.insert(ids.end(), rest.begin(), rest.end());
  if (o.json) return Out(Dump({{"ids", ids}}) + "\n");
  std::string line;
  for (TokenId id : ids) line += (line.empty() ? "" : ",") + std::to_string(id);
  return Out(line + "\n");
}

}  // namespace

Status CmdTokenize(const VerbArgs& words) {
  Args args("tokenize", "Text to token ids (one line, comma-separated), and back.");
  Options o;
  args.Positional("MODEL", &o.model, true, "a .gguf file, or a folder with tokenizer files");
  args.Text("--text", &o.text, "the text");
  args.Text("-f,--file", &o.file, "read the text from a file, byte for byte; - is stdin");
  args.Flag("--special", &o.special, "control tokens written in the text become control tokens");
  args.Flag("--bos", &o.bos, "begin with BOS if the model wants one");
  args.Flag("--json", &o.json, "as JSON: {\"ids\":[...]} or {\"text\":...}");
  args.Flag("--decode", &o.decode, "ids to text: the exact text, no line end added");
  args.Text("--ids", &o.ids, "ids to decode: 1,2,3");
  args.Flag("--skip-special", &o.skip_special, "leave control tokens out of the decoded text");
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  const int sources = o.text.has_value() + o.file.has_value() + o.ids.has_value();
  if (sources != 1 || o.decode != o.ids.has_value()) {
    return Status(Code::kUsage, "give exactly one of --text, -f, or --decode with --ids", "",
                  "see sluice tokenize --help");
  }
  SLUICE_ASSIGN(const auto model, TextModel::Open(o.model));
  return o.decode ? Decode(o, *model) : Encode(o, *model);
}

}  // namespace sluice::cli
