// What a run did: the numbers behind --stats, --json and bench.
//
// Contract: plain values; names and units are the stable JSON contract (DESIGN section 5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sluice/plan.h"

namespace sluice {

struct Stats {
  double load_s = 0, ttft_s = 0;  // open; open + prompt until the first token's logits
  double prefill_s = 0, decode_s = 0;
  double prefill_tok_s = 0, decode_tok_s = 0;
  // Tokens that passed through the model: of prompts, and decoded ones. recomputed_tokens did so a
  // second time (a hybrid's timeline that was cut, from its newest snapshot on).
  uint64_t prompt_tokens = 0, decode_tokens = 0, recomputed_tokens = 0;
  uint64_t reused_tokens = 0;  // of prompts, known already: in memory or found on flash; not run
  double hit_rate = 0;         // experts, decode; 1 where nothing streams
  double bytes_per_token = 0;  // read from disk per decoded token
  uint64_t bytes_read = 0;     // since open, load included
  uint64_t prefill_bytes_read = 0, decode_bytes_read = 0;
  double stall_ms_per_token = 0, compute_ms_per_token = 0;
  // KV pages that are away now; spill file traffic since the last reset (not part of bytes_read).
  uint64_t kv_spilled_bytes = 0, kv_spill_bytes_written = 0, kv_spill_bytes_read = 0;
  double kv_spill_bytes_per_token = 0;  // read per decoded token
  uint64_t peak_rss_bytes = 0, budget_bytes = 0;
  double bound_tok_s = 0, bound_fraction = 0;  // reading and computing overlap for nothing
  // The same, but they slow each other down as measured here (after Engine::MeasureMachine).
  double shared_bound_tok_s = 0, shared_bound_fraction = 0;
  // Int8 operations of the prompts (Plan::int8_ops_per_token), second planes included, in 1e9 per
  // second of prefill_s; the best of this machine and instruction set on registers, all threads
  // (after Engine::MeasureMachine), and the quotient.
  double prefill_int8_gops = 0, int8_peak_gops = 0, prefill_int8_fraction = 0;
  uint32_t act_planes = 0;  // int8 rows per row of activations, 0: floats
  std::string logits_hash;  // xxh3-64 of every logits row computed, hex
  std::string isa, io, kv;
  int threads = 0;  // that compute now: fewer than asked for where the process may use fewer cores
  double lookahead_accuracy = 0;
  uint64_t lookahead_useful_bytes = 0, lookahead_wasted_bytes = 0;
  std::vector<PlanLine> pinned, streamed;  // what was pinned and what streamed
  std::vector<std::string> notices;        // every fallback and lossy option, said out loud
};

}  // namespace sluice
