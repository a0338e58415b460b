#include "runtime/int8_work.h"

#include <algorithm>

#include "base/clock.h"
#include "kernels/ops.h"
#include "runtime/memory_plan.h"

namespace sluice {
namespace {

constexpr double kShortestRun = 2e-3;  // of a measurement: waking the threads must not show
constexpr int kRunsMin = 3;

uint64_t Operations(const MatrixSpec& m, uint32_t planes) {
  return ActFormatOf(m.type) == ActFormat::kF32 ? 0 : uint64_t{2} * planes * m.rows * m.cols;
}

}  // namespace

Int8Work Int8WorkOf(const ModelMap& map, uint32_t planes) {
  Int8Work work;
  for (const LayerMap& layer : map.layers) {
    for (const MatrixSpec* m : LayerMatrices(layer)) work.per_token += Operations(*m, planes);
    if (!layer.experts) continue;
    for (const ExpertPart& part : layer.experts->part) {
      if (part.first.extent.bytes == 0) continue;
      work.per_token += map.config.moe.used * Operations(part.first, planes);
    }
  }
  work.per_logits = Operations(map.head, planes);
  return work;
}

double MeasureOperations(uint64_t (*loop)(uint64_t rounds), ThreadPool* pool, double seconds) {
  if (loop == nullptr) return 0;
  uint64_t rounds = 1, operations = 0;
  for (double start = NowSeconds(); (operations = loop(rounds)) > 0; start = NowSeconds()) {
    if (NowSeconds() - start > kShortestRun) break;
    rounds *= 2;
  }
  const int threads = pool->active_threads();
  double best = 0;
  const double begin = NowSeconds();
  for (int i = 0; i < kRunsMin || NowSeconds() - begin < seconds; ++i) {
    const double start = NowSeconds();
    pool->Run(threads, [&](int) { (void)loop(rounds); });
    best = std::max(best, static_cast<double>(operations) * threads / (NowSeconds() - start));
    if (NowSeconds() - begin > 2 * seconds) break;  // a slow set: what there is must do
  }
  return best;
}

}  // namespace sluice
