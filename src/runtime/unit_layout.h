// Units: how the matrices of a block lie in memory when they are read straight from the file.
//
// Contract: pure. A unit is a set of matrices that come and go together (one layer, or a slab of
// the head). Matrices that are near each other in a file share one aligned read; each matrix's
// place in the buffer follows from its file offset, so bytes are never moved. All offsets and
// lengths of reads are multiples of `alignment`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model_map.h"
#include "model/weights.h"

namespace sluice {

struct UnitRead {
  uint32_t file = 0;
  uint64_t offset = 0, length = 0;  // aligned
  uint64_t buffer_offset = 0;
};

struct UnitLayout {
  std::vector<UnitRead> reads;          // each at most kUnitReadBytesMax, or a 1/64 of a huge unit
  std::vector<uint64_t> matrix_offset;  // in the buffer, one per matrix given
  uint64_t bytes = 0;                   // of the buffer
  uint64_t payload_bytes = 0;           // of the matrices alone
};

// Requests of 1 MiB keep the device busy with a few in flight and let demand reads slip between.
constexpr uint64_t kUnitReadBytesMax = 1 << 20;
// A gap this small is cheaper to read than to seek over.
constexpr uint64_t kUnitGapBytesMax = 32 << 10;

UnitLayout LayOutUnit(std::span<const MatrixSpec* const> matrices, uint64_t alignment);

Matrix ViewOf(const MatrixSpec& spec, const uint8_t* data);

}  // namespace sluice
