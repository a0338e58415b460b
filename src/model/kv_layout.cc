#include "model/kv_layout.h"

namespace sluice {

KvLayout MakeKvLayout(const ModelConfig& config, KvFormat format) {
  KvLayout layout;
  layout.format = format;
  layout.layers.resize(config.layers);
  uint64_t offset = 0;
  for (uint32_t i = 0; i < config.layers; ++i) {
    if (config.kinds[i] == LayerKind::kDeltaNet) continue;
    KvLayout::Layer& layer = layout.layers[i];
    layer.present = true;
    layer.offset = offset;
    if (config.mla.kv_rank > 0) {
      layer.k_row =
          KvRowBytes(format, /*is_value=*/false, config.mla.kv_rank + config.mla.rope_dim);
      layer.v_row = layer.k_row;
      layer.v_offset = 0;
      layer.head_stride = kKvPageTokens * layer.k_row;
      offset += layer.head_stride;
      continue;
    }
    layer.k_row = KvRowBytes(format, false, config.head_dim);
    layer.v_row = KvRowBytes(format, true, config.head_dim_v);
    layer.v_offset = kKvPageTokens * layer.k_row;
    layer.head_stride = kKvPageTokens * (layer.k_row + layer.v_row);
    offset += layer.head_stride * config.kv_heads[i];
  }
  layout.page_bytes = offset;
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
