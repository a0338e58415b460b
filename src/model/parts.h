// How a parallel region is cut into parts that threads claim one by one.
//
// Contract: pure and deterministic; parts cover the rows of every job once, in order, no part
// spans two jobs. Parts shrink: each takes a third of one thread's share of what is left, down to
// a twelfth of its share of everything, so that the first ones are long (kernels like long ranges)
// and the thread that ends last, on a slow core or beside a busy neighbour, holds little. Played
// through for 2 to 8 threads of which any number are 1.5 to 4 times slower, the region takes 1.06
// of the ideal time on average and 1.21 at worst; the four equal parts per thread of before took
// 1.17 and 1.75 (docs/kernels.md, Threads).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace sluice {

struct PartJob {
  uint32_t rows = 0;
  uint64_t row_bytes = 0;  // or any other weight of a row
};

struct Part {
  uint32_t job = 0, begin = 0, end = 0;  // rows
};

class PartList {
 public:
  static constexpr uint32_t kJobsMax = 64;

  // Parts are multiples of `grain` rows (but for the end of a job) and, where a job has as many,
  // weigh at least bytes_min. At most kJobsMax jobs.
  PartList(std::span<const PartJob> jobs, int threads, uint32_t grain, uint64_t bytes_min);

  uint32_t size() const { return count_; }
  const Part& operator[](uint32_t i) const { return parts_[i]; }

 private:
  // No part but the last of a job is lighter than this fraction of the whole.
  static constexpr uint32_t kLightestMax = 512;
  void Cut(uint32_t job, const PartJob& rows, uint32_t grain, uint64_t share_divisor,
           uint64_t lightest, uint64_t* left);

  uint32_t count_ = 0;
  std::array<Part, kLightestMax + kJobsMax> parts_;
};

// Attention is a part per token and KV head, because its query heads share what is loaded. Where
// that leaves threads idle (one KV head and one token), the query heads of each are cut into so
// many equal pieces, each of which loads it again: a divisor of `group`, 1 where it does not pay.
// products: of the whole region; few are not worth waking a thread for.
uint32_t HeadPieces(uint32_t parts, uint32_t group, int threads, uint64_t products);

}  // namespace sluice
