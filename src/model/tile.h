// Tile and Activations: every buffer of the forward pass, declared once with its shape.
//
// Contract: a chunk is the run of prompt tokens that passes a layer before the next layer starts; a
// tile is the part of a chunk that is computed at once. Buffers are placed in one arena at open and
// never grow. T is the tile size, C the chunk size, rows come first.
#pragma once

#include <cstdint>

#include "memory/arena.h"
#include "model/config.h"
#include "model/exec.h"
#include "model/kv_layout.h"

namespace sluice {

// What a row needs to know of its sequence: pages for attention, floats for the recurrence.
struct SequenceView {
  uint8_t* const* pages = nullptr;    // page table, one entry per kKvPageTokens positions
  float* state = nullptr;             // StateLayout floats; null when the model has none
  uint8_t* const* sliding = nullptr;  // the same for sliding parts, KvLayout::Layer::sliding

  uint8_t* const* PagesOf(const KvLayout::Layer& layer) const {
    return layer.sliding ? sliding : pages;
  }
};

// Widths of the scratch rows, in elements.
struct Widths {
  uint32_t hidden = 0, q = 0, k = 0, v = 0, mixed = 0 /* mixer output before its projection */;
  uint32_t ff = 0 /* widest MLP */, router = 0, conv = 0, aux = 0 /* gates, latents */,
           act_cols = 0 /* widest other input */;
};
Widths WidthsOf(const ModelConfig& config);

struct Activations {
  float* h = nullptr;       // [T][hidden] normed input
  float* q = nullptr;       // [T][q]
  float* k = nullptr;       // [T][k]
  float* v = nullptr;       // [T][v]
  float* mixed = nullptr;   // [T][mixed]
  float* tmp = nullptr;     // [T][hidden]
  float* gate = nullptr;    // [T][ff]
  float* up = nullptr;      // [T][ff]
  float* router = nullptr;  // [T][experts]
  float* conv = nullptr;    // [T][conv] DeltaNet channels after the convolution
  float* aux = nullptr;     // [T][aux]
  ActBuffer act;            // [T][act_cols] quantised input of the projection at hand
  ActBuffer gated_act;      // [T][ff] the gated unit, quantised while `act` is still read

  static uint64_t Bytes(const Widths& w, uint32_t tile, uint32_t formats);
  static Activations Place(Arena* arena, const Widths& w, uint32_t tile, uint32_t formats);
};

// What a mixture-of-experts layer hands from the forward page to the expert store, for a whole
// chunk.
struct MoeRows {
  float* in = nullptr;         // [C][hidden] normed input; only kept with float activations
  ActBuffer in_act;            // [C][hidden] quantised
  float* out = nullptr;        // [C][hidden] sum of shared expert and routed experts
  uint16_t* expert = nullptr;  // [C][k] chosen experts, ascending id
  float* weight = nullptr;     // [C][k]
};

struct Tile {
  uint32_t rows = 0;
  uint32_t first_row = 0;                    // of the tile in the chunk (index into MoeRows)
  const uint32_t* pos = nullptr;             // [rows]
  const SequenceView* const* seq = nullptr;  // [rows]
  const float* cos = nullptr;                // [rows][dims/2]
  const float* sin = nullptr;
  const float* cos_sliding = nullptr;  // the second table, where sliding layers have their own
  const float* sin_sliding = nullptr;
  float* x = nullptr;  // [rows][hidden] residual stream
};

}  // namespace sluice
