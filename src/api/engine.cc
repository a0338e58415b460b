#include <fmt/format.h>

#include "api/engine_impl.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/thread_pool.h"
#include "kernels/peak.h"
#include "model/config_common.h"
#include "runtime/int8_work.h"

namespace sluice {
namespace {

// GGUF files without a tokenizer section (ids in, ids out) are fine unless text is wanted.
bool HasTokenizer(const ModelSource& source) {
  if (source.folder) return source.folder->has_tokenizer_json;
  return source.gguf->header.metadata.Find("tokenizer.ggml.model") != nullptr;
}

RopeOverride OverrideOf(const RopeOptions& options) {
  RopeOverride rope;
  if (options.mode == RopeMode::kNone) rope.scaling = RopeScaling::kNone;
  if (options.mode == RopeMode::kLinear) rope.scaling = RopeScaling::kLinear;
  if (options.mode == RopeMode::kYarn) rope.scaling = RopeScaling::kYarn;
  rope.factor = static_cast<float>(options.scale);
  rope.theta = static_cast<float>(options.freq_base);
  rope.original_context = options.yarn_orig_ctx;
  return rope;
}

// What an override came to: it changes the answer, so the summary says so.
std::vector<std::string> RopeNotices(const RopeOptions& options, const RopeConfig& rope) {
  if (!OverrideOf(options).any()) return {};
  std::string text = fmt::format("positions by option: scaling {}", RopeScalingName(rope.scaling));
  if (rope.scaling != RopeScaling::kNone) text += fmt::format(" x{:g}", rope.factor);
  if (rope.scaling == RopeScaling::kYarn) text += fmt::format(" from {}", rope.original_context);
  text += fmt::format(", base {:g}; the answer is another than the model file's own", rope.theta);
  return {text};
}

constexpr double kPeakSeconds = 0.05;

void AddInt8Rates(const Plan& plan, double peak_gops, Stats* stats) {
  stats->act_planes = plan.act_planes;
  stats->int8_peak_gops = peak_gops;
  if (stats->prompt_tokens == 0 || stats->prefill_s <= 0) return;
  const double operations =
      static_cast<double>(stats->prompt_tokens) * static_cast<double>(plan.int8_ops_per_token) +
      static_cast<double>(plan.int8_ops_per_logits);
  stats->prefill_int8_gops = operations / stats->prefill_s * 1e-9;
  if (peak_gops > 0) stats->prefill_int8_fraction = stats->prefill_int8_gops / peak_gops;
}

struct Opened {
  CoreInput core;
  std::unique_ptr<TextModel> text;
  std::string defaults;
  ModelDigest digest;
};

Result<Opened> OpenParts(const std::string& model_path, const EngineOptions& options) {
  Opened o;
  o.core.opened_s = NowSeconds();
  o.core.peak_before_bytes = ReadProcessMemory().peak_rss_bytes;
  o.core.options = options;
  SLUICE_ASSIGN(o.core.source, OpenModelSource(model_path, /*need_weights=*/true));
  o.defaults = GenerationDefaults(o.core.source);
  o.digest = DigestOf(o.core.source);
  o.core.source.rope = OverrideOf(options.rope);
  if (options.need_text) {
    if (!HasTokenizer(o.core.source)) {
      return Status(Code::kBadModel, "the model has no tokenizer", model_path,
                    "give token ids with --ids instead of text");
    }
    SLUICE_ASSIGN(o.text, MakeTextModel(o.core.source));
    o.core.tokenizer_bytes = o.text->memory_bytes();
  }
  return o;
}

}  // namespace

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Open(const std::string& model_path,
                                             const EngineOptions& options) {
  SLUICE_ASSIGN(Opened opened, OpenParts(model_path, options));
  auto impl = std::make_unique<Impl>();
  impl->text = std::move(opened.text);
  impl->defaults = std::move(opened.defaults);
  impl->digest = std::move(opened.digest);
  SLUICE_ASSIGN(impl->core, EngineCore::Open(std::move(opened.core)));
  impl->cpus = options.cpus;
  impl->notices = RopeNotices(options.rope, impl->core->config().rope);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<ModelIdentity> Engine::Impl::Identity() {
  std::lock_guard lock(identity_mutex);
  if (!identity) {
    ModelIdentity here;
    here.name = digest.name;
    here.architecture = core->config().arch_name;
    here.vocab = core->config().vocab;
    SLUICE_ASSIGN(here.model, ModelHash(digest));
    here.vocabulary = VocabularyHash(text ? &text->impl().tokenizer() : nullptr);
    identity = std::move(here);
  }
  return *identity;
}

Result<Plan> Engine::PlanFor(const std::string& model_path, const EngineOptions& options) {
  EngineOptions o = options;
  o.need_text = false;
  SLUICE_ASSIGN(Opened opened, OpenParts(model_path, o));
  // The tokenizer is part of the table, so it is built where there is one; a model without plans
  // without.
  if (options.need_text && HasTokenizer(opened.core.source)) {
    SLUICE_ASSIGN(opened.text, MakeTextModel(opened.core.source));
    opened.core.tokenizer_bytes = opened.text->memory_bytes();
  }
  return EngineCore::PlanOnly(std::move(opened.core));
}

const Plan& Engine::plan() const { return impl_->core->plan(); }
const TextModel* Engine::text() const { return impl_->text.get(); }
uint32_t Engine::vocab_size() const { return impl_->core->config().vocab; }
uint32_t Engine::context() const { return impl_->core->plan().context; }
const std::string& Engine::generation_defaults_json() const { return impl_->defaults; }
Stats Engine::stats() const {
  Stats stats = impl_->core->stats();
  AddInt8Rates(plan(), impl_->int8_peak_gops, &stats);
  stats.notices.insert(stats.notices.end(), impl_->notices.begin(), impl_->notices.end());
  return stats;
}
void Engine::ResetStats() { impl_->core->ResetStats(); }
void Engine::MeasureMachine() {
  impl_->core->MeasureMachine();
  const Stats stats = impl_->core->stats();
  ThreadPool pool(stats.threads, impl_->cpus);  // the core's sleeps meanwhile
  impl_->int8_peak_gops =
      MeasureOperations(FindPeakLoops(stats.isa).int8, &pool, kPeakSeconds) * 1e-9;
}

}  // namespace sluice
