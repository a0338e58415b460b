#include "runtime/step_loop.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/clock.h"
#include "base/log.h"

namespace sluice {
namespace {

bool AllFinite(const float* x, uint64_t n) {
  uint32_t bad = 0;
  for (uint64_t i = 0; i < n; ++i) {
    bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(x[i]) & 0x7f800000u) == 0x7f800000u);
  }
  return bad == 0;
}

void ScaleLogits(const ModelConfig& c, float* logits) {
  if (c.logit_scale != 1) {
    for (uint32_t i = 0; i < c.vocab; ++i) logits[i] /= c.logit_scale;
  }
  if (c.final_softcap > 0) {
    for (uint32_t i = 0; i < c.vocab; ++i)
      logits[i] = std::tanh(logits[i] / c.final_softcap) * c.final_softcap;
  }
}

}  // namespace

struct StepLoop::Hash {
  XXH3_state_t* state = XXH3_createState();
  Hash() { XXH3_64bits_reset(state); }
  ~Hash() { XXH3_freeState(state); }
};

StepLoop::StepLoop(const Context& context)
    : c_(context),
      exec_(context.ops, context.pool, context.float_act,
            (context.plan->act_formats & ActBuffer::kTwoPlanes) != 0),
      forward_(context.map->config, context.plan->kv, context.plan->state, &exec_, &buffers_,
               &moe_),
      snapshots_(&context.plan->state),
      hash_(std::make_unique<Hash>()) {}

StepLoop::~StepLoop() = default;

uint64_t StepLoop::logits_hash() const { return XXH3_64bits_digest(hash_->state); }
void StepLoop::ResetHash() { XXH3_64bits_reset(hash_->state); }

Result<std::unique_ptr<StepLoop>> StepLoop::Make(Context context) {
  std::unique_ptr<StepLoop> loop(new StepLoop(context));
  loop->page_ = FindPage(context.map->config.arch);
  if (loop->page_ == nullptr) {
    return Status(Code::kBadModel,
                  fmt::format("unsupported architecture '{}'", context.map->config.arch_name));
  }
  SLUICE_TRY(loop->Place());
  const ModelConfig& config = context.map->config;
  loop->rope_ = RopeTable(config.rope, context.stream->rope_factors());
  loop->two_ropes_ = config.rope_sliding.dims > 0;
  if (loop->two_ropes_) loop->rope_sliding_ = RopeTable(config.rope_sliding, {});
  loop->exec_.SetIdleHook([](void* queue) { static_cast<ReadQueue*>(queue)->Poll(); },
                          context.queue);
  return loop;
}

Status StepLoop::Place() {
  const MemoryPlan& plan = *c_.plan;
  const ModelConfig& c = c_.map->config;
  const uint64_t expert_bytes = plan.experts.scratch_bytes + plan.experts.keep_bytes;
  SLUICE_ASSIGN(arena_, Arena::Make(c_.ledger, "activations", plan.activation_bytes - expert_bytes,
                                    Touch::kNow));
  SLUICE_ASSIGN(embed_arena_,
                Arena::Make(c_.ledger, "activations", plan.embed_buffers * plan.embed_buffer_bytes,
                            Touch::kNow));
  buffers_ = Activations::Place(&arena_, plan.widths, plan.tile, plan.act_formats);
  const uint64_t chunk = plan.chunk;
  x_ = arena_.TakeArray<float>(chunk * c.hidden);
  cos_ = arena_.TakeArray<float>(chunk * c.rope.dims / 2);
  sin_ = arena_.TakeArray<float>(chunk * c.rope.dims / 2);
  if (c.rope_sliding.dims > 0) {
    cos_sliding_ = arena_.TakeArray<float>(chunk * c.rope_sliding.dims / 2);
    sin_sliding_ = arena_.TakeArray<float>(chunk * c.rope_sliding.dims / 2);
  }
  pos_ = arena_.TakeArray<uint32_t>(chunk);
  seq_ = arena_.TakeArray<const SequenceView*>(chunk);
  final_ = arena_.TakeArray<float>(uint64_t{plan.logits_rows} * c.hidden);
  logits_ = arena_.TakeArray<float>(uint64_t{plan.logits_rows} * c.vocab);
  final_act_ = ActBuffer::Place(&arena_, plan.logits_rows, c.hidden, plan.act_formats);
  if (c.moe.experts > 0) {
    if ((plan.act_formats & 1u) != 0) moe_.in = arena_.TakeArray<float>(chunk * c.hidden);
    moe_.in_act = ActBuffer::Place(&arena_, plan.chunk, c.hidden, plan.act_formats);
    moe_.out = arena_.TakeArray<float>(chunk * c.hidden);
    moe_.expert = arena_.TakeArray<uint16_t>(chunk * c.moe.used);
    moe_.weight = arena_.TakeArray<float>(chunk * c.moe.used);
    if (moe_.weight == nullptr) return Status(Code::kFailed, "activations do not fit their plan");
  }
  if (logits_ == nullptr || (final_act_.rows > 0 && seq_ == nullptr)) {
    return Status(Code::kFailed, "activations do not fit their plan");
  }
  embed_reads_.resize(plan.embed_buffers);
  return {};
}

