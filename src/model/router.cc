// Routing: which experts a token visits and with what weight (docs/architectures.md, table in 2.7).
#include "model/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/limits.h"
#include "model/forward.h"

namespace sluice {
namespace {

struct Choice {
  uint32_t expert;
  float score;
};

// The k best of score [n], ties to the lower index, best first.
void TopK(const float* score, uint32_t n, uint32_t k, uint32_t* index) {
  std::array<Choice, limits::kExpertsUsedMax> best;
  uint32_t count = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (count == k && !(score[i] > best[count - 1].score)) continue;
    uint32_t at = count < k ? count++ : count - 1;
    while (at > 0 && score[i] > best[at - 1].score) {
      best[at] = best[at - 1];
      --at;
    }
    best[at] = {i, score[i]};
  }
  for (uint32_t j = 0; j < count; ++j) index[j] = best[j].expert;
}

// Group-limited routing: experts outside the best groups lose their score. DeepSeek V2 scores a
// group by its best expert, V3 (sigmoid scores) by the sum of its best two.
void LimitGroups(const MoeConfig& m, float* score) {
  if (m.groups <= 1 || m.groups_used >= m.groups) return;
  std::array<float, limits::kExpertsUsedMax> group_score;
  std::array<uint32_t, limits::kExpertsUsedMax> chosen;
  const uint32_t size = m.experts / m.groups;
  for (uint32_t g = 0; g < m.groups; ++g) {
    float first = -std::numeric_limits<float>::infinity(), second = first;
    for (uint32_t i = g * size; i < (g + 1) * size; ++i) {
      if (score[i] > first) {
        second = first;
        first = score[i];
      } else if (score[i] > second) {
        second = score[i];
      }
    }
    group_score[g] = m.groups_by_top2 && size > 1 ? first + second : first;
  }
  TopK(group_score.data(), m.groups, m.groups_used, chosen.data());
  for (uint32_t g = 0; g < m.groups; ++g) {
    if (std::find(chosen.begin(), chosen.begin() + m.groups_used, g) !=
        chosen.begin() + m.groups_used)
      continue;
    // Softmax scores are positive, so zero is "never"; biased sigmoid scores need minus infinity.
    const float never =
        m.scores == RouterScores::kSigmoid ? -std::numeric_limits<float>::infinity() : 0.0f;
    std::fill(score + g * size, score + (g + 1) * size, never);
  }
}

void WeighSoftmaxChosen(const float* logits, const uint32_t* index, uint32_t k, float* weight) {
  float sum = 0;
  for (uint32_t j = 0; j < k; ++j) sum += weight[j] = std::exp(logits[index[j]] - logits[index[0]]);
  for (uint32_t j = 0; j < k; ++j) weight[j] /= sum;
}

void Normalise(uint32_t k, float* weight) {
  float sum = 0;
  for (uint32_t j = 0; j < k; ++j) sum += weight[j];
  // The floor is half precision's smallest normal number, as the field's engines clamp it.
  sum = std::max(sum, 6.103515625e-5f);
  for (uint32_t j = 0; j < k; ++j) weight[j] /= sum;
}

void RouteRow(const MoeConfig& m, const Ops& ops, const float* choice_bias, float* logits,
              uint32_t* index, float* weight) {
  if (m.scores == RouterScores::kSoftmaxChosen) {
    TopK(logits, m.experts, m.used, index);
    WeighSoftmaxChosen(logits, index, m.used, weight);
  } else if (m.scores == RouterScores::kSoftmaxAll) {
    ops.softmax(logits, m.experts);
    LimitGroups(m, logits);
    TopK(logits, m.experts, m.used, index);
    for (uint32_t j = 0; j < m.used; ++j) weight[j] = logits[index[j]];
    if (m.normalise) Normalise(m.used, weight);
  } else {
    // The bias steers the choice only; the weight is the plain sigmoid. Chosen scores replace
    // logits in place.
    for (uint32_t i = 0; i < m.experts; ++i) {
      logits[i] = 1 / (1 + std::exp(-logits[i])) + (choice_bias == nullptr ? 0.0f : choice_bias[i]);
    }
    LimitGroups(m, logits);
    TopK(logits, m.experts, m.used, index);
    for (uint32_t j = 0; j < m.used; ++j) {
      weight[j] = logits[index[j]] - (choice_bias == nullptr ? 0.0f : choice_bias[index[j]]);
    }
    if (m.normalise) Normalise(m.used, weight);
  }
  for (uint32_t j = 0; j < m.used; ++j) weight[j] *= m.weights_scale;
}

// Ascending expert id: the order in which outputs are added, and in which a file holds them.
void SortById(uint32_t k, const uint32_t* index, const float* weight, uint16_t* expert,
              float* sorted) {
  for (uint32_t j = 0; j < k; ++j) {
    uint32_t at = j;
    while (at > 0 && expert[at - 1] > index[j]) {
      expert[at] = expert[at - 1];
      sorted[at] = sorted[at - 1];
      --at;
    }
    expert[at] = static_cast<uint16_t>(index[j]);
    sorted[at] = weight[j];
  }
}

void SharedExpert(Forward& f, const LayerWeights& w, const Operand& h, float* out) {
  const uint32_t hidden = f.c.hidden;
  if (f.c.moe.shared_ff == 0) {
    std::fill(out, out + uint64_t{f.t.rows} * hidden, 0.0f);
    return;
  }
  const Matrix& down = w[MatrixRole::kSharedDown];
  f.Project(f.Gated(h, {w[MatrixRole::kSharedGate], w[MatrixRole::kSharedUp], down}, Glu::kSilu),
            {{down, out}});
  const float* scale = w[VectorRole::kSharedExpertGate];
  if (scale == nullptr) return;
  f.exec().For(f.t.rows, 4, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      const float* x = h.f32 + i * h.stride;
      float sum = 0;
      for (uint32_t j = 0; j < hidden; ++j) sum += scale[j] * x[j];
      const float g = 1 / (1 + std::exp(-sum));
      for (uint32_t j = 0; j < hidden; ++j) out[i * hidden + j] *= g;
    }
  });
}

