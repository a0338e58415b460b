#include <nlohmann/json.hpp>

#include "cli/console.h"
#include "cli/engine_args.h"
#include "cli/report.h"
#include "cli/verbs.h"

namespace sluice::cli {

Status CmdPlan(const VerbArgs& words) {
  Args args("plan", "The byte table and the predicted rate. Reads headers, loads nothing.");
  std::string model;
  std::optional<std::string> shape;
  EngineOptions options;
  bool json = false, no_probe = false;
  args.Positional("MODEL", &model, false, "a .gguf file or a Hugging Face folder");
  args.Text("--shape", &shape, "plan a known shape without a file");
  args.Flag("--no-probe", &no_probe, "do not measure the disk and the memory");
  args.Flag("--json", &json, "as JSON");
  AddPlanArgs(&args, &options);
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  if (shape) {
    return Status(Code::kUsage, "there are no named shapes in this version", "--shape " + *shape,
                  "give a MODEL");
  }
  if (model.empty()) {
    return Status(Code::kUsage, "MODEL is missing", "", "see sluice plan --help");
  }
  options.probe = !no_probe;
  SLUICE_ASSIGN(const Plan plan, Engine::PlanFor(model, options));
  return Out(json ? Dump(PlanJson(plan)) + "\n" : PlanTable(plan));
}

}  // namespace sluice::cli
