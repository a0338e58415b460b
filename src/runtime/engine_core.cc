#include "runtime/engine_core.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/clock.h"
#include "base/limits.h"
#include "io/probe.h"
#include "io/raw_read.h"
#include "runtime/budget.h"
#include "runtime/memory_probe.h"

namespace sluice {
namespace {

constexpr uint32_t kContextDefault = 4096;
// Part of the name of everything in the prefix store: raise it when any kernel gives other bits, or
// when a page is laid out in another way.
constexpr int kNumericsVersion = 2;
// Probing: more than eight reads in flight only queue (FIELD 1e). Fewer than four leave the device
// idle between two completions when all processors are computing, which a probe does not see.
const std::vector<int> kProbeDepths = {4, 8};
constexpr double kProbeSeconds = 0.45;
constexpr uint64_t kMemoryProbeBytesMin = 16 * kMiB, kMemoryProbeBytesMax = 128 * kMiB;

bool FloatWeights(const ModelMap& map) {
  return ActFormatOf(map.head.type) == ActFormat::kF32 && !map.layers.empty() &&
         std::all_of(map.layers.begin(), map.layers.end(), [](const LayerMap& layer) {
           for (const auto& m : layer.matrix) {
             if (m && ActFormatOf(m->type) != ActFormat::kF32) return false;
           }
           return true;
         });
}

// Float weights or float activations are run for exactness, so the cache is float too; otherwise
// half.
KvFormat ChooseKv(KvType kv, bool float_act, const ModelMap& map) {
  switch (kv) {
    case KvType::kF32:
      return KvFormat::kF32;
    case KvType::kF16:
      return KvFormat::kF16;
    case KvType::kQ8:
      return KvFormat::kQ8;
    case KvType::kK8V4:
      return KvFormat::kK8V4;
    case KvType::kAuto:
      break;
  }
  return float_act || FloatWeights(map) ? KvFormat::kF32 : KvFormat::kF16;
}

IoBackend BackendOf(IoMode mode) {
  switch (mode) {
    case IoMode::kUring:
      return IoBackend::kUring;
    case IoMode::kPread:
      return IoBackend::kPread;
    case IoMode::kBuffered:
      return IoBackend::kBuffered;
    case IoMode::kAuto:
      break;
  }
  return IoBackend::kAuto;
}

std::string RopeText(const RopeConfig& r) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", r.dims, r.adjacent, r.theta,
                     static_cast<int>(r.scaling), r.factor, r.original_context, r.low_freq_factor,
                     r.high_freq_factor, r.beta_fast, r.beta_slow, r.truncate);
}

Status CheckOptions(const EngineOptions& options, const ModelConfig& config) {
  if (options.threads < 0 || options.threads > static_cast<int>(limits::kThreadsMax)) {
    return Status(Code::kUsage, fmt::format("threads {} is out of range", options.threads), "",
                  fmt::format("use 1 to {}", limits::kThreadsMax));
  }
  if (options.context > limits::kContextMax) {
    return Status(Code::kUsage, fmt::format("context {} is out of range", options.context), "",
                  fmt::format("use at most {}", limits::kContextMax));
  }
  if (config.context > 0 && options.context > config.context) {
    LogOnce(LogLevel::kNotice, "context",
            fmt::format("context {} is beyond the {} tokens the model was trained for",
                        options.context, config.context));
  }
  return {};
}

}  // namespace

EngineCore::~EngineCore() {
  if (timeline_ == nullptr) return;
  const Status status = timeline_->Write();
  if (!status.ok()) Log(LogLevel::kWarning, status.ToString());
}

Status EngineCore::OpenFiles() {
  for (const Catalog::FileEntry& entry : map_.catalog.files) {
    SLUICE_ASSIGN(std::unique_ptr<File> file, File::Open(entry.path));
    if (file->size() != entry.bytes) {
      return Status(Code::kIo,
                    fmt::format("the file changed while it was opened: {} bytes, then {}",
                                entry.bytes, file->size()),
                    entry.path);
    }
    files_.push_back(std::move(file));
  }
  return {};
}

