#include "model/kv_layout.h"

#include <algorithm>

namespace sluice {
namespace {

// A recurrent state cannot be cut without a snapshot, and neither can a window that has passed: a
// model with both would need them at the same places. No such model is known.
bool HasSlidingPart(const ModelConfig& config) {
  const auto has = [&](LayerKind kind) {
    return std::find(config.kinds.begin(), config.kinds.end(), kind) != config.kinds.end();
  };
  return config.sliding_window > 0 && has(LayerKind::kSliding) && has(LayerKind::kFull) &&
         !has(LayerKind::kDeltaNet);
}

void LayOut(const ModelConfig& config, KvFormat format, uint32_t kv_heads, KvLayout::Layer* layer) {
  if (config.mla.kv_rank > 0) {
    layer->k_row = KvRowBytes(format, /*is_value=*/false, config.mla.kv_rank + config.mla.rope_dim);
    layer->v_row = layer->k_row;
    layer->v_offset = 0;
    layer->head_stride = kKvPageTokens * layer->k_row;
    layer->bytes = layer->head_stride;
    return;
  }
  layer->k_row = KvRowBytes(format, false, config.head_dim);
  layer->v_row = KvRowBytes(format, true, config.head_dim_v);
  layer->v_offset = kKvPageTokens * layer->k_row;
  layer->head_stride = kKvPageTokens * (layer->k_row + layer->v_row);
  layer->bytes = layer->head_stride * kv_heads;
}

}  // namespace

KvLayout MakeKvLayout(const ModelConfig& config, KvFormat format) {
  KvLayout layout;
  layout.format = format;
  layout.layers.resize(config.layers);
  const bool sliding_part = HasSlidingPart(config);
  for (uint32_t i = 0; i < config.layers; ++i) {
    if (config.kinds[i] == LayerKind::kDeltaNet) continue;
    KvLayout::Layer& layer = layout.layers[i];
    layer.present = true;
    layer.sliding = sliding_part && config.kinds[i] == LayerKind::kSliding;
    LayOut(config, format, config.kv_heads[i], &layer);
    uint64_t& end = layer.sliding ? layout.sliding_bytes : layout.page_bytes;
    layer.offset = end;
    end += layer.bytes;
  }
  return layout;
}

StateLayout MakeStateLayout(const ModelConfig& config) {
  StateLayout layout;
  layout.layers.resize(config.layers);
  const DeltaNetConfig& d = config.delta;
  const uint64_t channels = 2ull * d.key_heads * d.key_dim + uint64_t{d.value_heads} * d.value_dim;
  for (uint32_t i = 0; i < config.layers; ++i) {
    if (config.kinds[i] != LayerKind::kDeltaNet) continue;
    StateLayout::Layer& layer = layout.layers[i];
    layer.present = true;
    layer.s_offset = layout.floats;
    layout.floats += uint64_t{d.value_heads} * d.key_dim * d.value_dim;
    layer.conv_offset = layout.floats;
    layout.floats += channels * (d.conv_kernel - 1);
  }
  return layout;
}

}  // namespace sluice
