#include <fmt/format.h>

#include "base/bytes.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "pack/forge.h"

namespace sluice::cli {
namespace {

void AddSize(Args* args, const char* name, std::optional<uint32_t>* out, const char* help) {
  args->Value(
      name, "N",
      [out](const std::string& text) -> Status {
        SLUICE_ASSIGN(const int64_t value, ParseInt(text, 0, INT32_MAX));
        *out = static_cast<uint32_t>(value);
        return Status();
      },
      help);
}

void AddSizes(Args* args, ForgeOverrides* o) {
  args->Group("Smaller than the real model");
  AddSize(args, "--layers", &o->layers, "layers");
  AddSize(args, "--hidden", &o->hidden, "width of the residual stream");
  AddSize(args, "--experts", &o->experts, "experts per layer");
  AddSize(args, "--used", &o->used, "experts per token");
  AddSize(args, "--ff", &o->expert_ff, "width of one expert");
  AddSize(args, "--shared-ff", &o->shared_ff, "width of the shared expert");
  AddSize(args, "--heads", &o->heads, "query heads");
  AddSize(args, "--kv-heads", &o->kv_heads, "key and value heads");
  AddSize(args, "--head-dim", &o->head_dim, "width of a head");
  AddSize(args, "--key-heads", &o->key_heads, "DeltaNet key heads");
  AddSize(args, "--value-heads", &o->value_heads, "DeltaNet value heads");
  AddSize(args, "--delta-dim", &o->delta_dim, "width of a DeltaNet head");
  AddSize(args, "--vocab", &o->vocab, "tokens");
  AddSize(args, "--context", &o->context, "the context length the file claims");
}

std::string Summary(const ForgeReport& r, const std::string& path) {
  const double gb = static_cast<double>(r.file_bytes) / 1e9;
  std::string text = fmt::format(
      "{}: {:.2f} GB ({} bytes), {} tensors, {} layers x {} experts of {} bytes, top-{}; written "
      "in "
      "{} ({:.2f} GB/s)\n",
      path, gb, r.file_bytes, r.tensors, r.layers, r.experts, r.expert_bytes, r.used,
      FormatDuration(r.seconds), gb / r.seconds);
  if (r.prompt_tokens > 0) {
    text += fmt::format("ids 0 to {} replay the recorded prompt, {} to {} its answer\n",
                        r.prompt_tokens - 1, r.prompt_tokens, r.codes - 1);
  } else {
    text += fmt::format("ids 0 to {} each have a routing of their own\n", r.codes - 1);
  }
  return text;
}

}  // namespace

Status CmdForge(const VerbArgs& words) {
  Args args("forge",
            "A synthetic GGUF file of a real model's exact shape, to measure a device with.");
  std::string shape, out;
  std::optional<std::string> recipe, routing;
  ForgeOptions options;
  std::string names;
  for (const std::string& name : ForgeShapeNames()) names += (names.empty() ? "" : ", ") + name;
  args.Positional("SHAPE", &shape, true, names);
  args.Positional("OUT", &out, true, "output file; appears whole or not at all");
  args.Text("--recipe", &recipe, "weight types: q4_k, mxfp4, q8_0, f32 (default: the shape's)");
  args.Text("--routing", &routing, "uniform, or a recorded TRACE.csv to plant");
  args.Value(
      "--seed", "N",
      [&](const std::string& text) -> Status {
        SLUICE_ASSIGN(options.seed, ParseUnsigned(text));
        return Status();
      },
      "of the random weights and the uniform routing");
  AddSizes(&args, &options.overrides);
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  options.shape = shape;
  options.recipe = recipe.value_or("");
  if (routing && *routing != "uniform") options.trace_path = *routing;
  options.progress = MakeProgressBar();
  options.cancel = CancelFlag();
  const WorkScope work;
  Result<ForgeReport> report = Forge(options, out);
  ClearProgressBar();
  if (!report.ok()) return report.status();
  return Out(Summary(*report, out));
}

}  // namespace sluice::cli