Status StepLoop::Run(const Request& r) {
  Sequence& s = *r.sequence;
  const ModelConfig& c = c_.map->config;
  for (TokenId id : r.ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= c.vocab) {
      return Status(Code::kUsage,
                    fmt::format("token id {} is outside the vocabulary of {}", id, c.vocab));
    }
  }
  const uint32_t before = s.length();
  if (before + r.ids.size() > s.context()) {
    return Status(Code::kContextFull,
                  fmt::format("context full: {} tokens held, {} more do not fit {}", before,
                              r.ids.size(), s.context()),
                  "", "raise --ctx or shorten the text");
  }
  if (!s.has_state()) return Status(Code::kBudget, "no recurrent state left for another session");
  SLUICE_TRY(s.Reserve(before + static_cast<uint32_t>(r.ids.size())));
  // What was lost by a cut is computed again.
  uint32_t done = s.Resume();
  recomputed_ = before - done;
  s.tokens().insert(s.tokens().end(), r.ids.begin(), r.ids.end());
  const uint32_t total = s.length();
  Status status;
  shown_ = {total - before > 1 ? r.progress : nullptr, done, total - done, NowSeconds()};
  kept_s_ = shown_.start_s;
  while (status.ok() && done < total) {
    const uint32_t n = std::min(c_.plan->chunk, total - done);
    // Recomputed tokens do not share a chunk with new ones, so that row indices stay simple.
    const uint32_t rows = done < before ? std::min(n, before - done) : n;
    status = s.Extend(done, done + rows);
    if (status.ok()) {
      status = RunChunk(r, std::span<const TokenId>(s.tokens()).subspan(done, rows), done,
                        done + rows == total);
    }
    if (!status.ok()) break;
    done += rows;
    if (done < total) KeepSoFar(&s, done, c_.keep_every_s);
  }
  if (status.ok()) {
    s.Share();
    return {};
  }
  snapshots_.Abort();
  s.ForgetDamaged();
  // Whoever stops a long prompt may ask the same again.
  if (r.cancel != nullptr && *r.cancel) KeepSoFar(&s, done, 0);
  s.Undo(before, done);
  return status;
}

// A prompt may take many minutes: what is complete of it outlives the step's end, whatever that is.
void StepLoop::KeepSoFar(Sequence* s, uint32_t done, double every_s) {
  s->Share(done);
  if (NowSeconds() - kept_s_ < every_s) return;
  const Status status = s->Keep(done);
  if (!status.ok())
    LogOnce(LogLevel::kNotice, "prompt pages",
            "a prompt on its way is not kept: " + status.ToString());
  kept_s_ = NowSeconds();  // a slow disk must not get all of the time
}

Status StepLoop::RunChunk(const Request& r, std::span<const TokenId> ids, uint32_t first_pos,
                          bool last) {
  const uint32_t rows = static_cast<uint32_t>(ids.size());
  const uint32_t before = r.sequence->length() - static_cast<uint32_t>(r.ids.size());
  const bool every = r.every_row != nullptr && *r.every_row && first_pos >= before;
  c_.stream->BeginPass(last || every);
  if (c_.experts != nullptr) c_.experts->BeginStep(rows);
  SLUICE_TRY(Embed(ids));
  PrepareRows(r.sequence, first_pos, rows);
  const uint32_t prompt_end = r.ids.size() > 1 ? r.sequence->length() : 0;
  snapshots_.Begin(r.sequence, first_pos, rows, prompt_end);
  if (c_.spill != nullptr)
    c_.spill->Begin(r.sequence->page_ids(), r.sequence->page_pointers(), first_pos, rows);
  const Status status = Layers(first_pos, rows, r.cancel);
  if (c_.spill != nullptr) c_.spill->End();
  SLUICE_TRY(status);
  snapshots_.Commit();
  if (c_.experts != nullptr) c_.experts->EndStep();
  if (!last && !every) return {};
  return Logits(r, rows, every ? first_pos - before : 0, last);
}

