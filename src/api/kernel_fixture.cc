#include "api/kernel_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/proc.h"

namespace sluice {
namespace {

constexpr uint32_t kTypeIdsEnd = 64;  // ggml's numbers go up to 40
constexpr uint64_t kBytesMin = 64 * kMiB, kBytesMax = 512 * kMiB;

bool IsFloat(WeightType type) {
  return type == WeightType::kF32 || type == WeightType::kF16 || type == WeightType::kBF16;
}

// The largest cache of the first processor, as /sys gives it ("16384K"); 0 where it does not.
uint64_t LastCacheBytes() {
  uint64_t bytes = 0;
  for (int index = 0; index < 8; ++index) {
    const auto text = proc::ReadText("/sys/devices/system/cpu/cpu0/cache/index" +
                                     std::to_string(index) + "/size");
    if (!text) continue;
    char* end = nullptr;
    const uint64_t number = std::strtoull(text->c_str(), &end, 10);
    const uint64_t unit = *end == 'K' ? kKiB : *end == 'M' ? kMiB : 1;
    bytes = std::max(bytes, std::min(number, uint64_t{1} << 20) * unit);
  }
  return bytes;
}

}  // namespace

std::vector<WeightType> MeasuredTypes() {
  std::vector<WeightType> types;
  for (uint32_t id = 0; id < kTypeIdsEnd; ++id) {
    const WeightTypeInfo* info = FindWeightType(id);
    if (info == nullptr || !info->decodes) continue;
    if (IsFloat(info->type) || ActFormatOf(info->type) != ActFormat::kF32)
      types.push_back(info->type);
  }
  return types;
}

uint64_t WorkingSetBytes() {
  const uint64_t wanted = std::clamp(4 * LastCacheBytes(), kBytesMin, kBytesMax);
  const MemoryStatus memory = ReadMemoryStatus();
  uint64_t free = memory.available_bytes;
  if (memory.cgroup_limit_bytes > 0)
    free = std::min(free, memory.cgroup_limit_bytes -
                              std::min(memory.cgroup_limit_bytes, memory.cgroup_used_bytes));
  return AlignUp(free == 0 ? wanted : std::min(wanted, free / 4), kMiB);
}

std::vector<uint8_t> FiniteBytes(uint64_t n) {
  std::vector<uint8_t> bytes(n);
  std::mt19937_64 rng(1);
  for (uint64_t i = 0; i + 8 <= n; i += 8) {
    const uint64_t v = rng() & 0x3b3b3b3b3b3b3b3bull;
    __builtin_memcpy(&bytes[i], &v, 8);
  }
  return bytes;
}

void FixExponents(WeightType type, std::vector<uint8_t>* bytes) {
  if (type != WeightType::kMXFP4) return;
  const uint32_t block = InfoOf(type).block_bytes;
  for (uint64_t i = 0; i < bytes->size(); i += block)
    (*bytes)[i] = static_cast<uint8_t>(0x70 + (*bytes)[i] % 8);
}

std::vector<float> NormalFloats(uint64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

MatmulFixture::MatmulFixture(const Ops& ops, WeightType type, uint32_t tokens, uint32_t rows,
                             const uint8_t* weights)
    : f32(NormalFloats(uint64_t{tokens} * kCols, 2)), out(uint64_t{tokens} * rows) {
  const ActFormat format = ActFormatOf(type);
  const uint64_t scales = ActScales(format, kCols), n_sums = ActSums(format, kCols);
  q.resize(f32.size());
  scale.resize(tokens * scales);
  sums.resize(tokens * n_sums);
  for (uint32_t t = 0; t < tokens && format != ActFormat::kF32; ++t) {
    ops.quantize(format, &f32[uint64_t{t} * kCols], kCols, &q[uint64_t{t} * kCols],
                 &scale[t * scales], &sums[t * n_sums]);
  }
  args.weights = weights;
  args.row_bytes = RowBytes(type, kCols).value();
  args.type = type;
  args.x = {.format = format,
            .rows = tokens,
            .cols = kCols,
            .f32 = f32.data(),
            .f32_stride = kCols,
            .q = q.data(),
            .scale = scale.data(),
            .sums = sums.data(),
            .q_stride = kCols,
            .scale_stride = scales,
            .sums_stride = n_sums};
  args.out = out.data();
  args.out_stride = rows;
}

AttentionFixture::AttentionFixture(const Ops& ops, KvFormat kv_format, uint32_t group_size,
                                   uint32_t position_count, uint32_t head_count)
    : format(kv_format),
      group(group_size),
      positions(AlignUp(position_count, kKvPageTokens)),
      heads(head_count),
      k_row(KvRowBytes(format, false, kDim)),
      v_row(KvRowBytes(format, true, kDim)),
      head_bytes((k_row + v_row) * positions),
      kv(head_bytes * heads),
      q(NormalFloats(uint64_t{heads} * group * kDim, 3)),
      out(q.size()) {
  const std::vector<float> x = NormalFloats(kDim, 4);
  const uint64_t page_bytes = (k_row + v_row) * kKvPageTokens;
  for (uint64_t at = 0; at < kv.size(); at += page_bytes) {
    pages.push_back(kv.data() + at);
    for (uint64_t p = 0; p < kKvPageTokens; ++p) {
      ops.kv_store(format, false, x.data(), kDim, &kv[at + p * k_row]);
      ops.kv_store(format, true, x.data(), kDim, &kv[at + k_row * kKvPageTokens + p * v_row]);
    }
  }
}

AttentionArgs AttentionFixture::Args(uint32_t head) {
  const uint64_t at = uint64_t{head} * group * kDim;
  return {.q = &q[at],
          .group = group,
          .dim_k = kDim,
          .dim_v = kDim,
          .format = format,
          .pages = &pages[uint64_t{head} * positions / kKvPageTokens],
          .k_offset = 0,
          .v_offset = k_row * kKvPageTokens,
          .k_row = k_row,
          .v_row = v_row,
          .first = 0,
          .last = positions - 1,
          .scale = 0.1f,
          .out = &out[at]};
}

}  // namespace sluice
