// Case M08: the KV and state bytes of a hybrid whose attention is in one layer of four, planned on
// metadata alone, follow the formula of each kind of layer; and an engine then holds just these.
#include <algorithm>

#include "runtime/engine_core.h"
#include "tests/pack/forge_support.h"

namespace sluice {
namespace {

using testing::TempFolder;

struct Shape {
  uint64_t layers, attention, kv_heads, head_dim, key_heads, value_heads, delta_dim;
  // Bytes of 32 elements, as docs/kv.md has them.
  uint64_t KvPerToken(uint64_t k_bytes, uint64_t v_bytes) const {
    return attention * kv_heads * head_dim / 32 * (k_bytes + v_bytes);
  }
  // S [value heads][dim][dim] and three inputs of the convolution over keys, queries and values.
  uint64_t StateBytes() const {
    return (layers - attention) * 4 *
           (value_heads * delta_dim * delta_dim +
            3 * (2 * key_heads * delta_dim + value_heads * delta_dim));
  }
};

TEST(KvPlan, FortyLayersOfWhichTenHaveAttention) {
  const TempFolder folder;
  ForgeOptions forge;
  forge.shape = "qwen3.6-35b-a3b";
  const ForgeShape real = *FindForgeShape(forge.shape, {});
  ASSERT_EQ(real.layers, 40u);
  const Shape shape{
      40, 10, real.kv_heads, real.head_dim, real.key_heads, real.value_heads, real.delta_dim};
  ASSERT_TRUE(ForgeOutline(forge, folder / "m.gguf").ok());
  struct Format {
    KvType type;
    uint64_t k_bytes, v_bytes;  // of 32 elements
  };
  for (const uint32_t context : {4096u, 32768u, 262144u}) {
    // q8: 32 bytes and a half; k8v4: values of 16 bytes, a half for the scale and one for the
    // offset.
    for (const Format f : {Format{KvType::kF16, 64, 64}, Format{KvType::kF32, 128, 128},
                           Format{KvType::kQ8, 34, 34}, Format{KvType::kK8V4, 34, 20}}) {
      EngineOptions options;
      options.need_text = false;
      options.threads = 2;
      options.context = context;
      options.kv = f.type;
      options.budget_bytes = uint64_t{48} << 30;
      const Result<Plan> plan = Engine::PlanFor(folder / "m.gguf", options);
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      EXPECT_EQ(plan->kv_bytes, shape.KvPerToken(f.k_bytes, f.v_bytes) * context);
      EXPECT_EQ(plan->state_bytes, shape.StateBytes());
      EXPECT_EQ(plan->kv_spill_bytes, 0u);
      // Every plan says what each format would take: --kv is chosen by these.
      const auto said = std::find_if(plan->kv_formats.begin(), plan->kv_formats.end(),
                                     [&](const auto& kv) { return kv.name == plan->kv_format; });
      ASSERT_NE(said, plan->kv_formats.end());
      EXPECT_EQ(plan->kv_formats.size(), 4u);
      EXPECT_EQ(said->bytes_per_token, shape.KvPerToken(f.k_bytes, f.v_bytes));
      EXPECT_EQ(said->bytes, plan->kv_bytes);
    }
  }
}

// A small file of the same pattern is opened: what the ledger holds is what the plan says.
void ExpectHeldAsPlanned(const std::string& model, KvType kv, uint32_t context, uint64_t resident) {
  CoreInput input;
  Result<ModelSource> source = OpenModelSource(model, true);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  input.source = std::move(*source);
  input.options.need_text = false;
  input.options.threads = 1;
  input.options.context = context;
  input.options.kv = kv;
  input.options.kv_memory_tokens = resident;
  input.options.budget_bytes = uint64_t{32} << 30;
  const auto core = EngineCore::Open(std::move(input));
  ASSERT_TRUE(core.ok()) << core.status().ToString();
  const Plan& plan = (*core)->plan();
  EXPECT_EQ(plan.kv_resident_tokens, resident > 0 ? resident : context);
  EXPECT_EQ(plan.kv_bytes + plan.kv_spill_bytes, plan.kv_bytes_per_token * context);
  uint64_t planned = 0, held = 0;
  for (const PlanLine& line : plan.lines) {
    if (line.tag == "kv" || line.tag == "kv spare" || line.tag == "kv window" ||
        line.tag == "state") {
      planned += line.bytes;
    }
  }
  for (const Ledger::Line& line : (*core)->Held()) {
    if (line.tag == "kv" || line.tag == "kv window" || line.tag == "state") held += line.bytes;
  }
  EXPECT_NEAR(static_cast<double>(held), static_cast<double>(planned),
              0.01 * static_cast<double>(planned))
      << plan.kv_format << " " << context << " " << resident;
}

TEST(KvPlan, TheEngineHoldsWhatThePlanSays) {
  const TempFolder folder;
  ForgeOptions forge = testing::Tiny("qwen3.6-35b-a3b");
  forge.overrides.layers = 40;
  ASSERT_TRUE(Forge(forge, folder / "m.gguf").ok());
  for (const KvType kv : {KvType::kF16, KvType::kQ8, KvType::kK8V4}) {
    for (const uint32_t context : {4096u, 32768u, 262144u}) {
      if (kv != KvType::kF16 && context == 4096) continue;
      for (const uint64_t resident : {uint64_t{0}, uint64_t{2048}})
        ExpectHeldAsPlanned(folder / "m.gguf", kv, context, resident);
    }
  }
}

}  // namespace
}  // namespace sluice
