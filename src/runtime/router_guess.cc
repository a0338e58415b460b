#include "runtime/router_guess.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/cpu.h"
#include "model/router.h"

namespace sluice {
namespace {

constexpr WeightType kCopyType = WeightType::kQ8_0;
constexpr uint64_t kStep = 512;  // elements converted at once: a multiple of the type's block

uint32_t FormatBits(uint32_t act_formats) {
  return 1u << static_cast<uint32_t>(ActFormatOf(kCopyType)) |
         (act_formats & ActBuffer::kTwoPlanes);
}

uint64_t CopyRowBytes(uint32_t cols) { return RowBytes(kCopyType, cols).value_or(0); }

}  // namespace

bool RouterGuess::Copies(const LayerMap& layer) {
  const std::optional<MatrixSpec>& router = layer.Get(MatrixRole::kRouter);
  return layer.experts && router && ActFormatOf(router->type) == ActFormat::kF32 &&
         CopyRowBytes(router->cols) > 0;
}

uint64_t RouterGuess::CopyBytes(const ModelMap& map, uint32_t act_formats) {
  uint64_t bytes = 0;
  for (const LayerMap& layer : map.layers) {
    if (!Copies(layer)) continue;
    const MatrixSpec& router = *layer.Get(MatrixRole::kRouter);
    bytes += AlignUp(router.rows * CopyRowBytes(router.cols), 64);
  }
  if (bytes == 0) return 0;
  bytes += ActBuffer::Bytes(1, map.config.hidden, FormatBits(act_formats)) + 64;
  return AlignUp(bytes, PageBytes());  // as its arena is
}

Result<RouterGuess> RouterGuess::Make(const ModelMap* map, const MemoryPlan* plan, Ledger* ledger,
                                      const WeightStream* stream) {
  RouterGuess guess;
  guess.map_ = map;
  guess.plan_ = plan;
  guess.stream_ = stream;
  guess.state_.resize(map->layers.size());
  guess.copy_.resize(map->layers.size());
  guess.h_.resize(map->config.hidden);
  guess.logits_.resize(map->config.moe.experts);
  guess.weight_.resize(map->config.moe.used);
  SLUICE_ASSIGN(guess.arena_, Arena::Make(ledger, "router copy", plan->experts.router_copy_bytes,
                                          Touch::kLazily));
  if (guess.arena_.size() == 0) return guess;
  guess.copy_act_ =
      ActBuffer::Place(&guess.arena_, 1, map->config.hidden, FormatBits(plan->act_formats));
  for (size_t i = 0; i < map->layers.size(); ++i) {
    if (!Copies(map->layers[i])) continue;
    const MatrixSpec& router = *map->layers[i].Get(MatrixRole::kRouter);
    guess.copy_[i] = guess.arena_.Take(router.rows * CopyRowBytes(router.cols));
    if (guess.copy_[i] == nullptr)
      return Status(Code::kFailed, "router copies do not fit their plan", router.name);
  }
  return guess;
}

void RouterGuess::Attach(Exec* exec, const ActBuffer& act) {
  exec_ = exec;
  exact_act_ = act;
}

Matrix RouterGuess::CopyOf(const MatrixSpec& router, const uint8_t* data) {
  return {data, kCopyType, router.rows, router.cols, CopyRowBytes(router.cols)};
}

// Values that no block can hold (not finite, or huge) leave the layer with its exact router.
void RouterGuess::MakeCopy(uint32_t layer) {
  const Matrix& router = stream_->layer(layer)[MatrixRole::kRouter];
  const uint64_t element = router.row_bytes / router.cols, row_bytes = CopyRowBytes(router.cols);
  std::atomic<bool> fits = true;
  exec_->For(router.rows, 8, [&](uint32_t begin, uint32_t end) {
    std::array<float, kStep> values;
    for (uint64_t row = begin; row < end; ++row) {
      uint8_t* out = copy_[layer] + row * row_bytes;
      for (uint64_t at = 0; at < router.cols; at += kStep) {
        const uint64_t n = std::min(kStep, router.cols - at);
        DecodeRow(router.type, router.data + row * router.row_bytes + at * element, values.data(),
                  n);
        if (!EncodeRow(kCopyType, values.data(), out, n).ok()) fits = false;
        out += CopyRowBytes(static_cast<uint32_t>(n));
      }
    }
  });
  state_[layer] = fits ? State::kCopied : State::kExact;
}

void RouterGuess::Ask(uint32_t layer, const float* x, std::vector<uint32_t>* experts) {
  if (!plan_->layer_pinned[layer] || !stream_->Ready(layer)) return;
  const LayerWeights& w = stream_->layer(layer);
  const float* norm = w[VectorRole::kFfnNorm];
  if (!w[MatrixRole::kRouter] || norm == nullptr) return;
  if (state_[layer] == State::kNotAsked) {
    state_[layer] = State::kExact;
    if (copy_[layer] != nullptr) MakeCopy(layer);
  }
  const ModelConfig& c = map_->config;
  const bool copied = state_[layer] == State::kCopied;
  const Matrix router = copied ? CopyOf(*map_->layers[layer].Get(MatrixRole::kRouter), copy_[layer])
                               : w[MatrixRole::kRouter];
  exec_->ops().rms_norm(x, norm, c.rms_eps, c.hidden, h_.data());
  exec_->Project(copied ? copy_act_ : exact_act_, h_.data(), c.hidden, 1,
                 {{&router, logits_.data(), c.moe.experts, RouterLogitBias(c.moe, w)}});
  experts->resize(c.moe.used);
  ChooseExperts(c.moe, exec_->ops(), w, logits_.data(), experts->data(), weight_.data());
}

}  // namespace sluice
