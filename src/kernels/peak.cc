#include "kernels/peak.h"

namespace sluice {

PeakLoops FindPeakLoops(std::string_view isa) {
  if (isa == "scalar") return {scalar::PeakInt8, scalar::PeakF32, scalar::PeakRead};
#if defined(__x86_64__)
  if (isa == "avx2") return {avx2::PeakInt8, avx2::PeakF32, avx2::PeakRead};
  if (isa == "avxvnni") return {avxvnni::PeakInt8, avx2::PeakF32, avx2::PeakRead};
  if (isa == "avx512") return {avx512::PeakInt8, avx512::PeakF32, avx2::PeakRead};
  if (isa == "amx") return {amx::PeakInt8, avx512::PeakF32, avx2::PeakRead};
#elif defined(__aarch64__)
  if (isa == "neon") return {neon::PeakInt8, neon::PeakF32, scalar::PeakRead};
  if (isa == "neon_i8mm") return {neon_i8mm::PeakInt8, neon::PeakF32, scalar::PeakRead};
  if (isa == "neon_dotprod") return {neon_dotprod::PeakInt8, neon::PeakF32, scalar::PeakRead};
#endif
  return {};
}

}  // namespace sluice
