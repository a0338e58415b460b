#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/console.h"
#include "cli/engine_args.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "pack/forge.h"

namespace sluice::cli {
namespace {

// An empty file of our own that is removed with the object.
class TemporaryFile {
 public:
  static Result<TemporaryFile> Create() {
    const char* folder = std::getenv("TMPDIR");
    std::string path = folder != nullptr && *folder != '\0' ? folder : "/tmp";
    path += "/sluice-plan-XXXXXX";
    const int fd = mkstemp(path.data());
    if (fd < 0) {
      return Status(Code::kIo,
                    fmt::format("cannot create a temporary file: {}", std::strerror(errno)), path,
                    "set TMPDIR to a folder that can be written");
    }
    close(fd);
    return TemporaryFile(std::move(path));
  }
  TemporaryFile(TemporaryFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ~TemporaryFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string ShapeNames() {
  std::string names;
  for (const std::string& name : ForgeShapeNames()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

// The plan of a header whose data is a hole. Nothing is measured: a hole is no disk.
Result<Plan> PlanForShape(const std::string& shape, EngineOptions options) {
  ForgeOptions forge;
  forge.shape = shape;
  const WorkScope work;  // an interrupt must not leave the file behind
  SLUICE_TRY(FindForgeShape(shape, forge.overrides).status());
  SLUICE_ASSIGN(const TemporaryFile file, TemporaryFile::Create());
  SLUICE_TRY(ForgeOutline(forge, file.path()));
  options.probe = false;
  options.state_dir.clear();  // what is known of this folder's device says nothing of the model's
  SLUICE_ASSIGN(Plan plan, Engine::PlanFor(file.path(), options));
  if (*CancelFlag()) return Status(Code::kFailed, "cancelled");
  plan.model = shape;
  return plan;
}

}  // namespace

Status CmdPlan(const VerbArgs& words) {
  Args args("plan", "The byte table and the predicted rate. Reads headers, loads nothing.");
  std::string model;
  std::optional<std::string> shape;
  EngineOptions options;
  bool json = false, no_probe = false;
  args.Positional("MODEL", &model, false, "a .gguf file or a Hugging Face folder");
  args.Text("--shape", &shape, "plan a real model without its file: " + ShapeNames());
  args.Flag("--no-probe", &no_probe,
            "do not measure the disk and the memory: use what is remembered");
  args.Flag("--json", &json, "as JSON");
  AddPlanArgs(&args, &options);
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  if (shape && !model.empty()) {
    return Status(Code::kUsage, "MODEL and --shape exclude each other", model);
  }
  if (!shape && model.empty()) {
    return Status(Code::kUsage, "MODEL is missing", "", "see sluice plan --help");
  }
  options.probe = !no_probe;
  SLUICE_ASSIGN(const Plan plan,
                shape ? PlanForShape(*shape, options) : Engine::PlanFor(model, options));
  return Out(json ? Dump(PlanJson(plan)) + "\n" : PlanTable(plan));
}

}  // namespace sluice::cli
