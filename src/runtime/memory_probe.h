// How fast this machine reads memory with a number of threads: one side of every predicted rate.
//
// Contract: reads memory for a tenth of a second, in eight streams as the products do (four reached
// half of what they get), and returns bytes per second (the best of several passes), 0 when it
// could not be measured. Give it far more than the caches hold. isa: a name of AvailableIsas().
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"

namespace sluice {

// With memory of its own, for its own duration.
double MeasureMemoryBandwidth(uint64_t bytes, int threads, std::string_view isa);
// With the caller's, which is only read.
double MeasureMemoryBandwidth(ByteSpan memory, ThreadPool* pool, std::string_view isa);
// The mean over the passes that begin while more() holds: what is left beside something else.
double MeanMemoryBandwidth(ByteSpan memory, ThreadPool* pool, std::string_view isa,
                           FunctionRef<bool()> more);

}  // namespace sluice