Status StepLoop::Layers(uint32_t first_pos, uint32_t rows, const std::atomic<bool>* cancel) {
  const ModelConfig& c = c_.map->config;
  for (uint32_t layer = 0; layer < c.layers; ++layer) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
      return Status(Code::kFailed, "cancelled");
    const uint64_t start = NowNanos();
    SLUICE_TRY(Mix(layer, rows));
    if (c.IsMoeLayer(layer)) {
      if (c_.experts == nullptr) return Status(Code::kFailed, "no expert store");
      const Status status = c_.experts->Run(layer, rows, x_, moe_);
      if (!status.ok()) {
        c_.stream->Release(layer);
        return status;
      }
      forward_.t = TileAt(0, rows);
      forward_.AddResidual(moe_.out, c.residual_scale);
    }
    c_.stream->Release(layer);
    if (c_.timeline != nullptr) {
      c_.timeline->Add(Timeline::Track::kCompute, static_cast<int>(layer), -1, start, NowNanos());
    }
    SLUICE_TRY(CheckFinite(rows, layer));
    Show(first_pos, rows, layer);
  }
  return {};
}

// The layer's mixer and dense feed, tile by tile; the layer's weights stay acquired.
Status StepLoop::Mix(uint32_t layer, uint32_t rows) {
  if (c_.spill != nullptr) SLUICE_TRY(c_.spill->Enter(layer));
  SLUICE_TRY(c_.stream->Acquire(layer));
  const LayerWeights& w = c_.stream->layer(layer);
  for (uint32_t row = 0; row < rows;) {
    forward_.t = TileAt(row, snapshots_.TileRows(row, std::min(c_.plan->tile, rows - row)));
    page_->mix(forward_, w);
    page_->feed(forward_, w);
    row += forward_.t.rows;
    snapshots_.Passed(layer, row);
  }
  if (c_.spill != nullptr) c_.spill->Leave(layer);
  return {};
}

// A chunk may take minutes on a slow disk: its layers count as parts of its tokens.
void StepLoop::Show(uint32_t first_pos, uint32_t rows, uint32_t layer) const {
  if (shown_.progress == nullptr || !*shown_.progress) return;
  const uint64_t part = uint64_t{rows} * (layer + 1) / c_.map->config.layers;
  (*shown_.progress)(
      {"prefill", first_pos - shown_.first + part, shown_.total, NowSeconds() - shown_.start_s});
}

Status StepLoop::CheckFinite(uint32_t rows, uint32_t layer) {
  if (AllFinite(x_, uint64_t{rows} * c_.map->config.hidden)) return {};
  return Status(Code::kFailed, "invalid values (NaN or infinity) in the activations",
                fmt::format("after layer {}", layer),
                "the weights of this layer or an earlier one are damaged");
}

Tile StepLoop::TileAt(uint32_t first_row, uint32_t rows) const {
  const ModelConfig& c = c_.map->config;
  Tile t;
  t.rows = rows;
  t.first_row = first_row;
  t.pos = pos_ + first_row;
  t.seq = seq_ + first_row;
  t.cos = cos_ + uint64_t{first_row} * (c.rope.dims / 2);
  t.sin = sin_ + uint64_t{first_row} * (c.rope.dims / 2);
  if (two_ropes_) {
    t.cos_sliding = cos_sliding_ + uint64_t{first_row} * (c.rope_sliding.dims / 2);
    t.sin_sliding = sin_sliding_ + uint64_t{first_row} * (c.rope_sliding.dims / 2);
  }
  t.x = x_ + uint64_t{first_row} * c.hidden;
  return t;
}

void StepLoop::PrepareRows(Sequence* sequence, uint32_t first_pos, uint32_t rows) {
  for (uint32_t i = 0; i < rows; ++i) {
    pos_[i] = first_pos + i;
    seq_[i] = &sequence->view();
    if (rope_.half() > 0)
      rope_.Fill(pos_[i], cos_ + uint64_t{i} * rope_.half(), sin_ + uint64_t{i} * rope_.half());
    if (!two_ropes_) continue;
    rope_sliding_.Fill(pos_[i], cos_sliding_ + uint64_t{i} * rope_sliding_.half(),
                       sin_sliding_ + uint64_t{i} * rope_sliding_.half());
  }
}

