#include "pack/forge_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/limits.h"
#include "pack/forge_random.h"

namespace sluice {
namespace {

// Below this a weight says nothing, and its logit must stay clear of the experts not chosen.
constexpr float kWeightMin = 1e-6f;

Status Misfit(std::string what, const std::string& name, std::string hint = {}) {
  return Status(Code::kUsage, std::move(what), name, std::move(hint));
}

}  // namespace

ForgeRouting::ForgeRouting(uint32_t codes, uint32_t layers, uint32_t used)
    : codes_(codes), layers_(layers), used_(used) {
  expert_.resize(uint64_t{codes} * layers * used);
  weight_.resize(expert_.size());
}

void ForgeRouting::Normalise() {
  for (uint64_t place = 0; place < weight_.size(); place += used_) {
    float sum = 0;
    for (uint32_t i = 0; i < used_; ++i) {
      sum += weight_[place + i] = std::max(weight_[place + i], kWeightMin);
    }
    for (uint32_t i = 0; i < used_; ++i) weight_[place + i] /= sum;
  }
}

ForgeRouting ForgeRouting::Uniform(const ForgeShape& shape, uint32_t codes, uint64_t seed) {
  ForgeRouting routing(codes, shape.layers, shape.used);
  ForgeRandom random(seed, "routing");
  std::vector<uint16_t> all(shape.experts);
  std::iota(all.begin(), all.end(), uint16_t{0});
  for (uint64_t place = 0; place < routing.expert_.size(); place += shape.used) {
    for (uint32_t i = 0; i < shape.used; ++i) {
      std::swap(all[i], all[i + random.Below(shape.experts - i)]);
      routing.expert_[place + i] = all[i];
      routing.weight_[place + i] = random.Real(0.5f, 1.5f);
    }
  }
  routing.Normalise();
  return routing;
}

namespace {

Status CheckFit(const ForgeShape& shape, const RouteTrace& trace, const std::string& name) {
  if (trace.layers != shape.layers) {
    return Misfit(fmt::format("the trace has {} layers, the shape {}", trace.layers, shape.layers),
                  name, "record a trace of this model, or give --layers");
  }
  uint32_t experts = 0;  // without notes, trace.experts is only what the rows span
  for (const RouteRow& row : trace.rows) experts = std::max(experts, row.expert + 1);
  const bool said = trace.experts > experts;
  if (experts > shape.experts || (said && trace.experts != shape.experts)) {
    return Misfit(
        fmt::format("the trace has {} experts, the shape {}", trace.experts, shape.experts), name,
        "record a trace of this model, or give --experts");
  }
  return Status();
}

auto Place(const RouteRow& row) {
  return std::tuple(row.turn, row.decode, row.step, row.layer, row.rank);
}

bool SameToken(const RouteRow& a, const RouteRow& b) {
  return a.turn == b.turn && a.decode == b.decode && a.step == b.step;
}

}  // namespace

uint32_t TraceUsed(const RouteTrace& trace) {
  uint32_t rank = 0;
  for (const RouteRow& row : trace.rows) rank = std::max(rank, row.rank);
  return std::min(rank, limits::kExpertsUsedMax) + 1;
}

Result<ForgeRouting> ForgeRouting::FromTrace(const ForgeShape& shape, uint32_t codes,
                                             RouteTrace trace, const std::string& name) {
  SLUICE_TRY(CheckFit(shape, trace, name));
  const uint32_t used = TraceUsed(trace);
  if (used > shape.experts || used > limits::kExpertsUsedMax) {
    return Misfit(fmt::format("the trace uses {} of {} experts", used, shape.experts), name);
  }
  // A prompt is recorded layer by layer.
  std::sort(trace.rows.begin(), trace.rows.end(),
            [](const RouteRow& a, const RouteRow& b) { return Place(a) < Place(b); });
  const uint64_t per_token = uint64_t{shape.layers} * used;
  const uint64_t tokens = (trace.rows.size() + per_token - 1) / per_token;
  ForgeRouting routing(static_cast<uint32_t>(std::min<uint64_t>(codes, tokens)), shape.layers,
                       used);
  for (uint64_t i = 0; i < tokens * per_token; ++i) {
    const uint64_t layer = i % per_token / used, rank = i % used;
    const RouteRow* row = i < trace.rows.size() ? &trace.rows[i] : nullptr;
    const RouteRow* first = &trace.rows[i - i % per_token];
    if (row == nullptr || !SameToken(*row, *first) || row->layer != layer || row->rank != rank) {
      return Misfit(fmt::format("turn {} step {} layer {}: slot {} is missing or there twice",
                                first->turn, first->step, layer, rank),
                    name, "every token must visit the same number of experts in every layer");
    }
    if (row->weight < 0) {
      return Misfit(fmt::format("turn {} step {} layer {}: weight {} is negative", row->turn,
                                row->step, layer, row->weight),
                    name);
    }
    for (const RouteRow* other = row - rank; other != row; ++other) {
      if (other->expert != row->expert) continue;
      return Misfit(fmt::format("turn {} step {} layer {}: expert {} is there twice", row->turn,
                                row->step, layer, row->expert),
                    name);
    }
    if (i >= routing.expert_.size()) continue;
    routing.expert_[i] = static_cast<uint16_t>(row->expert);
    routing.weight_[i] = row->weight;
    if (i % per_token == 0 && !row->decode) ++routing.prompt_tokens_;
  }
  routing.Normalise();
  return routing;
}

}  // namespace sluice