// The layer's normed input, kept for the experts in every format their weights ask for; the router
// and the shared expert read it there too.
Operand KeepInput(Forward& f, const LayerWeights& w) {
  const MoeRows& rows = *f.moe();
  const uint64_t first = f.t.first_row;
  uint32_t formats =
      f.Formats(w, {MatrixRole::kRouter, MatrixRole::kSharedGate, MatrixRole::kSharedUp});
  for (ActFormat format : {ActFormat::kQ8x32, ActFormat::kQ8x256}) {
    if (rows.in_act.part(format).q != nullptr) formats |= FormatBit(format);
  }
  const bool kept = rows.in != nullptr;
  if (kept || w[VectorRole::kSharedExpertGate] != nullptr) formats |= FormatBit(ActFormat::kF32);
  return f.Normed(w[VectorRole::kFfnNorm], formats, kept ? rows.in + first * f.c.hidden : f.a.h,
                  rows.in_act, first);
}

}  // namespace

void Route(Forward& f, const LayerWeights& w) {
  const MoeConfig& m = f.c.moe;
  MoeRows& rows = *f.moe();
  const uint64_t first = f.t.first_row;
  const Operand h = KeepInput(f, w);
  const bool bias_in_logits = m.router_bias && m.scores == RouterScores::kSoftmaxChosen;
  f.Project(h, {{w[MatrixRole::kRouter], f.a.router,
                 bias_in_logits ? w[VectorRole::kRouterBias] : nullptr}});
  const float* choice_bias = bias_in_logits ? nullptr : w[VectorRole::kRouterBias];
  f.exec().For(f.t.rows, 8, [&](uint32_t begin, uint32_t end) {
    std::array<uint32_t, limits::kExpertsUsedMax> index;
    std::array<float, limits::kExpertsUsedMax> weight;
    for (uint64_t i = begin; i < end; ++i) {
      RouteRow(m, f.exec().ops(), choice_bias, f.a.router + i * m.experts, index.data(),
               weight.data());
      SortById(m.used, index.data(), weight.data(), rows.expert + (first + i) * m.used,
               rows.weight + (first + i) * m.used);
    }
  });
  SharedExpert(f, w, h, rows.out + first * f.c.hidden);
}

const float* RouterLogitBias(const MoeConfig& m, const LayerWeights& w) {
  const bool in_logits = m.router_bias && m.scores == RouterScores::kSoftmaxChosen;
  return in_logits ? w[VectorRole::kRouterBias] : nullptr;
}

void ChooseExperts(const MoeConfig& m, const Ops& ops, const LayerWeights& w, float* logits,
                   uint32_t* index, float* weight) {
  const bool in_logits = RouterLogitBias(m, w) != nullptr;
  RouteRow(m, ops, in_logits ? nullptr : w[VectorRole::kRouterBias], logits, index, weight);
}

}  // namespace sluice