Status StepLoop::Embed(std::span<const TokenId> ids) {
  const ModelConfig& c = c_.map->config;
  const MatrixSpec& spec = c_.map->embedding;
  if (const uint8_t* rows = c_.stream->embedding(); rows != nullptr) {
    for (size_t i = 0; i < ids.size(); ++i) {
      DecodeRow(spec.type, rows + static_cast<uint64_t>(ids[i]) * spec.row_bytes, x_ + i * c.hidden,
                c.hidden);
    }
  } else {
    SLUICE_TRY(EmbedFromFile(ids));
  }
  const uint64_t n = ids.size() * c.hidden;
  if (c.embedding_scale != 1) {
    for (uint64_t i = 0; i < n; ++i) x_[i] *= c.embedding_scale;
  }
  if (AllFinite(x_, n)) return {};
  return Status(Code::kFailed, "invalid values (NaN or infinity) in the embedding", spec.name,
                "the embedding weights are damaged");
}

// One aligned read per token, as many in flight as there are buffers.
Status StepLoop::EmbedFromFile(std::span<const TokenId> ids) {
  const ModelConfig& c = c_.map->config;
  const MatrixSpec& spec = c_.map->embedding;
  const uint64_t alignment = c_.queue->alignment();
  const size_t depth = embed_reads_.size();
  const uint64_t start = NowNanos();
  size_t submitted = 0;
  Status error;
  for (size_t i = 0; i < ids.size(); ++i) {
    for (; submitted < std::min(ids.size(), i + depth) && error.ok(); ++submitted) {
      const uint64_t begin =
          spec.extent.offset + static_cast<uint64_t>(ids[submitted]) * spec.row_bytes;
      ReadRequest& read = embed_reads_[submitted % depth];
      read = {};
      read.file = spec.extent.file;
      read.offset = AlignDown(begin, alignment);
      read.length = AlignUp(begin + spec.row_bytes, alignment) - read.offset;
      read.buffer = embed_arena_.data() + submitted % depth * c_.plan->embed_buffer_bytes;
      c_.queue->Submit(&read);
    }
    if (i >= submitted) break;
    ReadRequest& read = embed_reads_[i % depth];
    const Status status = c_.queue->Wait(&read);
    if (!status.ok()) {
      if (error.ok())
        error =
            Status(status.code(), status.what(), spec.name + ", " + status.where(), status.hint());
      continue;
    }
    const uint64_t begin = spec.extent.offset + static_cast<uint64_t>(ids[i]) * spec.row_bytes;
    DecodeRow(spec.type, read.buffer + (begin - read.offset), x_ + i * c.hidden, c.hidden);
  }
  embed_stall_ns_ += NowNanos() - start;
  return error;
}

Status StepLoop::Logits(const Request& r, uint32_t rows, uint32_t first_index, bool last) {
  const ModelConfig& c = c_.map->config;
  const bool every = r.every_row != nullptr && *r.every_row && first_index + rows <= r.ids.size();
  const uint32_t first = every ? 0 : rows - 1;
  for (uint32_t row = first; row < rows; row += c_.plan->logits_rows) {
    const uint32_t n = std::min(c_.plan->logits_rows, rows - row);
    const uint64_t start = NowNanos();
    SLUICE_TRY(HeadRows(row, n));
    if (c_.timeline != nullptr) {
      c_.timeline->Add(Timeline::Track::kCompute, -1, -1, start, NowNanos());
    }
    for (uint32_t i = 0; i < n; ++i) {
      float* logits = logits_ + uint64_t{i} * c.vocab;
      ScaleLogits(c, logits);
      if (!AllFinite(logits, c.vocab)) {
        return Status(Code::kFailed, "invalid logits (NaN or infinity)", "output head",
                      "the head's weights are damaged");
      }
      XXH3_64bits_update(hash_->state, logits, uint64_t{c.vocab} * 4);
      if (every) (*r.every_row)(first_index + row + i, {logits, c.vocab});
      if (last && row + i + 1 == rows && !r.logits.empty())
        std::copy_n(logits, c.vocab, r.logits.data());
    }
  }
  return {};
}

// logits_[0..n) = head * norm(x_[first..first + n))
Status StepLoop::HeadRows(uint32_t first, uint32_t n) {
  const ModelConfig& c = c_.map->config;
  for (uint64_t i = 0; i < n; ++i) {
    exec_.ops().rms_norm(x_ + (first + i) * c.hidden, c_.stream->output_norm(), c.rms_eps, c.hidden,
                         final_ + i * c.hidden);
  }
  for (uint32_t part = 0; part < c_.stream->head_parts(); ++part) {
    const uint32_t unit = c.layers + part;
    SLUICE_TRY(c_.stream->Acquire(unit));
    const Matrix& w = c_.stream->head_part(part);
    exec_.Project(final_act_, final_, c.hidden, n,
                  {{&w, logits_ + c_.stream->head_part_row(part), c.vocab, nullptr}});
    c_.stream->Release(unit);
  }
  return {};
}

}  // namespace sluice
