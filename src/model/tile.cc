#include "model/tile.h"

#include <algorithm>

namespace sluice {

Widths WidthsOf(const ModelConfig& c) {
  Widths w;
  w.hidden = c.hidden;
  for (uint32_t i = 0; i < c.layers; ++i) {
    if (c.kinds[i] == LayerKind::kDeltaNet) continue;
    // Gated attention projects q and gate together; twice the width is harmless elsewhere.
    const bool gated =
        c.arch == Arch::kQwen3Next || c.arch == Arch::kQwen35Moe || c.arch == Arch::kQwen35;
    w.q = std::max(w.q, c.heads[i] * c.head_dim * (gated ? 2 : 1));
    w.k = std::max(w.k, c.kv_heads[i] * c.head_dim);
    w.v = std::max(w.v, c.kv_heads[i] * c.head_dim_v);
    w.mixed = std::max(w.mixed, c.heads[i] * c.head_dim_v);
    if (gated) w.aux = std::max(w.aux, c.heads[i] * c.head_dim);
  }
  if (c.mla.kv_rank > 0) {
    const uint32_t heads = *std::max_element(c.heads.begin(), c.heads.end());
    w.q = std::max(w.q, heads * (c.mla.nope_dim + c.mla.rope_dim));
    w.k = std::max(w.k, c.mla.kv_rank + c.mla.rope_dim);
    w.mixed = std::max(w.mixed, heads * c.mla.value_dim);
    // latent queries [H][rank + rope], latent outputs [H][rank], the low-rank query
    w.aux = std::max(w.aux, heads * (2 * c.mla.kv_rank + c.mla.rope_dim) + c.mla.q_rank);
  }
  if (c.delta.value_heads > 0) {
    const uint32_t keys = c.delta.key_heads * c.delta.key_dim,
                   values = c.delta.value_heads * c.delta.value_dim;
    w.conv = 2 * keys + values;
    w.q = std::max(w.q, 2 * keys + 2 * values);
    w.mixed = std::max(w.mixed, values);
    w.aux = std::max(w.aux, values + 2 * c.delta.value_heads);
  }
  w.ff = std::max(c.ff, c.moe.shared_ff);
  for (uint32_t ff : c.layer_ff) w.ff = std::max(w.ff, ff);
  w.router = c.moe.experts;
  w.act_cols = std::max({w.hidden, w.mixed, w.aux});
  // Latent attention quantises the inputs of all heads at once; its outputs are in aux.
  if (c.mla.kv_rank > 0) w.act_cols = std::max(w.act_cols, w.q);
  return w;
}

namespace {

// Every buffer with its width, in one place: Bytes and Place cannot disagree.
template <typename Visit>
void ForEachBuffer(const Widths& w, Activations* a, Visit visit) {
  visit(&a->h, w.hidden);
  visit(&a->q, w.q);
  visit(&a->k, w.k);
  visit(&a->v, w.v);
  visit(&a->mixed, w.mixed);
  visit(&a->tmp, w.hidden);
  visit(&a->gate, w.ff);
  visit(&a->up, w.ff);
  visit(&a->router, w.router);
  visit(&a->conv, w.conv);
  visit(&a->aux, w.aux);
}

}  // namespace

uint64_t Activations::Bytes(const Widths& w, uint32_t tile, uint32_t formats) {
  uint64_t bytes =
      ActBuffer::Bytes(tile, w.act_cols, formats) + ActBuffer::Bytes(tile, w.ff, formats);
  Activations none;
  ForEachBuffer(w, &none, [&](float**, uint32_t width) {
    bytes += AlignUp(uint64_t{tile} * width * 4, 64) + 64;
  });
  return bytes;
}

Activations Activations::Place(Arena* arena, const Widths& w, uint32_t tile, uint32_t formats) {
  Activations a;
  ForEachBuffer(w, &a, [&](float** p, uint32_t width) {
    *p = arena->TakeArray<float>(uint64_t{tile} * width);
  });
  a.act = ActBuffer::Place(arena, tile, w.act_cols, formats);
  a.gated_act = ActBuffer::Place(arena, tile, w.ff, formats);
  return a;
}

}  // namespace sluice
