// Forward: the vocabulary of the architecture pages, one tile at a time.
//
// Contract: a thin view over Exec, the config and the buffers; owner-thread only; allocates
// nothing. Each method is one line of a model's paper. Shapes: [T] = tile rows; heads are
// contiguous in a row.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "model/config.h"
#include "model/exec.h"
#include "model/kv_layout.h"
#include "model/tile.h"
#include "model/weights.h"

namespace sluice {

// A projection by name of its buffers: out [T][w.rows].
struct To {
  const Matrix& w;
  float* out;
  const float* bias = nullptr;
};

class Forward {
 public:
  Forward(const ModelConfig& config, const KvLayout& kv, const StateLayout& state, Exec* exec,
          Activations* buffers, MoeRows* moe)
      : c(config), a(*buffers), kv_(kv), state_(state), exec_(*exec), moe_(moe) {}

  const ModelConfig& c;
  Activations& a;
  Tile t;

  Exec& exec() { return exec_; }
  MoeRows* moe() { return moe_; }
  const StateLayout& state_layout() const { return state_; }

  // out[T][n] = rmsnorm(x[T][n]) * w; x and out may be the same. eps 0: the config's.
  void Norm(const float* x, const float* w, float* out, uint32_t n, float eps = 0);
  void Norm(const float* x, const float* w, float* out) { Norm(x, w, out, c.hidden); }
  // Per head, in place: x [T][heads][dim].
  void HeadNorm(float* x, uint32_t heads, uint32_t dim, const float* w);
  // x [T][in] times each matrix, all in one region.
  void Project(const float* x, std::initializer_list<To> to);
  // Rotates the first dims of every head in place, x [T][heads][stride]; the layer's table.
  void Rope(float* x, uint32_t heads, uint32_t stride, uint32_t layer);
  void Clamp(float* x, uint32_t n, float limit);
  // x += scale * y
  void AddResidual(const float* y, float scale = 1);
  // Stores a.k, a.v of this layer, then mixes a.q over all visible positions into a.mixed [T][heads
  // * head_dim_v].
  void Attend(const LayerWeights& w);
  // The dense MLP of the layer on h into a.tmp, with silu or gelu.
  enum class Activation { kSilu, kGeluTanh };
  void Mlp(const float* h, const LayerWeights& w, const float* gate_bias, const float* up_bias,
           const float* down_bias, Activation activation, float* out);

  void StoreKv(uint32_t layer, const float* k, const float* v, uint32_t heads);
  // q [T][heads][dim_k] with row stride q_stride -> out [T][heads][dim_v] with row stride
  // out_stride.
  void AttendHeads(uint32_t layer, const float* q, uint64_t q_stride, uint32_t dim_k,
                   uint32_t heads, uint32_t kv_heads, const float* sinks, float* out,
                   uint64_t out_stride, uint32_t dim_v);

 private:
  const KvLayout& kv_;
  const StateLayout& state_;
  Exec& exec_;
  MoeRows* moe_;
};

// Shared mixers (their own papers): the gated delta rule and multi-head latent attention. h ->
// a.tmp.
void DeltaNetMix(Forward& f, const LayerWeights& w);
void LatentAttention(Forward& f, const LayerWeights& w);

// Mixture of experts, the part before the experts: routes h, keeps h for the expert store, and
// starts the output with the shared expert (docs: experts are added in ascending id order).
void Route(Forward& f, const LayerWeights& w);

}  // namespace sluice
