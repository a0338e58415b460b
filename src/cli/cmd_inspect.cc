#include "cli/console.h"
#include "cli/verbs.h"
#include "sluice/engine.h"

namespace sluice::cli {

Status CmdInspect(const VerbArgs& words) {
  Args args("inspect", "What a model file holds.");
  std::string model;
  bool tensors = false, json = false;
  args.Positional("MODEL", &model, true, "a .gguf file or a Hugging Face folder");
  args.Flag("--tensors", &tensors, "list every tensor");
  args.Flag("--json", &json, "as JSON");
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  SLUICE_ASSIGN(std::string text, InspectModel(model, tensors, json));
  if (!text.ends_with('\n')) text += '\n';
  return Out(text);
}

}  // namespace sluice::cli