// What is known of the machine before the plan is made: measured for a plan, remembered for a run.
void EngineCore::KnowMachine(PlanInput* plan) {
  if (files_.empty()) return;
  device_key_ = DeviceKey(*files_.front(), BackendOf(options_.io));
  known_ = FindDeviceProbe(options_.state_dir, device_key_);
  if (known_) machine_ = *known_;
  if (options_.probe) {
    MeasureDisk({});
    machine_.memory_bytes_per_s = MeasureMemoryBandwidth(
        std::min<uint64_t>(kMemoryProbeBytesMax, plan->budget_bytes / 4), plan->threads, ops_->isa);
    KeepMachine();
  }
  if (options_.io_depth > 0) machine_.depth = options_.io_depth;
  plan->disk_bytes_per_s = machine_.disk_bytes_per_s;
  plan->memory_bytes_per_s = machine_.memory_bytes_per_s;
}

// A device that cannot be measured leaves what was known: reading it for real tells why.
void EngineCore::MeasureDisk(MutableByteSpan memory) {
  BandwidthProbeOptions probe;
  probe.backend = BackendOf(options_.io);
  probe.depths = kProbeDepths;
  probe.seconds_max = kProbeSeconds;
  probe.memory = memory;
  probe.own_bytes_max = options_.budget_bytes / 8;  // 0: as little as will do
  const Result<BandwidthProbe> disk = MeasureReadBandwidth(*files_.front(), probe);
  if (!disk.ok()) return;
  machine_.disk_bytes_per_s = disk->best_bytes_per_s;
  machine_.depth = disk->best_depth;
}

void EngineCore::KeepMachine() {
  if (machine_.disk_bytes_per_s <= 0) return;
  const Status kept = KeepDeviceProbe(options_.state_dir, device_key_, machine_);
  if (!kept.ok()) LogOnce(LogLevel::kInfo, "device probe", kept.ToString());
}

// Memory that may be overwritten between steps: expert slots, or the ring of layers once its
// read-ahead is dropped.
MutableByteSpan EngineCore::BorrowMemory() {
  const MutableByteSpan slots = experts_ != nullptr ? experts_->BorrowMemory() : MutableByteSpan();
  return slots.size() > 0 ? slots : stream_->BorrowRing();
}

void EngineCore::MeasureMachine() {
  std::lock_guard lock(mutex_);
  const int depth = machine_.depth;  // the queue that is open keeps its own
  const MutableByteSpan ring = BorrowMemory();
  if (ring.size() > 0) MeasureDisk(ring);
  machine_.depth = depth;
  const std::vector<MutableByteSpan> pinned = stream_->PinnedMemory();
  if (pinned.empty() || pinned[0].size() < kMemoryProbeBytesMin) return;  // would measure a cache
  const size_t bytes = std::min<size_t>(pinned[0].size(), kMemoryProbeBytesMax);
  machine_.memory_bytes_per_s =
      MeasureMemoryBandwidth(pinned[0].first(bytes), pool_.get(), ops_->isa);
  rates_ = {machine_.disk_bytes_per_s, machine_.memory_bytes_per_s};
  if (ring.size() == 0) return;
  BandwidthProbeOptions probe;
  probe.backend = BackendOf(options_.io);
  probe.depths = {depth};
  probe.memory = ring;
  // What cannot be measured leaves the sum of both times as the bound.
  const Status together = MeasureTogether(*files_.front(), probe, pinned[0].first(bytes),
                                          pool_.get(), ops_->isa, &rates_);
  if (!together.ok()) LogOnce(LogLevel::kInfo, "shared probe", together.ToString());
}

