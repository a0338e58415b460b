// Freeze after open: decoding allocates nothing, whatever streams. Every operator new of this
// program is counted while a counter is armed, on all threads.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "sluice/engine.h"
#include "sluice/session.h"
#include "tests/golden/golden_data.h"

namespace {

std::atomic<bool> g_armed{false};
std::atomic<uint64_t> g_allocations{0};

void* Allocate(size_t bytes, size_t alignment) {
  if (g_armed.load(std::memory_order_relaxed)) g_allocations.fetch_add(1);
  void* memory = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    memory = std::malloc(bytes > 0 ? bytes : 1);
  } else if (posix_memalign(&memory, alignment, bytes) != 0) {
    memory = nullptr;
  }
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, 1); }
void* operator new[](size_t bytes) { return Allocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace sluice {
namespace {

struct Case {
  const char* name;
  int64_t slots = -1;      // experts that have one
  bool streamed = false;   // layers, half way between floor and resident
  uint64_t kv_tokens = 0;  // in memory; the rest spills
  KvType kv = KvType::kAuto;
  IoMode io = IoMode::kAuto;
};

class AllocGate : public testing::TestWithParam<Case> {};

TEST_P(AllocGate, DecodingAllocatesNothing) {
  const Case& c = GetParam();
  const auto path = golden::SharedDir() / "golden" / c.name / "model.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "SKIP: no golden data at " << path;
  EngineOptions options;
  options.need_text = false;
  options.threads = 2;
  options.context = 1024;
  options.kv = c.kv;
  options.io = c.io;
  options.expert_slots = c.slots;
  options.kv_memory_tokens = c.kv_tokens;
  options.scratch_dir = testing::TempDir();
  if (c.streamed) {
    const Result<Plan> plan = Engine::PlanFor(path.string(), options);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    options.budget_bytes = (plan->floor_bytes + plan->resident_bytes) / 2;
  }
  auto engine = Engine::Open(path.string(), options);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  auto session = Session::Create(engine->get());
  std::vector<TokenId> prompt(300);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<TokenId>((i * 7919 + 13) % (*engine)->vocab_size());
  const Status started = (*session)->Append(prompt);
  ASSERT_TRUE(started.ok()) << started.ToString();
  const auto decode = [&](int tokens) {
    Status status;
    for (int i = 0; i < tokens && status.ok(); ++i) {
      const TokenId id = (i * 31 + 7) % static_cast<TokenId>((*engine)->vocab_size());
      status = (*session)->Append({&id, 1});
    }
    return status;
  };
  ASSERT_TRUE(decode(4).ok());
  (*engine)->ResetStats();
  g_allocations = 0;
  g_armed = true;
  const Status status = decode(150);  // over two pages' ends
  g_armed = false;
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(g_allocations.load(), 0u);
  const Stats stats = (*engine)->stats();
  EXPECT_EQ(stats.decode_tokens, 150u);
  if (c.slots >= 0 || c.streamed) EXPECT_GT(stats.decode_bytes_read, 0u) << "it streams";
  if (c.kv_tokens > 0) EXPECT_GT(stats.kv_spill_bytes_read, 0u) << "it spills";
}

// The counter counts.
TEST(AllocGateItself, SeesAnAllocation) {
  g_allocations = 0;
  g_armed = true;
  auto* volatile one = new int(1);
  delete one;
  auto* volatile many = new std::vector<int>(5);
  delete many;
  g_armed = false;
  EXPECT_EQ(g_allocations.load(), 3u);
}

INSTANTIATE_TEST_SUITE_P(
    Models, AllocGate,
    testing::Values(Case{.name = "qwen3"}, Case{.name = "qwen3", .streamed = true},
                    Case{.name = "qwen3_moe", .slots = 4},
                    Case{.name = "qwen3_moe", .slots = 4, .io = IoMode::kPread},
                    Case{.name = "qwen3_5_moe", .slots = 4},
                    Case{.name = "deepseek_v2", .slots = 4, .kv = KvType::kQ8},
                    Case{.name = "gemma3", .kv_tokens = 256}),
    [](const auto& info) { return std::string(info.param.name) + std::to_string(info.index); });

}  // namespace
}  // namespace sluice
