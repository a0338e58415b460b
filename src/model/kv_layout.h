// Where each layer's keys and values lie inside a KV page.
//
// Contract: plain data, computed once from the config. A page holds kKvPageTokens positions of
// every attention layer: layer by layer, KV head by KV head, first the K rows, then the V rows. MLA
// layers hold one row [latent | rope key] per token, its V being the latent prefix of the same row.
// DeltaNet layers hold nothing. Where some layers have a sliding window and others see everything,
// a page has two parts with memory of their own, so that the sliding part can be given up when the
// window has passed: the layers that see everything, and the sliding ones.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "model/config.h"

namespace sluice {

struct KvLayout {
  struct Layer {
    uint64_t offset = 0;       // of KV head 0 in the page, or in its sliding part
    uint64_t bytes = 0;        // of this layer in a page
    uint64_t head_stride = 0;  // bytes from one KV head to the next
    uint64_t v_offset = 0;     // of the V rows relative to the head
    uint64_t k_row = 0, v_row = 0;
    bool present = false;
    bool sliding = false;  // lies in the sliding part
  };
  KvFormat format = KvFormat::kF16;
  std::vector<Layer> layers;
  uint64_t page_bytes = 0;     // without the sliding part
  uint64_t sliding_bytes = 0;  // of the sliding part of a page; 0: none

  uint64_t bytes_per_token() const { return page_bytes / kKvPageTokens; }
  uint64_t sliding_bytes_per_token() const { return sliding_bytes / kKvPageTokens; }
  uint64_t whole_page_bytes() const { return page_bytes + sliding_bytes; }
};

KvLayout MakeKvLayout(const ModelConfig& config, KvFormat format);

// Recurrent state of one sequence, in floats: per DeltaNet layer S [value heads][kd][vd] and the
// conv inputs [channels][kernel - 1].
struct StateLayout {
  struct Layer {
    uint64_t s_offset = 0, conv_offset = 0;  // floats
    bool present = false;
  };
  std::vector<Layer> layers;
  uint64_t floats = 0;
};

StateLayout MakeStateLayout(const ModelConfig& config);

}  // namespace sluice