Status EngineCore::Prepare(CoreInput* input, EngineCore* core) {
  const EngineOptions& options = input->options;
  core->options_ = options;
  core->opened_s_ = input->opened_s;
  core->digest_ = DigestOf(input->source);
  SLUICE_ASSIGN(core->map_, BindSource(&input->source));
  input->source = {};
  const ModelConfig& config = core->map_.config;
  SLUICE_TRY(CheckOptions(options, config));
  SLUICE_TRY(core->OpenFiles());
  core->ops_ = GetOps(options.isa);
  if (core->ops_ == nullptr) {
    return Status(Code::kUsage,
                  fmt::format("instruction set '{}' is not available here", options.isa),
                  "SLUICE_ISA", fmt::format("use one of {}", fmt::join(AvailableIsas(), ", ")));
  }
  malloc_trim(0);
  const ProcessMemory process = ReadProcessMemory();
  PlanInput plan;
  plan.map = &core->map_;
  plan.act = options.act;
  plan.kv = ChooseKv(options.kv, options.act == ActType::kF32, core->map_);
  plan.context =
      options.context > 0
          ? options.context
          : std::min(kContextDefault, config.context > 0 ? config.context : kContextDefault);
  plan.chunk = options.chunk;
  plan.kv_memory_tokens = options.kv_memory_tokens;
  plan.kv_memory_bytes = options.kv_memory_bytes;
  plan.spill_dir = options.scratch_dir;
  plan.budget_bytes = options.budget_bytes;
  if (options.budget_bytes == 0) {
    const BudgetChoice choice = AutoBudget(ReadMemoryStatus(), process.rss_bytes);
    plan.budget_bytes = choice.bytes;
    plan.budget_auto = true;
    plan.budget_reason = choice.reason;
  }
  plan.process_bytes = process.rss_bytes;
  plan.tokenizer_bytes = input->tokenizer_bytes;
  plan.alignment = 4096;
  for (const std::unique_ptr<File>& file : core->files_) {
    plan.alignment = std::max<uint64_t>(plan.alignment, file->direct_alignment());
  }
  plan.threads = options.threads > 0 ? options.threads : DefaultThreads();
  core->options_.threads = plan.threads;
  plan.expert_slots_max = options.expert_slots;
  plan.lookahead = options.lookahead != 0;
  core->KnowMachine(&plan);
  SLUICE_ASSIGN(core->plan_, MakeMemoryPlan(plan));
  if (process.peak_rss_bytes > input->peak_before_bytes &&
      process.peak_rss_bytes > plan.budget_bytes) {
    return Status(Code::kBudget,
                  fmt::format("opening the model already took {}, more than the budget of {}",
                              FormatBytes(process.peak_rss_bytes), FormatBytes(plan.budget_bytes)),
                  "tokenizer and headers",
                  fmt::format("use --budget {}M", process.peak_rss_bytes / kMiB + 8));
  }
  if (!core->map_.skipped.empty()) {
    core->Note(LogLevel::kNotice, "skipped",
               fmt::format("{} tensors are not used (first: {})", core->map_.skipped.size(),
                           core->map_.skipped[0]));
  }
  return {};
}

Result<Plan> EngineCore::PlanOnly(CoreInput input) {
  EngineCore core;
  SLUICE_TRY(Prepare(&input, &core));
  return core.plan_.table;
}

Result<std::unique_ptr<EngineCore>> EngineCore::Open(CoreInput input) {
  std::unique_ptr<EngineCore> core(new EngineCore());
  SLUICE_TRY(Prepare(&input, core.get()));
  SLUICE_TRY(core->Load(input));
  return core;
}

Status EngineCore::ReserveOverhead() {
  for (const PlanLine& line : plan_.table.lines) {
    if (line.tag == "page tables") {
      SLUICE_ASSIGN(page_tables_, ledger_->Reserve(line.tag, line.bytes));
    }
    if (line.tag == "kv tables") {
      SLUICE_ASSIGN(kv_tables_, ledger_->Reserve(line.tag, line.bytes));
    }
    if (line.tag == "process") {
      SLUICE_ASSIGN(process_, ledger_->Reserve(line.tag, line.bytes));
    }
    if (line.tag == "tokenizer") {
      SLUICE_ASSIGN(tokenizer_, ledger_->Reserve(line.tag, line.bytes));
    }
  }
  return {};
}

