#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "cli/console.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

double Finite(double value) { return std::isfinite(value) ? value : 0; }

std::string Rate(double tokens_per_s) {
  if (tokens_per_s <= 0) return "-";
  return fmt::format("{:.{}f} tok/s", tokens_per_s, tokens_per_s < 10 ? 2 : 1);
}

std::string PerSecond(double bytes) { return FormatBytes(static_cast<uint64_t>(bytes)) + "/s"; }

// "label      value   detail" with the values right-aligned: the columns of every table here.
struct Row {
  std::string label, value, detail;
};

std::string Align(const std::vector<Row>& rows) {
  size_t label = 0, value = 0;
  for (const Row& row : rows) {
    label = std::max(label, row.label.size());
    value = std::max(value, row.value.size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line = fmt::format("  {:<{}}  {:>{}}", row.label, label, row.value, value);
    if (!row.detail.empty()) line += "  " + row.detail;
    out += line + "\n";
  }
  return out;
}

std::vector<Row> MemoryRows(const Plan& plan) {
  std::vector<Row> rows;
  for (const PlanLine& line : plan.lines) {
    rows.push_back({line.tag, FormatBytes(line.bytes), line.detail});
  }
  rows.push_back({"total", FormatBytes(plan.total_bytes),
                  fmt::format("of the budget {}{}", FormatBytes(plan.budget_bytes),
                              plan.budget_auto ? " (auto: " + plan.budget_reason + ")" : "")});
  return rows;
}

std::string LayersText(const Plan& plan) {
  std::string text =
      fmt::format("{} pinned, {} streamed", plan.layers_pinned, plan.layers_streamed);
  if (!plan.head_pinned) text += ", head streamed";
  if (plan.experts_total > 0) {
    text += fmt::format("; {} of {} experts have a slot, {} used per token", plan.expert_slots,
                        plan.experts_total, plan.experts_per_token);
  }
  return text;
}

ordered_json LinesJson(const std::vector<PlanLine>& lines) {
  ordered_json out = ordered_json::array();
  for (const PlanLine& line : lines) {
    out.push_back({{"tag", line.tag}, {"bytes", line.bytes}, {"detail", line.detail}});
  }
  return out;
}

ordered_json KvFormatsJson(const std::vector<PlanKvFormat>& formats) {
  ordered_json out = ordered_json::array();
  for (const PlanKvFormat& kv : formats) {
    out.push_back({{"name", kv.name},
                   {"bytes_per_token", kv.bytes_per_token},
                   {"sliding_bytes_per_token", kv.sliding_bytes_per_token},
                   {"bytes", kv.bytes}});
  }
  return out;
}

std::vector<Row> SpeedRows(const Stats& s) {
  std::vector<Row> rows;
  rows.push_back({"load", FormatDuration(s.load_s), ""});
  rows.push_back({"first token", FormatDuration(s.ttft_s), "after the start, load included"});
  std::string prefill = fmt::format("{} prompt tokens processed", s.prompt_tokens);
  if (s.reused_tokens > 0) prefill += fmt::format(", {} were known already", s.reused_tokens);
  if (s.recomputed_tokens > 0) prefill += fmt::format(", {} processed again", s.recomputed_tokens);
  rows.push_back({"prefill", Rate(s.prefill_tok_s), prefill});
  std::string bound;
  if (s.bound_tok_s > 0) {
    bound = fmt::format(", {:.0f} % of the bound {}", s.bound_fraction * 100, Rate(s.bound_tok_s));
  }
  rows.push_back(
      {"decode", Rate(s.decode_tok_s), fmt::format("{} tokens{}", s.decode_tokens, bound)});
  rows.push_back({"compute", fmt::format("{:.2f} ms", s.compute_ms_per_token), "per token"});
  rows.push_back(
      {"stall", fmt::format("{:.2f} ms", s.stall_ms_per_token), "per token, waiting for the disk"});
  return rows;
}

std::vector<Row> TrafficRows(const Stats& s) {
  std::vector<Row> rows;
  rows.push_back(
      {"read", FormatBytes(s.bytes_read),
       fmt::format("since the start: prefill {}, decode {}", FormatBytes(s.prefill_bytes_read),
                   FormatBytes(s.decode_bytes_read))});
  rows.push_back({"read per token", FormatBytes(static_cast<uint64_t>(s.bytes_per_token)),
                  s.hit_rate > 0 && s.hit_rate < 1
                      ? fmt::format("expert hit rate {:.1f} %", s.hit_rate * 100)
                      : ""});
  if (s.kv_spill_bytes_written > 0 || s.kv_spilled_bytes > 0) {
    rows.push_back(
        {"kv spilled", FormatBytes(s.kv_spilled_bytes),
         fmt::format("on the disk now; read {} per token, {} in all, written {}",
                     FormatBytes(static_cast<uint64_t>(s.kv_spill_bytes_per_token)),
                     FormatBytes(s.kv_spill_bytes_read), FormatBytes(s.kv_spill_bytes_written))});
  }
  rows.push_back({"peak memory", FormatBytes(s.peak_rss_bytes),
                  fmt::format("of the budget {}", FormatBytes(s.budget_bytes))});
  return rows;
}

// Layers with a sliding window take their part for the last tokens only.
std::string KvFormatText(const Plan& plan, const PlanKvFormat& kv) {
  std::string text = FormatBytes(kv.bytes_per_token) + " per token";
  if (kv.sliding_bytes_per_token == 0) return text;
  return text + fmt::format(", {} more for the last {}", FormatBytes(kv.sliding_bytes_per_token),
                            plan.kv_sliding_tokens);
}

std::string Names(const char* title, const std::vector<PlanLine>& lines) {
  std::string out;
  for (const PlanLine& line : lines) {
    out += fmt::format("{}{} ({}{})", out.empty() ? "" : "; ", line.tag, FormatBytes(line.bytes),
                       line.detail.empty() ? "" : ", " + line.detail);
  }
  return out.empty() ? "" : fmt::format("  {}: {}\n", title, out);
}

}  // namespace

