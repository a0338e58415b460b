#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "cli/console.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "sluice/trace.h"

namespace sluice::cli {
namespace {

std::vector<std::string> SplitCommas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

nlohmann::ordered_json AsJson(const Simulation& s) {
  nlohmann::ordered_json json = {{"model", s.model},     {"layers", s.layers},
                                 {"experts", s.experts}, {"used", s.experts_used},
                                 {"steps", s.steps},     {"accesses", s.accesses}};
  json["rows"] = nlohmann::ordered_json::array();
  for (const SimulationRow& row : s.rows) {
    json["rows"].push_back({{"slots", row.slots},
                            {"slots_per_layer", row.slots_per_layer},
                            {"policy", row.policy},
                            {"hit_rate", row.hit_rate},
                            {"decode_hit_rate", row.decode_hit_rate},
                            {"bytes_per_token", row.bytes_per_token}});
  }
  return json;
}

std::string AsTable(const Simulation& s) {
  std::string out = fmt::format(
      "{}: {} layers x {} experts, top-{}, {} tokens\n\n  {:>6} {:>10}  {:<12} {:>8} {:>8} "
      "{:>12}\n",
      s.model.empty() ? "trace" : s.model, s.layers, s.experts, s.experts_used, s.steps, "slots",
      "per layer", "policy", "hit", "answer", "read/token");
  uint32_t last = 0;
  for (const SimulationRow& row : s.rows) {
    if (last != 0 && row.slots != last) out += "\n";
    last = row.slots;
    out += fmt::format("  {:>6} {:>10.1f}  {:<12} {:>8.3f} {:>8.3f} {:>12}\n", row.slots,
                       row.slots_per_layer, row.policy, row.hit_rate, row.decode_hit_rate,
                       FormatBytes(static_cast<uint64_t>(row.bytes_per_token)));
  }
  return out;
}

}  // namespace

Status CmdSimulate(const VerbArgs& words) {
  Args args("simulate",
            "Replays a recorded expert routing over caches of several sizes and policies.");
  std::string trace;
  std::optional<std::string> slots_text, policy_text;
  bool json = false;
  args.Positional("TRACE", &trace, true, "a routing trace (.csv), as run --route-trace writes it");
  args.Text("--slots", &slots_text, "cache sizes in experts, e.g. 300,600,900");
  args.Text("--policy", &policy_text, "policies, e.g. lru,dual-decay,belady (default: all)");
  args.Flag("--json", &json, "as JSON");
  SLUICE_TRY(args.Parse(words));
  if (args.help_requested()) return Out(args.Help());
  std::vector<uint32_t> slots;
  for (const std::string& part : SplitCommas(slots_text.value_or(""))) {
    const Result<int64_t> n = ParseInt(part, 1, 1 << 20);
    if (!n.ok())
      return Status(Code::kUsage, n.status().what(), "--slots " + part, n.status().hint());
    slots.push_back(static_cast<uint32_t>(*n));
  }
  SLUICE_ASSIGN(const Simulation s,
                SimulateTrace(trace, slots, SplitCommas(policy_text.value_or(""))));
  return Out(json ? Dump(AsJson(s)) + "\n" : AsTable(s));
}

}  // namespace sluice::cli