// The pinned weights arrive while the first step runs, and the expert slots come into being on
// another thread meanwhile: opening waits for neither. No memory is registered with the queue: it
// changed no rate and took up to 1.6 s (docs/io.md).
Status EngineCore::ReadPinned(const CoreInput& input) {
  std::vector<const File*> files;
  for (const std::unique_ptr<File>& file : files_) files.push_back(file.get());
  SLUICE_ASSIGN(stream_, WeightStream::Make({&map_, &plan_, ledger_.get(), files, options_.progress,
                                             timeline_.get()}));
  SLUICE_TRY(MakePools());
  SLUICE_TRY(MakeExperts());
  const auto make_queue = [&] {
    ReadQueueOptions queue;
    queue.backend = BackendOf(options_.io);
    queue.depth = machine_.depth;
    queue.cpus = roles_.io;
    return input.make_queue ? input.make_queue(files, queue) : MakeReadQueue(files, queue);
  };
  SLUICE_ASSIGN(queue_, make_queue());
  SLUICE_TRY(stream_->BeginPinned(queue_.get()));
  if (experts_ != nullptr)
    prefault_ = std::make_unique<BackgroundPrefault>(experts_->slots_arena());
  if (!known_ && !options_.state_dir.empty() && BorrowMemory().size() > 0) {
    SLUICE_TRY(stream_->FinishPinned());  // or both would share the disk, and the queue may go
    const int depth = machine_.depth;
    MeasureDisk(BorrowMemory());
    KeepMachine();
    if (options_.io_depth > 0) machine_.depth = options_.io_depth;
    if (machine_.depth != depth) {
      SLUICE_ASSIGN(queue_, make_queue());
    }
  }
  stream_->Start(queue_.get());
  return {};
}

Status EngineCore::Load(const CoreInput& input) {
  ledger_ = std::make_unique<Ledger>(plan_.table.budget_bytes);
  SLUICE_TRY(ReserveOverhead());
  if (!options_.timeline_path.empty())
    timeline_ = std::make_unique<Timeline>(options_.timeline_path);
  roles_ = ChooseCpuRoles(options_.cpus, options_.threads);
  using Placement = ThreadPool::Placement;
  pool_ = std::make_unique<ThreadPool>(options_.threads, roles_.compute,
                                       roles_.one_each ? Placement::kOneEach : Placement::kShared);
  SLUICE_TRY(ReadPinned(input));
  StepLoop::Context context;
  context.map = &map_;
  context.plan = &plan_;
  context.ledger = ledger_.get();
  context.ops = ops_;
  context.pool = pool_.get();
  context.queue = queue_.get();
  context.stream = stream_.get();
  context.experts = experts_.get();
  context.timeline = timeline_.get();
  context.spill = spill_.get();
  context.float_act = options_.act == ActType::kF32;
  context.keep_every_s = options_.keep_every_s;
  SLUICE_ASSIGN(loop_, StepLoop::Make(context));
  if (experts_ != nullptr) SLUICE_TRY(experts_->Attach(queue_.get(), &loop_->exec()));
  if (options_.mlock) LockPinned();
  ledger_->Freeze();
  counters_.load_s = NowSeconds() - opened_s_;
  return {};
}

Status EngineCore::MakeExperts() {
  if (plan_.table.experts_total == 0) return {};
  if (!options_.route_trace_path.empty()) {
    SLUICE_ASSIGN(trace_, RouteRecorder::Open(options_.route_trace_path, map_.config.layers,
                                              map_.config.moe.used, plan_.experts.slot_bytes));
  }
  ExpertStore::Context context;
  context.map = &map_;
  context.plan = &plan_;
  context.ledger = ledger_.get();
  context.stream = stream_.get();
  context.policy = options_.policy;
  context.lookahead = std::max(0, options_.lookahead);
  context.lookahead_noise = options_.lookahead_noise;
  context.alignment = plan_.alignment;
  context.timeline = timeline_.get();
  context.trace = trace_.get();
  SLUICE_ASSIGN(experts_, ExpertStore::Make(std::move(context)));
  return {};
}

void EngineCore::AddExpertStats(Stats* s) const {
  if (experts_ == nullptr) return;
  const ExpertCounters& e = experts_->counters();
  if (e.lookups > 0) s->hit_rate = static_cast<double>(e.hits) / static_cast<double>(e.lookups);
  if (e.guesses > 0)
    s->lookahead_accuracy = static_cast<double>(e.guessed_right) / static_cast<double>(e.guesses);
  s->lookahead_useful_bytes = e.ahead_useful_bytes;
  s->lookahead_wasted_bytes = e.ahead_wasted_bytes;
}

