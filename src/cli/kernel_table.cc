#include "cli/kernel_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice::cli {

std::string KernelTable(const KernelBench& b) {
  std::string out = fmt::format("{}, {} threads\n\n  best of this machine\n", b.isa, b.threads);
  const auto line = [&](const std::string& kernel, const std::string& variant, double value,
                        const std::string& unit, double peak) {
    out += fmt::format("  {:<32}{:<36}{:>10.{}f} {:<6}", kernel, variant, value,
                       value < 100 ? 2 : 0, unit);
    if (peak > 0) out += fmt::format("{:>6.0f} %", value / peak * 100);
    while (out.back() == ' ') out.pop_back();
    out += '\n';
  };
  line("memory", "plain reads, all threads", b.memory_gb_s, "GB/s", 0);
  line("memory", "plain reads, one thread", b.memory_one_gb_s, "GB/s", 0);
  line("products", "int8, on registers, all threads", b.int8_gop_s, "GOP/s", 0);
  line("products", "f32, on registers, all threads", b.f32_gop_s, "GOP/s", 0);
  std::string last;
  bool after_product = false;
  for (const KernelRate& rate : b.rates) {
    const bool product = rate.kernel.substr(0, 6) == "matmul";
    if (last.empty() || (rate.kernel != last && (product || after_product))) out += '\n';
    after_product = product;
    last = rate.kernel;
    line(rate.kernel, rate.variant, rate.value, rate.unit, rate.peak);
  }
  return out +
         "\n  %: of what memory gives (GB/s; beyond 100 where the data lie in the cache) or of the "
         "products\n  on registers (GOP/s; two operations per weight and token)\n";
}

nlohmann::ordered_json KernelJson(const KernelBench& b) {
  nlohmann::ordered_json json = {{"isa", b.isa},
                                 {"threads", b.threads},
                                 {"memory_gb_s", b.memory_gb_s},
                                 {"memory_one_gb_s", b.memory_one_gb_s},
                                 {"int8_gop_s", b.int8_gop_s},
                                 {"f32_gop_s", b.f32_gop_s},
                                 {"kernels", nlohmann::ordered_json::array()}};
  for (const KernelRate& rate : b.rates) {
    json["kernels"].push_back({{"kernel", rate.kernel},
                               {"variant", rate.variant},
                               {"value", rate.value},
                               {"unit", rate.unit},
                               {"peak", rate.peak},
                               {"fraction", rate.peak > 0 ? rate.value / rate.peak : 0}});
  }
  return json;
}

}  // namespace sluice::cli
