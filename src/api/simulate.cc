#include <fmt/format.h>

#include <algorithm>

#include "formats/route_trace.h"
#include "io/file.h"
#include "memory/policy_replay.h"
#include "sluice/trace.h"

namespace sluice {
namespace {

constexpr uint64_t kTraceBytesMax = 256 * kMiB;

Result<RouteTrace> ReadTrace(const std::string& path) {
  SLUICE_ASSIGN(const std::unique_ptr<File> file, File::Open(path));
  if (file->size() > kTraceBytesMax) {
    return Status(Code::kUsage,
                  fmt::format("a routing trace of {} is not plausible", FormatBytes(file->size())),
                  path);
  }
  std::vector<uint8_t> bytes(file->size());
  SLUICE_TRY(file->ReadExact(0, bytes));
  return ParseRouteTrace(bytes, path);
}

struct Accesses {
  std::vector<RouteAccess> list;
  uint32_t steps = 0;
};

// Steps of all turns and phases, numbered through in the order of decoding.
Accesses Flatten(const RouteTrace& trace) {
  std::vector<RouteRow> rows = trace.rows;
  const auto token = [](const RouteRow& r) { return std::tuple(r.turn, r.decode, r.step); };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const RouteRow& a, const RouteRow& b) { return token(a) < token(b); });
  Accesses out;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || token(rows[i]) != token(rows[i - 1])) ++out.steps;
    out.list.push_back({out.steps - 1, rows[i].layer, rows[i].expert});
  }
  SortAccesses(&out.list);
  return out;
}

Result<ReplayResult> Replay(const std::vector<RouteAccess>& list, const CacheShape& shape,
                            const std::string& policy) {
  if (policy == "belady") return ReplayBelady(list, shape);
  return ReplayPolicy(list, shape, policy);
}

double MeanExpertBytes(const RouteTrace& trace) {
  double sum = 0;
  for (uint64_t bytes : trace.expert_bytes) sum += static_cast<double>(bytes);
  return trace.expert_bytes.empty() ? 0 : sum / static_cast<double>(trace.expert_bytes.size());
}

}  // namespace

Result<Simulation> SimulateTrace(const std::string& csv_path, std::vector<uint32_t> slots,
                                 std::vector<std::string> policies) {
  SLUICE_ASSIGN(const RouteTrace trace, ReadTrace(csv_path));
  if (trace.rows.empty()) return Status(Code::kUsage, "the routing trace has no rows", csv_path);
  if (slots.empty()) slots = {150, 300, 600, 900, 1200, 1500};
  if (policies.empty()) {
    policies.assign(CachePolicyNames().begin(), CachePolicyNames().end());
    policies.emplace_back("belady");
  }
  const Accesses all = Flatten(trace);
  Simulation s;
  s.model = trace.model;
  s.layers = trace.layers;
  s.experts = trace.experts;
  s.experts_used = trace.experts_used;
  s.steps = all.steps;
  s.accesses = all.list.size();
  // What the answer's tokens hit: the whole replay less the prompt's.
  const auto answer = std::count_if(trace.rows.begin(), trace.rows.end(),
                                    [](const RouteRow& r) { return r.decode; });
  const std::vector<RouteAccess> prompt(all.list.begin(), all.list.end() - answer);
  for (uint32_t n : slots) {
    const CacheShape shape{trace.layers, trace.experts, n};
    for (const std::string& policy : policies) {
      SLUICE_ASSIGN(const ReplayResult result, Replay(all.list, shape, policy));
      SLUICE_ASSIGN(const ReplayResult before, Replay(prompt, shape, policy));
      SimulationRow row;
      row.policy = policy;
      row.slots = n;
      row.slots_per_layer = static_cast<double>(n) / std::max(1u, trace.layers);
      row.hit_rate = result.hit_rate();
      if (answer > 0) {
        row.decode_hit_rate =
            static_cast<double>(result.hits - before.hits) / static_cast<double>(answer);
      }
      row.bytes_per_token =
          (1 - row.hit_rate) * MeanExpertBytes(trace) * static_cast<double>(s.accesses) / s.steps;
      s.rows.push_back(std::move(row));
    }
  }
  return s;
}

}  // namespace sluice
