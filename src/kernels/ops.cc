#include "kernels/ops.h"

#include "base/cpu.h"
#include "kernels/kv_row.h"
#include "kernels/scalar/int_block.h"
#include "kernels/tables.h"

namespace sluice {

ActFormat ActFormatOf(WeightType type) {
  if (!scalar::HasIntPath(type)) return ActFormat::kF32;
  return InfoOf(type).block_elems == 32 ? ActFormat::kQ8x32 : ActFormat::kQ8x256;
}

uint64_t ActScales(ActFormat format, uint64_t n) {
  switch (format) {
    case ActFormat::kQ8x32:
      return n / 32;
    case ActFormat::kQ8x256:
      return n / 256;
    case ActFormat::kF32:
      break;
  }
  return 0;
}

uint64_t ActSums(ActFormat format, uint64_t n) {
  switch (format) {
    case ActFormat::kQ8x32:
      return n / 32;
    case ActFormat::kQ8x256:
      return n / 16;
    case ActFormat::kF32:
      break;
  }
  return 0;
}

uint64_t KvRowBytes(KvFormat format, bool is_value, uint32_t n) {
  const uint64_t blocks = (uint64_t{n} + kKvBlockElems - 1) / kKvBlockElems;
  switch (format) {
    case KvFormat::kF32:
      return uint64_t{n} * 4;
    case KvFormat::kF16:
      return uint64_t{n} * 2;
    case KvFormat::kQ8:
      return blocks * sizeof(KvQ8Block);
    case KvFormat::kK8V4:
      return blocks * (is_value ? sizeof(KvQ4Block) : sizeof(KvQ8Block));
  }
  return 0;
}

std::vector<std::string_view> IsasFor([[maybe_unused]] const CpuFeatures& cpu,
                                      [[maybe_unused]] bool (*may_use_tiles)()) {
  std::vector<std::string_view> names;
#if defined(__x86_64__)
  // Each set also runs the leaves of AVX2 that it does not replace.
  if (cpu.avx2 && cpu.fma && cpu.f16c) {
    if (cpu.avx512_vnni && cpu.amx_int8 && may_use_tiles()) names.push_back("amx");
    if (cpu.avx512_vnni) names.push_back("avx512");
    if (cpu.avx_vnni) names.push_back("avxvnni");
    names.push_back("avx2");
  }
#elif defined(__aarch64__)
  if (cpu.dotprod && cpu.i8mm) names.push_back("neon_i8mm");
  if (cpu.dotprod) names.push_back("neon_dotprod");
  if (cpu.neon) names.push_back("neon");
#endif
  names.push_back("scalar");
  return names;
}

std::vector<std::string_view> AvailableIsas() { return IsasFor(GetCpuFeatures(), RequestAmxTiles); }

const Ops* GetOps(std::string_view isa) {
  for (const std::string_view name : AvailableIsas()) {
    if (!isa.empty() && isa != name) continue;
#if defined(__x86_64__)
    if (name == "amx") return AmxOps();
    if (name == "avx512") return Avx512Ops();
    if (name == "avxvnni") return AvxVnniOps();
    if (name == "avx2") return Avx2Ops();
#elif defined(__aarch64__)
    if (name == "neon_i8mm") return NeonI8mmOps();
    if (name == "neon_dotprod") return NeonDotprodOps();
    if (name == "neon") return NeonOps();
#endif
    return ScalarOps();
  }
  return nullptr;
}

}  // namespace sluice
