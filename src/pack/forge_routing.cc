#include "pack/forge_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
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

// All rows of one token in one layer: slots 0, 1, ... used - 1 with different experts.
Status CheckPlace(std::span<const RouteRow> rows, uint32_t used, const std::string& name) {
  const auto bad = [&](const std::string& what) {
    return Misfit(fmt::format("turn {} step {} layer {}: {}", rows[0].turn, rows[0].step,
                              rows[0].layer, what),
                  name, "every token must visit the same number of experts in every layer");
  };
  for (uint32_t slot = 0; slot < used; ++slot) {
    if (slot >= rows.size() || rows[slot].rank != slot) {
      return bad(fmt::format("slot {} is missing or there twice", slot));
    }
    if (rows[slot].weight < 0) return bad(fmt::format("weight {} is negative", rows[slot].weight));
    for (uint32_t other = 0; other < slot; ++other) {
      if (rows[other].expert != rows[slot].expert) continue;
      return bad(fmt::format("expert {} is there twice", rows[slot].expert));
    }
  }
  return rows.size() == used ? Status() : bad(fmt::format("slot {} is there twice", used - 1));
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
  std::vector<RouteRow>& rows = trace.rows;  // a prompt is recorded layer by layer
  std::sort(rows.begin(), rows.end(),
            [](const RouteRow& a, const RouteRow& b) { return Place(a) < Place(b); });
  uint32_t tokens = 1;
  for (size_t i = 1; i < rows.size(); ++i) tokens += SameToken(rows[i - 1], rows[i]) ? 0 : 1;

  ForgeRouting routing(std::min(codes, tokens), shape.layers, used);
  routing.tokens_ = tokens;
  std::vector<uint8_t> planned(uint64_t{routing.codes_} * shape.layers);
  uint32_t token = 0;
  for (size_t begin = 0, end; begin < rows.size(); begin = end) {
    const RouteRow& first = rows[begin];
    const bool next = begin > 0 && !SameToken(rows[begin - 1], first);
    token += next ? 1 : 0;
    for (end = begin;
         end < rows.size() && SameToken(rows[end], first) && rows[end].layer == first.layer;) {
      ++end;
    }
    SLUICE_TRY(CheckPlace({&first, end - begin}, used, name));
    if (token >= routing.codes_) continue;
    if ((begin == 0 || next) && !first.decode) ++routing.prompt_tokens_;
    planned[uint64_t{token} * shape.layers + first.layer] = 1;
    for (size_t i = begin; i < end; ++i) {
      const uint64_t at = routing.At(token, first.layer) + (i - begin);
      routing.expert_[at] = static_cast<uint16_t>(rows[i].expert);
      routing.weight_[at] = rows[i].weight;
    }
  }
  SLUICE_TRY(routing.Borrow(planned, name));
  routing.Normalise();
  return routing;
}

Status ForgeRouting::Borrow(const std::vector<uint8_t>& planned, const std::string& name) {
  for (uint32_t layer = 0; layer < layers_; ++layer) {
    const auto has = [&](uint32_t code) { return planned[uint64_t{code} * layers_ + layer] != 0; };
    uint32_t lender = codes_;
    while (lender > 0 && !has(lender - 1)) --lender;
    if (lender-- == 0) {
      return Misfit(fmt::format("no token of the trace visits layer {}", layer), name);
    }
    for (uint32_t code = codes_; code-- > 0;) {
      if (has(code)) {
        lender = code;
        continue;
      }
      std::copy_n(experts(lender, layer), used_,
                  expert_.begin() + static_cast<ptrdiff_t>(At(code, layer)));
      std::copy_n(weights(lender, layer), used_,
                  weight_.begin() + static_cast<ptrdiff_t>(At(code, layer)));
      ++borrowed_;
    }
  }
  return Status();
}

}  // namespace sluice