Status EngineCore::MakePools() {
  SLUICE_ASSIGN(pages_,
                KvPagePool::Make(ledger_.get(), plan_.kv.page_bytes, plan_.split.pages,
                                 plan_.split.frames, plan_.kv.sliding_bytes, plan_.sliding_frames));
  SLUICE_ASSIGN(state_arena_,
                Arena::Make(ledger_.get(), "state", plan_.state.floats * 4, Touch::kLazily));
  sequences_.state_floats = plan_.state.floats;
  if (plan_.kv.page_bytes > 0) {
    prefixes_ = std::make_unique<PrefixCache>(&pages_);
    sequences_.pages = &pages_;
    sequences_.cache = prefixes_.get();
  }
  if (plan_.kv.sliding_bytes > 0) {
    SLUICE_ASSIGN(page_arena_,
                  Arena::Make(ledger_.get(), "kv", plan_.kv.whole_page_bytes(), Touch::kLazily));
    sequences_.scratch = {page_arena_.data(), plan_.kv.whole_page_bytes()};
    sequences_.sliding_window = map_.config.sliding_window;
    sequences_.sliding_used.assign(plan_.split.pages, 0);
  }
  if (plan_.state.floats > 0)
    sequences_.free_states.push_back(reinterpret_cast<float*>(state_arena_.data()));
  SLUICE_TRY(MakeSpill());
  return OpenStore();
}

Status EngineCore::MakeSpill() {
  if (!plan_.split.spills()) return {};
  KvSpill::Context context;
  context.config = &map_.config;
  context.kv = &plan_.kv;
  context.pool = &pages_;
  context.threads = pool_.get();
  context.ledger = ledger_.get();
  context.dir = options_.scratch_dir;
  context.window_pages = plan_.split.window_pages;
  context.windows = plan_.split.windows;
  context.window_bytes = plan_.split.window_bytes;
  context.queue.backend = BackendOf(options_.io);
  context.queue.depth = machine_.depth;
  context.queue.cpus = roles_.io;
  SLUICE_ASSIGN(spill_, KvSpill::Make(context));
  sequences_.spill = spill_.get();
  return {};
}

void EngineCore::Note(LogLevel level, const std::string& key, std::string text) {
  LogOnce(level, key, text);
  if (noted_.insert(key).second) notices_.push_back(std::move(text));
}

// Reading may step down when it begins, or at any read later.
void EngineCore::AddIoNotices(Stats* s) const {
  if (!queue_->step_down().empty()) s->notices.push_back(queue_->step_down());
  for (const std::unique_ptr<File>& file : files_) {
    if (file->direct_refused() != 0) s->notices.push_back(RefusalText(*file));
  }
  if (spill_ != nullptr && !spill_->step_down().empty()) s->notices.push_back(spill_->step_down());
}

void EngineCore::AddSpillStats(Stats* s) const {
  if (spill_ == nullptr) return;
  s->kv_spilled_bytes = spill_->away_bytes();
  s->kv_spill_bytes_read = spill_->bytes_read() - counters_.spill_read_before;
  s->kv_spill_bytes_written = spill_->bytes_written() - counters_.spill_written_before;
  if (counters_.decode_tokens > 0) {
    s->kv_spill_bytes_per_token = static_cast<double>(counters_.decode_spill_bytes) /
                                  static_cast<double>(counters_.decode_tokens);
  }
}

// The prefix store, or for recurrent models without one a nameless file for their snapshots. An
// engine works without either: it computes again.
Status EngineCore::OpenStore() {
  PrefixStore::Options store;
  if (options_.prefix_store_bytes == 0) return {};
  store.ephemeral =
      options_.state_dir.empty() || options_.no_prefix_store || options_.private_session;
  if (store.ephemeral && plan_.state.floats == 0) return {};
  store.dir = store.ephemeral ? options_.scratch_dir : options_.state_dir + "/prefix";
  store.bytes_max = options_.prefix_store_bytes;
  if (!store.ephemeral) {  // other processes may have other models
    Result<std::string> model = ModelHash(digest_);
    if (!model.ok()) {  // whoever needs those bytes will say what is wrong
      Note(LogLevel::kInfo, "prefix store", "no prefix store: " + model.status().ToString());
      return {};
    }
    // The label tells people who list the store which model an entry is of.
    store.identity.model = digest_.label + (digest_.label.empty() ? "" : " ") + *model;
  }
  store.identity.kv_format = plan_.table.kv_format;
  store.identity.arithmetic =
      fmt::format("{} {:x}{} v{} rope {}", ops_->isa, plan_.act_formats,
                  options_.act == ActType::kF32 ? "f" : "", kNumericsVersion,
                  RopeText(map_.config.rope) + " " + RopeText(map_.config.rope_sliding));
  store.identity.page_bytes = plan_.kv.whole_page_bytes();
  store.identity.state_bytes = plan_.state.floats * 4;
  sequences_.root = RootKey(store.identity);
  Result<std::unique_ptr<PrefixStore>> opened = PrefixStore::Open(std::move(store));
  if (!opened.ok()) {
    Note(LogLevel::kNotice, "prefix store", "no prefix store: " + opened.status().ToString());
    return {};
  }
  store_ = std::move(opened).value();
  sequences_.store = store_.get();
  return {};
}

