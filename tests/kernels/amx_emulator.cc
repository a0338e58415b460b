#include <cstdio>
#include <cstdlib>
#include <cstring>

// The declarations only: the header's macros would hide the compiler's own.
#include "tests/kernels/amx_emulator.h"

namespace sluice::testing {
namespace {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

struct Tile {
  uint32_t rows = 0, row_bytes = 0;
  uint8_t bytes[kRows][kRowBytes] = {};
};

struct TileFile {
  bool configured = false;
  Tile tiles[kTiles];
};

thread_local TileFile file;
thread_local uint64_t dots = 0;

[[noreturn]] void Fault(const char* what) {
  std::fprintf(stderr, "amx emulator: %s\n", what);
  std::abort();
}

Tile& At(int tile) {
  if (!file.configured) Fault("no configuration is loaded");
  if (tile < 0 || tile >= kTiles) Fault("no such tile");
  if (file.tiles[tile].rows == 0) Fault("a tile without rows is used");
  return file.tiles[tile];
}

int32_t Byte(uint8_t bits, bool is_signed) { return is_signed ? int8_t(bits) : bits; }

}  // namespace

void AmxLoadConfig(const void* config) {
  uint8_t bytes[64];
  std::memcpy(bytes, config, 64);
  if (bytes[0] != 1) Fault("the palette is not 1");
  for (int i = 1; i < 16; ++i) {
    if (bytes[i] != 0) Fault("start_row or a reserved byte is set");
  }
  file = {};
  for (int i = 0; i < 16; ++i) {
    uint16_t row_bytes;
    std::memcpy(&row_bytes, bytes + 16 + 2 * i, 2);
    const uint32_t rows = bytes[48 + i];
    if (i >= kTiles ? row_bytes != 0 || rows != 0 : row_bytes > kRowBytes || rows > kRows) {
      Fault("a tile is too large");
    }
    if ((row_bytes == 0) != (rows == 0)) Fault("a tile has rows without bytes or the reverse");
    if (i < kTiles) file.tiles[i].rows = rows, file.tiles[i].row_bytes = row_bytes;
  }
  file.configured = true;
}

void AmxRelease() { file = {}; }

uint64_t AmxDots() { return dots; }

bool AmxIsConfigured() { return file.configured; }

void AmxZero(int tile) { std::memset(At(tile).bytes, 0, sizeof(Tile::bytes)); }

void AmxLoad(int tile, const void* base, int64_t stride) {
  Tile& t = At(tile);
  std::memset(t.bytes, 0, sizeof(t.bytes));
  for (uint32_t r = 0; r < t.rows; ++r) {
    std::memcpy(t.bytes[r], static_cast<const uint8_t*>(base) + int64_t(r) * stride, t.row_bytes);
  }
}

void AmxStore(int tile, void* base, int64_t stride) {
  const Tile& t = At(tile);
  for (uint32_t r = 0; r < t.rows; ++r) {
    std::memcpy(static_cast<uint8_t*>(base) + int64_t(r) * stride, t.bytes[r], t.row_bytes);
  }
}

void AmxDot(int tile, int a, int b, bool a_signed, bool b_signed) {
  ++dots;
  Tile& c = At(tile);
  const Tile &x = At(a), &w = At(b);
  if (tile == a || tile == b || a == b) Fault("a tile is named twice");
  if (c.rows != x.rows || c.row_bytes != w.row_bytes || x.row_bytes != 4 * w.rows) {
    Fault("the tiles' shapes do not fit together");
  }
  if (c.row_bytes % 4 != 0 || x.row_bytes % 4 != 0) Fault("a tile's rows are not whole words");
  for (uint32_t m = 0; m < c.rows; ++m) {
    for (uint32_t n = 0; n < c.row_bytes / 4; ++n) {
      uint32_t sum;
      std::memcpy(&sum, c.bytes[m] + 4 * n, 4);
      for (uint32_t k = 0; k < w.rows; ++k) {
        for (uint32_t i = 0; i < 4; ++i) {
          sum += uint32_t(Byte(x.bytes[m][4 * k + i], a_signed) *
                          Byte(w.bytes[k][4 * n + i], b_signed));
        }
      }
      std::memcpy(c.bytes[m] + 4 * n, &sum, 4);
    }
  }
}

}  // namespace sluice::testing