std::string PlanTable(const Plan& plan) {
  std::string out = fmt::format("{} ({})\n\nmemory\n", plan.model, plan.arch);
  out += Align(MemoryRows(plan));
  std::vector<Row> rows;
  rows.push_back({"floor", FormatBytes(plan.floor_bytes), "smallest budget with these options"});
  rows.push_back(
      {"all resident", FormatBytes(plan.resident_bytes), "from this budget on nothing streams"});
  rows.push_back(
      {"context", fmt::format("{} tokens", plan.context),
       fmt::format("KV {}, {} per token", plan.kv_format, FormatBytes(plan.kv_bytes_per_token))});
  for (const PlanKvFormat& kv : plan.kv_formats)
    rows.push_back({"  --kv " + kv.name, FormatBytes(kv.bytes), KvFormatText(plan, kv)});
  rows.push_back({"prefill chunk", fmt::format("{} tokens", plan.chunk), ""});
  rows.push_back({"layers", fmt::format("{}", plan.layers), LayersText(plan)});
  rows.push_back({"active per token", FormatBytes(plan.active_bytes_per_token),
                  "weights a token passes through"});
  rows.push_back({"read per token", FormatBytes(plan.streamed_bytes_per_token), "from the disk"});
  out += "\nshape\n" + Align(rows);
  out += "\nprediction\n";
  if (plan.bound_tok_s <= 0) {
    return out + "  no rate: the disk and the memory were not measured\n";
  }
  const std::string disk = plan.disk_bytes_per_s > 0 ? PerSecond(plan.disk_bytes_per_s) : "-";
  out += Align({{"disk", disk, "measured"},
                {"memory", PerSecond(plan.memory_bytes_per_s), "measured"},
                {"at most", Rate(plan.bound_tok_s), "if reading and computing overlap fully"}});
  return out;
}