// Tries once and says once why not: a phone concedes 64 KiB.
void EngineCore::LockPinned() {
  for (const MutableByteSpan& span : stream_->PinnedMemory()) {
    if (mlock(span.data(), span.size()) == 0) continue;
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    const std::string what =
        limit.rlim_cur == RLIM_INFINITY ? "unlimited" : FormatBytes(limit.rlim_cur);
    Note(LogLevel::kWarning, "mlock",
         fmt::format("--mlock: {} could not be locked (memlock limit {}); going on without",
                     FormatBytes(span.size()), what));
    return;
  }
}

std::unique_ptr<Sequence> EngineCore::NewSequence() {
  std::lock_guard lock(mutex_);
  return std::make_unique<Sequence>(&sequences_, plan_.context);
}

void EngineCore::Return(std::unique_ptr<Sequence> sequence) {
  std::lock_guard lock(mutex_);
  if (aligned_ == sequence.get()) aligned_ = nullptr;  // another may come to lie there
  sequence.reset();
}

uint32_t EngineCore::Align(Sequence* sequence, std::span<const TokenId> ids) {
  std::lock_guard lock(mutex_);
  const double start = NowSeconds();
  const uint32_t kept = sequence->Align(ids);
  counters_.reused_tokens += kept;
  aligned_ = sequence;
  counters_.align_s += NowSeconds() - start;  // part of the wait for a first token
  return kept;
}

void EngineCore::Cut(Sequence* sequence, uint32_t n) {
  std::lock_guard lock(mutex_);
  sequence->Cut(n);
}

void EngineCore::Keep(Sequence* sequence, bool with_state) {
  std::lock_guard lock(mutex_);
  Status status = sequence->Keep();
  if (status.ok() && with_state) status = sequence->KeepState();
  if (!status.ok())
    Note(LogLevel::kNotice, "prefix store: kept", "not kept for next time: " + status.ToString());
}

uint64_t EngineCore::StallNs() const {
  return stream_->stall_ns() + loop_->embed_stall_ns() +
         (experts_ != nullptr ? experts_->stall_ns() : 0) +
         (spill_ != nullptr ? spill_->stall_ns() : 0);
}

Status EngineCore::Step(const StepLoop::Request& request) {
  std::lock_guard lock(mutex_);
  SLUICE_TRY(Run(request));
  if (prefault_ == nullptr) return {};
  const std::unique_ptr<BackgroundPrefault> prefault = std::move(prefault_);
  return prefault->Join();
}

Status EngineCore::Run(const StepLoop::Request& request) {
  // The last token of a prompt whose beginning was found is no decoding.
  const bool prompt_rest = aligned_ == request.sequence;
  if (prompt_rest) aligned_ = nullptr;
  const bool decode = request.ids.size() == 1 && request.sequence->length() > 0 && !prompt_rest;
  const double start = NowSeconds();
  queue_->Poll();  // so that the pinned bytes below are those of `bytes`
  const uint64_t bytes = queue_->bytes_read(), stall = StallNs();
  const uint64_t spilled = spill_ != nullptr ? spill_->bytes_read() : 0;
  const uint64_t pinned = stream_->pinned_bytes_read();  // the rest of them comes during this step
  const bool trial = decode && options_.lookahead < 0 && experts_ != nullptr;
  if (trial) experts_->SetLookahead(lookahead_trial_.on() ? 1 : 0);
  pool_->FollowCpus();
  StepLoop::Request r = request;
  r.progress = &options_.progress;
  SLUICE_TRY(loop_->Run(r));
  counters_.recomputed_tokens += loop_->recomputed();
  if (trace_ != nullptr) trace_->Flush(decode ? 1 : 0);
  const double seconds = NowSeconds() - start;
  if (trial) lookahead_trial_.Add(seconds);
  if (decode) {
    counters_.decode_s += seconds;
    counters_.decode_tokens += 1;
    counters_.decode_bytes += queue_->bytes_read() - bytes;
    counters_.decode_stall_ns += StallNs() - stall;
    if (spill_ != nullptr) counters_.decode_spill_bytes += spill_->bytes_read() - spilled;
  } else {
    if (counters_.prompt_tokens == 0)
      counters_.ttft_s = counters_.load_s + counters_.align_s + seconds;
    counters_.prefill_s += seconds;
    counters_.prompt_tokens += request.ids.size();
    const uint64_t loaded = stream_->pinned_bytes_read() - pinned;
    counters_.prefill_bytes +=
        queue_->bytes_read() - bytes - std::min(loaded, queue_->bytes_read() - bytes);
  }
  return {};
}

