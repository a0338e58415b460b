#include "runtime/expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/clock.h"

namespace sluice {
namespace {

// Up to this many tokens a step asks for experts the way decoding does: every miss is worth a slot.
constexpr uint32_t kDecodeRowsMax = 4;
// Fading of a prompt's tokens when a layer chooses which experts to keep: half-life of about 7
// tokens.
constexpr float kRecencyFade = 0.9f;

}  // namespace

Result<std::unique_ptr<ExpertStore>> ExpertStore::Make(Context context) {
  std::unique_ptr<ExpertStore> s(new ExpertStore(std::move(context)));
  const MemoryPlan& plan = *s->c_.plan;
  const ExpertPlan& e = plan.experts;
  Ledger* ledger = s->c_.ledger;
  s->config_ = &s->c_.map->config;
  s->slot_bytes_ = e.slot_bytes;
  SLUICE_ASSIGN(s->slots_,
                Arena::Make(ledger, "expert slots", e.slots * e.slot_bytes, Touch::kLater));
  SLUICE_ASSIGN(s->ring_, Arena::Make(ledger, "expert ring", e.ring * e.slot_bytes, Touch::kNow));
  SLUICE_ASSIGN(s->staging_, Arena::Make(ledger, "expert ring", e.staging_bytes, Touch::kNow));
  SLUICE_ASSIGN(s->scratch_arena_,
                Arena::Make(ledger, "activations", e.scratch_bytes, Touch::kNow));
  SLUICE_ASSIGN(s->keep_arena_, Arena::Make(ledger, "activations", e.keep_bytes, Touch::kNow));
  const CacheShape shape{s->config_->layers, s->config_->moe.experts, e.slots};
  const std::string policy = s->c_.policy.empty() ? kDefaultCachePolicy : s->c_.policy;
  std::unique_ptr<CachePolicy> made = MakeCachePolicy(policy, shape);
  if (made == nullptr) {
    return Status(Code::kUsage, fmt::format("unknown cache policy '{}'", policy), "--policy",
                  fmt::format("use one of {}", fmt::join(CachePolicyNames(), ", ")));
  }
  s->cache_ = std::make_unique<ExpertCache>(shape, std::move(made));
  s->reader_ =
      std::make_unique<ExpertReader>(s->c_.map, s->c_.plan, s->c_.alignment, s->staging_.data());
  s->rows_ = std::make_unique<ExpertRows>(shape.experts, s->config_->moe.used, plan.chunk);
  s->pending_.resize(shape.experts);
  s->recency_.resize(shape.experts);
  s->order_.resize(shape.experts);
  s->flight_of_slot_.assign(e.slots, nullptr);
  for (int i = static_cast<int>(e.ring); i-- > 0;) s->free_ring_.push_back(i);
  for (uint32_t i = 0; i < shape.layers; ++i) {
    if (s->config_->IsMoeLayer(i)) s->moe_layers_.push_back(i);
  }
  s->guess_.resize(shape.layers);
  s->issued_.resize(shape.layers);
  s->ahead_slots_.reserve(ExpertReader::kFlightsMax);
  for (auto& guess : s->guess_) guess.reserve(s->config_->moe.used);
  for (auto& issued : s->issued_) issued.reserve(s->config_->moe.used);
  SLUICE_ASSIGN(RouterGuess router, RouterGuess::Make(s->c_.map, &plan, ledger, s->c_.stream));
  s->router_ = std::make_unique<RouterGuess>(std::move(router));
  s->protect_.reserve(2ull * s->config_->moe.used);
  s->replay_.resize(uint64_t{shape.layers} * kReplayTokens * s->config_->moe.used);
  return s;
}

MutableByteSpan ExpertStore::BorrowMemory() {
  if (c_.plan->experts.ring == 0) return {};
  for (int slot : ahead_slots_) (void)reader_->Wait(flight_of_slot_[static_cast<size_t>(slot)]);
  if (queue_ != nullptr) SettleAhead();
  cache_->Clear();
  return slots_.size() > ring_.size() ? slots_.span() : ring_.span();
}

Status ExpertStore::Attach(ReadQueue* queue, Exec* exec) {
  queue_ = queue;
  exec_ = exec;
  reader_->Attach(queue);
  const ExpertPlan& e = c_.plan->experts;
  scratch_ = ExpertScratch::Place(&scratch_arena_, *config_, e.scratch_rows, c_.plan->act_formats,
                                  exec->float_act());
  keep_ = keep_arena_.TakeArray<float>(uint64_t{e.scratch_rows} * config_->hidden);
  if (keep_ == nullptr || scratch_.up == nullptr)
    return Status(Code::kFailed, "expert scratch does not fit its plan");
  router_->Attach(exec, scratch_.act);
  SplitBiases();
  return {};
}

void ExpertStore::SplitBiases() {
  split_gate_.resize(config_->layers);
  split_up_.resize(config_->layers);
  const uint32_t ff = config_->moe.expert_ff;
  for (uint32_t layer : moe_layers_) {
    const float* fused = c_.stream->layer(layer)[VectorRole::kExpertGateUpBias];
    if (fused == nullptr) continue;
    const bool plain = c_.map->layers[layer].experts->layout == ExpertLayout::kPlain;
    for (uint64_t e = 0; e < config_->moe.experts; ++e) {
      for (uint32_t i = 0; i < ff; ++i) {
        split_gate_[layer].push_back(fused[e * 2 * ff + (plain ? i : 2 * i)]);
        split_up_[layer].push_back(fused[e * 2 * ff + (plain ? ff + i : 2 * i + 1)]);
      }
    }
  }
}

void ExpertStore::BeginStep(uint32_t rows) {
  decode_ = rows <= kDecodeRowsMax;
  if (decode_) cache_->BeginToken();
  replay_rows_ = 0;
}

// A chunk passes layer by layer, so the policy saw its tokens in no order at all: show it the last
// ones again, token by token, as decoding would have.
void ExpertStore::EndStep() {
  if (decode_ || replay_rows_ == 0) return;
  const uint32_t used = config_->moe.used;
  for (uint32_t t = 0; t < replay_rows_; ++t) {
    cache_->BeginToken();
    for (uint32_t layer : moe_layers_) {
      const uint16_t* chosen = replay_.data() + (uint64_t{layer} * kReplayTokens + t) * used;
      for (uint32_t j = 0; j < used; ++j) (void)cache_->Lookup(cache_->Key(layer, chosen[j]));
    }
  }
  replay_rows_ = 0;
}

void ExpertStore::Remember(uint32_t layer, uint32_t rows, const MoeRows& moe) {
  if (decode_) return;
  const uint32_t used = config_->moe.used, n = std::min(rows, kReplayTokens);
  std::copy_n(moe.expert + uint64_t{rows - n} * used, uint64_t{n} * used,
              replay_.data() + uint64_t{layer} * kReplayTokens * used);
  replay_rows_ = n;
}

Status ExpertStore::Run(uint32_t layer, uint32_t rows, const float* x, const MoeRows& moe) {
  rows_->Group(rows, moe);
  if (c_.trace != nullptr) c_.trace->Record(layer, rows, moe);
  Remember(layer, rows, moe);
  SettleAhead();
  ScoreGuess(layer);
  Resolve(layer, rows);
  DropStaleFlights(layer);
  IssueMisses(layer);
  if (rows == 1) LookAhead(layer, x);
  const Status status = Compute(layer, rows, moe);
  if (!status.ok()) Abort();
  return status;
}

// Finds each needed expert: ready, on its way (named by the look-ahead), or missing.
void ExpertStore::Resolve(uint32_t layer, uint32_t rows) {
  const auto& needs = rows_->needs();
  for (size_t i = 0; i < needs.size(); ++i) {
    Pending& p = pending_[i];
    p = {};
    const uint32_t key = cache_->Key(layer, needs[i].expert);
    p.slot = decode_ ? cache_->Lookup(key) : cache_->Find(key);
    if (decode_) ++counters_.lookups;
    if (p.slot < 0) continue;
    cache_->Pin(p.slot);
    p.flight = flight_of_slot_[static_cast<size_t>(p.slot)];
    p.stage = p.flight == nullptr ? Stage::kReady : Stage::kReading;
    if (p.flight != nullptr) reader_->Promote(p.flight);
    if (decode_ && p.stage == Stage::kReady) ++counters_.hits;
  }
  ChooseAdmitted(rows);
  next_to_issue_ = 0;
}

void ExpertStore::ChooseAdmitted(uint32_t rows) {
  const auto& needs = rows_->needs();
  if (decode_) {
    for (size_t i = 0; i < needs.size(); ++i) pending_[i].admit = true;
    return;
  }
  const size_t quota = c_.plan->experts.slots / std::max<size_t>(1, moe_layers_.size());
  for (size_t i = 0; i < needs.size(); ++i) {
    float score = 0;
    const uint32_t* row = rows_->rows_of(needs[i]);
    for (uint32_t r = 0; r < needs[i].n; ++r)
      score += std::pow(kRecencyFade, static_cast<float>(rows - 1 - row[r]));
    recency_[i] = score;
    order_[i] = static_cast<uint32_t>(i);
  }
  const size_t n = std::min(quota, needs.size());
  std::partial_sort(order_.begin(), order_.begin() + static_cast<long>(n),
                    order_.begin() + static_cast<long>(needs.size()), [&](uint32_t a, uint32_t b) {
                      return recency_[a] != recency_[b] ? recency_[a] > recency_[b] : a < b;
                    });
  for (size_t i = 0; i < n; ++i) pending_[order_[i]].admit = true;
}

// In ascending order, so that what is computed first in order also has room first.
void ExpertStore::IssueMisses(uint32_t layer) {
  const size_t n = rows_->needs().size();
  while (next_to_issue_ < n) {
    if (pending_[next_to_issue_].stage == Stage::kDeferred && !IssueOne(layer, next_to_issue_))
      return;
    ++next_to_issue_;
  }
}

bool ExpertStore::IssueOne(uint32_t layer, size_t need) {
  Pending& p = pending_[need];
  const uint32_t expert = rows_->needs()[need].expert;
  if (reader_->active() >= ExpertReader::kFlightsMax) return false;
  int slot =
      p.admit || c_.plan->experts.ring == 0 ? cache_->Reserve(cache_->Key(layer, expert)) : -1;
  if (slot < 0 && free_ring_.empty()) return false;
  uint8_t* data = slot >= 0 ? SlotData(slot) : RingData(free_ring_.back());
  Flight* flight = reader_->Start(layer, expert, data, ReadPriority::kDemand);
  if (flight == nullptr) {
    if (slot >= 0) cache_->Abandon(slot);
    return false;
  }
  if (slot >= 0) {
    p.slot = slot;
    flight_of_slot_[static_cast<size_t>(slot)] = flight;
  } else {
    p.ring = free_ring_.back();
    free_ring_.pop_back();
  }
  p.flight = flight;
  p.stage = Stage::kReading;
  return true;
}

// A needed expert whose reads are complete becomes ready, or its error is returned.
Status ExpertStore::Settle(size_t need) {
  Pending& p = pending_[need];
  const bool ahead = p.slot >= 0 && !cache_->ready(p.slot) && cache_->pins(p.slot) > 1;
  Show(*p.flight);
  const Status status = reader_->Finish(p.flight);
  p.flight = nullptr;
  if (p.slot >= 0) {
    flight_of_slot_[static_cast<size_t>(p.slot)] = nullptr;
    if (!status.ok()) {
      if (ahead) cache_->Unpin(p.slot);  // Abandon wants exactly the pin of the fill
      cache_->Abandon(p.slot);
      p.slot = -1;
      p.stage = ahead ? Stage::kDeferred : Stage::kComputed;
      // A read-ahead that failed is no failure of the request: it is read again, on demand.
      if (ahead) next_to_issue_ = std::min(next_to_issue_, need);
      return ahead ? Status() : status;
    }
    cache_->MarkReady(p.slot);
    if (ahead) cache_->Unpin(p.slot);  // the pin of the read-ahead; ours stays
  }
  p.stage = Stage::kReady;
  return status;
}

// Settles whatever has arrived.
Status ExpertStore::Collect() {
  queue_->Poll();
  Status first;
  for (size_t i = 0; i < rows_->needs().size(); ++i) {
    if (pending_[i].stage != Stage::kReading || !reader_->Complete(*pending_[i].flight)) continue;
    const Status status = Settle(i);
    if (!status.ok() && first.ok()) first = status;
  }
  return first;
}

// Waits for the oldest read of this layer, or for a read-ahead of another one that holds the last
// slot or the staging buffer.
Status ExpertStore::WaitForOne() {
  for (size_t i = 0; i < rows_->needs().size(); ++i) {
    if (pending_[i].stage != Stage::kReading) continue;
    WaitFor(pending_[i].flight);
    return Settle(i);
  }
  if (ahead_slots_.empty())
    return Status(Code::kFailed, "no expert read under way and none can be started");
  WaitFor(flight_of_slot_[static_cast<size_t>(ahead_slots_.front())]);
  SettleAhead();
  return {};
}

// Settle reports a failed read with the expert's name, so the status of the wait is not needed.
void ExpertStore::WaitFor(Flight* flight) {
  const uint64_t start = NowNanos();
  (void)reader_->Wait(flight);
  const uint64_t end = NowNanos();
  counters_.stall_ns += end - start;
  if (c_.timeline != nullptr) {
    c_.timeline->Add(Timeline::Track::kStall, static_cast<int>(flight->layer),
                     static_cast<int>(flight->expert), start, end);
  }
}

void ExpertStore::Show(const Flight& flight) const {
  if (c_.timeline == nullptr) return;
  for (uint32_t i = 0; i < flight.reads; ++i) {
    c_.timeline->Add(flight.ahead ? Timeline::Track::kAheadRead : Timeline::Track::kDemandRead,
                     static_cast<int>(flight.layer), static_cast<int>(flight.expert),
                     flight.read[i].submit_ns, flight.read[i].done_ns);
  }
}

void ExpertStore::Release(size_t need) {
  Pending& p = pending_[need];
  if (p.slot >= 0) cache_->Unpin(p.slot);
  if (p.ring >= 0) free_ring_.push_back(p.ring);
  p.stage = Stage::kComputed;
}

Status ExpertStore::Compute(uint32_t layer, uint32_t rows, const MoeRows& moe) {
  const bool keep = rows <= c_.plan->experts.keep_rows;
  return keep ? ComputeAsArriving(layer, rows, moe) : ComputeInOrder(layer, moe);
}

ExpertWeights ExpertStore::WeightsOf(uint32_t layer, size_t need) const {
  const uint32_t expert = rows_->needs()[need].expert;
  ExpertWeights w = reader_->View(layer, expert, DataOf(pending_[need]));
  const LayerWeights& l = c_.stream->layer(layer);
  const uint64_t ff = config_->moe.expert_ff;
  const auto bias = [&](VectorRole role, uint64_t n) {
    return l[role] == nullptr ? nullptr : l[role] + expert * n;
  };
  w.gate_bias = split_gate_[layer].empty() ? bias(VectorRole::kExpertGateBias, ff)
                                           : &split_gate_[layer][expert * ff];
  w.up_bias = split_up_[layer].empty() ? bias(VectorRole::kExpertUpBias, ff)
                                       : &split_up_[layer][expert * ff];
  w.down_bias = bias(VectorRole::kExpertDownBias, config_->hidden);
  return w;
}

ExpertTask ExpertStore::Task(uint32_t layer, size_t need, uint32_t skip, uint32_t n,
                             float* out) const {
  ExpertTask task;
  task.w = WeightsOf(layer, need);
  task.rows = rows_->rows_of(rows_->needs()[need]) + skip;
  task.n = n;
  task.out = out;
  return task;
}

Status ExpertStore::ComputeAsArriving(uint32_t layer, uint32_t rows, const MoeRows& moe) {
  const auto& needs = rows_->needs();
  std::array<ExpertTask, kExpertWaveMax> tasks;
  std::array<size_t, kExpertWaveMax> index;
  size_t computed = 0;
  while (computed < needs.size()) {
    SLUICE_TRY(Collect());
    size_t n = 0;
    for (size_t i = 0; i < needs.size() && n < kExpertWaveMax; ++i) {
      if (pending_[i].stage != Stage::kReady) continue;
      tasks[n] = Task(layer, i, 0, needs[i].n, keep_ + uint64_t{needs[i].first} * config_->hidden);
      index[n++] = i;
    }
    if (n == 0) {
      IssueMisses(layer);
      SLUICE_TRY(WaitForOne());
      continue;
    }
    RunExperts(*exec_, *config_, moe, scratch_, {tasks.data(), n});
    for (size_t i = 0; i < n; ++i) Release(index[i]);
    computed += n;
    IssueMisses(layer);
  }
  SumKept(rows, moe);
  return {};
}

void ExpertStore::SumKept(uint32_t rows, const MoeRows& moe) {
  const uint32_t used = config_->moe.used, hidden = config_->hidden;
  for (uint32_t t = 0; t < rows; ++t) {
    for (uint32_t j = 0; j < used; ++j) {
      exec_->ops().add(keep_ + uint64_t{rows_->packed(t, j)} * hidden, moe.weight[t * used + j],
                       hidden, moe.out + uint64_t{t} * hidden);
    }
  }
}

Status ExpertStore::ComputeInOrder(uint32_t layer, const MoeRows& moe) {
  size_t next = 0;
  while (next < rows_->needs().size()) {
    SLUICE_TRY(Collect());
    while (pending_[next].stage != Stage::kReady) {
      IssueMisses(layer);
      if (pending_[next].stage == Stage::kDeferred) {
        SLUICE_TRY(WaitForOne());
        continue;
      }
      WaitFor(pending_[next].flight);
      SLUICE_TRY(Settle(next));
    }
    SLUICE_TRY(WaveInOrder(layer, &next, moe));
    IssueMisses(layer);
  }
  return {};
}

// The run of ready experts from *next that fits the scratch, computed together, added one after the
// other.
Status ExpertStore::WaveInOrder(uint32_t layer, size_t* next, const MoeRows& moe) {
  const auto& needs = rows_->needs();
  const uint32_t capacity = scratch_.rows;
  if (needs[*next].n > capacity) {
    ComputeLarge(layer, *next, moe);
    Release((*next)++);
    return {};
  }
  std::array<ExpertTask, kExpertWaveMax> tasks;
  const size_t first = *next;
  size_t n = 0;
  uint32_t rows = 0;
  while (first + n < needs.size() && n < kExpertWaveMax &&
         pending_[first + n].stage == Stage::kReady && rows + needs[first + n].n <= capacity) {
    tasks[n] =
        Task(layer, first + n, 0, needs[first + n].n, keep_ + uint64_t{rows} * config_->hidden);
    rows += needs[first + n++].n;
  }
  RunExperts(*exec_, *config_, moe, scratch_, {tasks.data(), n});
  for (size_t i = 0; i < n; ++i) {
    AddRows(needs[first + i], 0, needs[first + i].n, tasks[i].out, moe);
    Release(first + i);
  }
  *next += n;
  return {};
}

// An expert that more rows chose than the scratch holds: its rows in pieces.
void ExpertStore::ComputeLarge(uint32_t layer, size_t need, const MoeRows& moe) {
  const ExpertRows::Need& all = rows_->needs()[need];
  for (uint32_t skip = 0; skip < all.n; skip += scratch_.rows) {
    const uint32_t n = std::min(scratch_.rows, all.n - skip);
    const ExpertTask task = Task(layer, need, skip, n, keep_);
    RunExperts(*exec_, *config_, moe, scratch_, {&task, 1});
    AddRows(all, skip, n, keep_, moe);
  }
}

void ExpertStore::AddRows(const ExpertRows::Need& need, uint32_t skip, uint32_t n, const float* out,
                          const MoeRows& moe) {
  const uint32_t* row = rows_->rows_of(need) + skip;
  const float* weight = rows_->weights_of(need) + skip;
  const uint32_t hidden = config_->hidden;
  exec_->For(n, 8, [&](uint32_t begin, uint32_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      exec_->ops().add(out + i * hidden, weight[i], hidden, moe.out + uint64_t{row[i]} * hidden);
    }
  });
}

// After an error: nothing of this layer stays in flight or pinned.
void ExpertStore::Abort() {
  for (size_t i = 0; i < rows_->needs().size(); ++i) {
    Pending& p = pending_[i];
    if (p.stage == Stage::kReading) {
      (void)reader_->Wait(p.flight);
      (void)Settle(i);  // only the first error is reported
    }
    if (p.stage == Stage::kReady) Release(i);
    p.stage = Stage::kComputed;
  }
}

}  // namespace sluice
