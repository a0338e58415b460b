#include "api/engine_impl.h"
#include "base/clock.h"
#include "base/cpu.h"

namespace sluice {
namespace {

// GGUF files without a tokenizer section (ids in, ids out) are fine unless text is wanted.
bool HasTokenizer(const ModelSource& source) {
  if (source.folder) return source.folder->has_tokenizer_json;
  return source.gguf->header.metadata.Find("tokenizer.ggml.model") != nullptr;
}

struct Opened {
  CoreInput core;
  std::unique_ptr<TextModel> text;
  std::string defaults;
};

Result<Opened> OpenParts(const std::string& model_path, const EngineOptions& options) {
  Opened o;
  o.core.opened_s = NowSeconds();
  o.core.peak_before_bytes = ReadProcessMemory().peak_rss_bytes;
  o.core.options = options;
  SLUICE_ASSIGN(o.core.source, OpenModelSource(model_path, /*need_weights=*/true));
  o.defaults = GenerationDefaults(o.core.source);
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
  SLUICE_ASSIGN(impl->core, EngineCore::Open(std::move(opened.core)));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
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
Stats Engine::stats() const { return impl_->core->stats(); }
void Engine::ResetStats() { impl_->core->ResetStats(); }
void Engine::MeasureMachine() { impl_->core->MeasureMachine(); }

}  // namespace sluice