void EngineCore::ResetStats() {
  std::lock_guard lock(mutex_);
  const double load_s = counters_.load_s;
  counters_ = {};
  counters_.load_s = load_s;
  if (spill_ != nullptr) {
    counters_.spill_read_before = spill_->bytes_read();
    counters_.spill_written_before = spill_->bytes_written();
  }
  loop_->ResetHash();
  if (experts_ != nullptr) experts_->ResetCounters();
}

Stats EngineCore::stats() const {
  std::lock_guard lock(mutex_);
  Stats s;
  const StepCounters& c = counters_;
  s.load_s = c.load_s;
  s.ttft_s = c.ttft_s;
  s.prefill_s = c.prefill_s;
  s.decode_s = c.decode_s;
  s.prompt_tokens = c.prompt_tokens;
  s.decode_tokens = c.decode_tokens;
  s.reused_tokens = c.reused_tokens;
  s.recomputed_tokens = c.recomputed_tokens;
  s.prefill_tok_s = c.prefill_s > 0 ? static_cast<double>(c.prompt_tokens) / c.prefill_s : 0;
  s.decode_tok_s = c.decode_s > 0 ? static_cast<double>(c.decode_tokens) / c.decode_s : 0;
  s.prefill_bytes_read = c.prefill_bytes;
  s.decode_bytes_read = c.decode_bytes;
  s.bytes_read = queue_->bytes_read();
  s.hit_rate = 1;
  if (c.decode_tokens > 0) {
    const auto n = static_cast<double>(c.decode_tokens);
    s.bytes_per_token = static_cast<double>(c.decode_bytes) / n;
    s.stall_ms_per_token = static_cast<double>(c.decode_stall_ns) * 1e-6 / n;
    s.compute_ms_per_token = c.decode_s * 1e3 / n - s.stall_ms_per_token;
  }
  AddExpertStats(&s);
  AddSpillStats(&s);
  s.peak_rss_bytes = ReadProcessMemory().peak_rss_bytes;
  s.budget_bytes = plan_.table.budget_bytes;
  if (machine_.memory_bytes_per_s > 0) {
    const double memory_s =
        static_cast<double>(plan_.table.active_bytes_per_token) / machine_.memory_bytes_per_s;
    const double disk_s =
        machine_.disk_bytes_per_s > 0 ? s.bytes_per_token / machine_.disk_bytes_per_s : 0;
    s.bound_tok_s = 1 / std::max(memory_s, disk_s);
    s.bound_fraction = s.decode_tok_s / s.bound_tok_s;
  }
  const double shared_s = SecondsPerToken(rates_, s.bytes_per_token,
                                          static_cast<double>(plan_.table.active_bytes_per_token));
  if (shared_s > 0) {
    s.shared_bound_tok_s = 1 / shared_s;
    s.shared_bound_fraction = s.decode_tok_s * shared_s;
  }
  s.logits_hash = fmt::format("{:016x}", loop_->logits_hash());
  s.isa = ops_->isa;
  s.io = queue_->name();
  s.kv = plan_.table.kv_format;
  s.threads = pool_->active_threads();
  for (const PlanLine& line : plan_.table.lines) {
    if (line.tag == "pinned weights" || line.tag == "norms and biases") s.pinned.push_back(line);
    if (line.tag == "ring" || line.tag == "expert slots" || line.tag == "expert ring")
      s.streamed.push_back(line);
  }
  s.notices = notices_;
  AddIoNotices(&s);
  return s;
}

}  // namespace sluice
