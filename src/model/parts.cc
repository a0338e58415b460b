#include "model/parts.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr uint64_t kShareOfRest = 3;    // a part: 1/3 of a thread's share of what is left
constexpr uint64_t kShareOfWhole = 12;  // but no less than 1/12 of its share of the whole

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

PartList::PartList(std::span<const PartJob> jobs, int threads, uint32_t grain, uint64_t bytes_min) {
  const uint64_t n = static_cast<uint64_t>(std::max(threads, 1));
  uint64_t total = 0;
  for (const PartJob& job : jobs) total += job.rows * job.row_bytes;
  const uint64_t lightest = std::max(
      {total / std::min<uint64_t>(kShareOfWhole * n, kLightestMax), bytes_min, uint64_t{1}});
  uint64_t left = total;
  for (uint32_t i = 0; i < jobs.size() && i < kJobsMax; ++i)
    Cut(i, jobs[i], std::max(grain, 1u), kShareOfRest * n, lightest, &left);
}

void PartList::Cut(uint32_t job, const PartJob& rows, uint32_t grain, uint64_t share_divisor,
                   uint64_t lightest, uint64_t* left) {
  const uint64_t row_bytes = std::max<uint64_t>(1, rows.row_bytes);
  const auto least = RoundUp((lightest + row_bytes - 1) / row_bytes, grain);
  for (uint32_t begin = 0; begin < rows.rows;) {
    const uint64_t wanted = RoundUp(*left / share_divisor / row_bytes, grain);
    uint64_t take = std::min<uint64_t>(std::max(wanted, least), rows.rows - begin);
    // A rest of less than half a part goes along.
    if (rows.rows - begin - take < least / 2) take = rows.rows - begin;
    const auto end = static_cast<uint32_t>(begin + take);
    parts_[count_++] = {job, begin, end};
    *left -= std::min(*left, take * rows.row_bytes);
    begin = end;
  }
}

uint32_t HeadPieces(uint32_t parts, uint32_t group, int threads, uint64_t products) {
  constexpr uint64_t kProductsMin = 1 << 18;  // some 10 us of one thread
  if (threads <= 1 || products < kProductsMin) return 1;
  const auto n = static_cast<uint64_t>(threads);
  // Rounds of one part per thread, in parts of whole KV heads; loading again must win a third.
  const auto rounds = [&](uint64_t pieces) {
    return static_cast<double>((parts * pieces + n - 1) / n) / static_cast<double>(pieces);
  };
  uint32_t best = 1;
  for (uint32_t pieces = 2; pieces <= group; ++pieces) {
    if (group % pieces == 0 && rounds(pieces) < 0.7 * rounds(best)) best = pieces;
  }
  return best;
}

}  // namespace sluice