ordered_json PlanJson(const Plan& p) {
  return {{"model", p.model},
          {"arch", p.arch},
          {"budget_bytes", p.budget_bytes},
          {"budget_auto", p.budget_auto},
          {"budget_reason", p.budget_reason},
          {"floor_bytes", p.floor_bytes},
          {"resident_bytes", p.resident_bytes},
          {"total_bytes", p.total_bytes},
          {"lines", LinesJson(p.lines)},
          {"context", p.context},
          {"chunk", p.chunk},
          {"kv_format", p.kv_format},
          {"kv_bytes_per_token", p.kv_bytes_per_token},
          {"kv_formats", KvFormatsJson(p.kv_formats)},
          {"kv_bytes", p.kv_bytes},
          {"kv_sliding_bytes", p.kv_sliding_bytes},
          {"kv_sliding_tokens", p.kv_sliding_tokens},
          {"kv_resident_tokens", p.kv_resident_tokens},
          {"kv_spill_bytes", p.kv_spill_bytes},
          {"kv_window_bytes", p.kv_window_bytes},
          {"spill_dir", p.spill_dir},
          {"state_bytes", p.state_bytes},
          {"layers", p.layers},
          {"layers_pinned", p.layers_pinned},
          {"layers_streamed", p.layers_streamed},
          {"head_pinned", p.head_pinned},
          {"read_ahead", p.read_ahead},
          {"experts_total", p.experts_total},
          {"expert_slots", p.expert_slots},
          {"experts_per_token", p.experts_per_token},
          {"expert_bytes", p.expert_bytes},
          {"pinned_bytes", p.pinned_bytes},
          {"streamed_bytes_per_token", p.streamed_bytes_per_token},
          {"active_bytes_per_token", p.active_bytes_per_token},
          {"act_planes", p.act_planes},
          {"int8_ops_per_token", p.int8_ops_per_token},
          {"int8_ops_per_logits", p.int8_ops_per_logits},
          {"disk_bytes_per_s", Finite(p.disk_bytes_per_s)},
          {"memory_bytes_per_s", Finite(p.memory_bytes_per_s)},
          {"hit_rate", Finite(p.hit_rate)},
          {"bound_tok_s", Finite(p.bound_tok_s)}};
}

std::string StatsTable(const Plan& plan, const Stats& stats) {
  std::string out =
      fmt::format("\n{} ({}, {}, KV {})\n\nspeed\n", plan.model, stats.isa, stats.io, stats.kv);
  out += Align(SpeedRows(stats));
  out += "\ndisk and memory\n" + Align(TrafficRows(stats));
  out += "\nplan\n" + Align(MemoryRows(plan));
  out += Names("pinned", stats.pinned) + Names("streamed", stats.streamed);
  for (const std::string& notice : stats.notices) out += "  note: " + notice + "\n";
  return out;
}

ordered_json StatsJson(const Stats& s) {
  return {{"load_s", Finite(s.load_s)},
          {"ttft_s", Finite(s.ttft_s)},
          {"prefill_tok_s", Finite(s.prefill_tok_s)},
          {"decode_tok_s", Finite(s.decode_tok_s)},
          {"prompt_tokens", s.prompt_tokens},
          {"decode_tokens", s.decode_tokens},
          {"hit_rate", Finite(s.hit_rate)},
          {"bytes_per_token", Finite(s.bytes_per_token)},
          {"stall_ms_per_token", Finite(s.stall_ms_per_token)},
          {"compute_ms_per_token", Finite(s.compute_ms_per_token)},
          {"peak_rss_bytes", s.peak_rss_bytes},
          {"budget_bytes", s.budget_bytes},
          {"bound_tok_s", Finite(s.bound_tok_s)},
          {"bound_fraction", Finite(s.bound_fraction)},
          {"shared_bound_tok_s", Finite(s.shared_bound_tok_s)},
          {"shared_bound_fraction", Finite(s.shared_bound_fraction)},
          {"prefill_int8_gops", Finite(s.prefill_int8_gops)},
          {"int8_peak_gops", Finite(s.int8_peak_gops)},
          {"prefill_int8_fraction", Finite(s.prefill_int8_fraction)},
          {"act_planes", s.act_planes},
          {"logits_hash", s.logits_hash},
          {"isa", s.isa},
          {"threads", s.threads},
          {"io", s.io},
          {"kv", s.kv},
          {"prefill_s", Finite(s.prefill_s)},
          {"decode_s", Finite(s.decode_s)},
          {"reused_tokens", s.reused_tokens},
          {"recomputed_tokens", s.recomputed_tokens},
          {"bytes_read", s.bytes_read},
          {"prefill_bytes_read", s.prefill_bytes_read},
          {"decode_bytes_read", s.decode_bytes_read},
          {"kv_spilled_bytes", s.kv_spilled_bytes},
          {"kv_spill_bytes_written", s.kv_spill_bytes_written},
          {"kv_spill_bytes_read", s.kv_spill_bytes_read},
          {"kv_spill_bytes_per_token", Finite(s.kv_spill_bytes_per_token)},
          {"lookahead_accuracy", Finite(s.lookahead_accuracy)},
          {"lookahead_useful_bytes", s.lookahead_useful_bytes},
          {"lookahead_wasted_bytes", s.lookahead_wasted_bytes},
          {"pinned", LinesJson(s.pinned)},
          {"streamed", LinesJson(s.streamed)},
          {"notices", s.notices}};
}

std::string Dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace sluice::cli
