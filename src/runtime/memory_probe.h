// How fast this machine reads memory with a number of threads: one side of every predicted rate.
//
// Contract: allocates `bytes` for its own duration, takes a few tens of milliseconds; returns bytes
// per second (the best of several passes), 0 when it could not be measured.
#pragma once

#include <cstdint>

namespace sluice {

double MeasureMemoryBandwidth(uint64_t bytes, int threads);

}  // namespace sluice
