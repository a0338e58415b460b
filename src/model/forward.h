// Forward: the vocabulary of the architecture pages, one tile at a time.
//
// Contract: a thin view over Exec, the config and the buffers; owner-thread only; allocates
// nothing. Each method is one line of a model's paper. Shapes: [T] = tile rows; heads are
// contiguous in a row.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "base/function_ref.h"
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

// What joins the residual stream: x += y, or x += rmsnorm(y) * norm; y [T][hidden].
struct Residual {
  const float* y = nullptr;
  const float* norm = nullptr;
};

// The matrices of a gated unit and of the product after it.
struct GluMatrices {
  const Matrix &gate, &up, &down;
  const float *gate_bias = nullptr, *up_bias = nullptr;
};

// What happens to heads on their way; each may be null.
struct HeadSteps {
  const float *q_norm = nullptr, *k_norm = nullptr;  // [head_dim], before the rotation
  const float* gate = nullptr;                       // [T][heads * head_dim_v]: sigmoid(gate) * out
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

  // h = rmsnorm(x) * w, after the residual has joined, in every form that the matrices of `roles`
  // multiply: int8 in a.act, floats in a.h.
  Operand Normed(const LayerWeights& w, VectorRole norm, std::initializer_list<MatrixRole> roles,
                 const Residual& residual = {});
  // The same for a set of formats and places of one's own: y [T][hidden] if floats are wanted.
  Operand Normed(const float* norm, uint32_t formats, float* y, const ActBuffer& act,
                 uint64_t first, const Residual& residual = {});
  // The formats that the layer's matrices of these roles multiply.
  uint32_t Formats(const LayerWeights& w, std::initializer_list<MatrixRole> roles) const;
  // out[T][n] = rmsnorm(x[T][n]) * w; x and out may be the same. eps 0: the config's.
  void Norm(const float* x, const float* w, float* out, uint32_t n, float eps = 0);

  // x times each matrix, all in one region.
  void Project(const Operand& x, std::initializer_list<To> to);
  // The same from floats x [T][in].
  void Project(const float* x, std::initializer_list<To> to);
  // x += scale * W in (+ bias), product and sum in one region.
  void AddProjected(const Operand& in, const Matrix& w, const float* bias = nullptr,
                    float scale = 1);
  // x += residual
  void AddResidual(const Residual& residual);
  void AddResidual(const float* y, float scale);
  // glu(gate h) * up h, in one region, in the form that `down` multiplies.
  Operand Gated(const Operand& h, const GluMatrices& m, Glu glu);
  // The dense MLP of the layer without its residual: what kDown multiplies.
  Operand Gated(const Operand& h, const LayerWeights& w, Glu glu);

  // Rotates the first dims of every head of row i in place, x [heads][stride]; the layer's table.
  void RopeRow(uint64_t i, float* x, uint32_t heads, uint32_t stride, uint32_t layer) const;
  void Clamp(float* x, uint32_t n, float limit);
  // Norms and rotates the heads of a.q and a.k, stores a.k and a.v of this layer, and mixes a.q
  // over all visible positions into a.mixed [T][heads * head_dim_v], in the form that kO
  // multiplies.
  Operand Attend(const LayerWeights& w, const HeadSteps& steps = {});

  // Stores row i of latent attention: k [kv_rank + rope_dim].
  void StoreLatent(uint64_t i, uint32_t layer, const float* k) const;
  // q [T][heads][dim_k] with row stride q_stride -> out [T][heads][dim_v] with row stride
  // out_stride; all heads share the rows of kv_heads. The query heads of a KV head are taken in
  // `pieces`, equal ones.
  struct Heads {
    uint32_t layer = 0, heads = 0, kv_heads = 0, dim_k = 0, dim_v = 0;
    const float* q = nullptr;
    uint64_t q_stride = 0;
    const float* sinks = nullptr;
    float* out = nullptr;
    uint64_t out_stride = 0;
    uint32_t pieces = 1;

    uint32_t parts() const { return kv_heads * pieces; }  // of a row
  };
  // How many pieces keep all threads busy with this tile.
  uint32_t PiecesFor(const Heads& h) const;
  // Part [0, h.parts()) of rows that follow each other in one timeline: its query heads are the
  // part-th run of heads / parts().
  void AttendPart(const Heads& h, uint64_t row, uint32_t rows, uint32_t part) const;
  // The rows and parts of a tile over all threads: AttendPart for runs of rows that share what they
  // load of a page, then after(row, part) for each.
  void AttendTile(const Heads& h, FunctionRef<void(uint64_t row, uint32_t part)> after);

 private:
  uint32_t RowsAtOnce(const Heads& h) const;
  void ReadyHead(const LayerWeights& w, const HeadSteps& steps, uint64_t row, uint32_t head) const;
  void StoreHead(uint64_t row, uint32_t layer, uint32_t head) const;

  const KvLayout& kv_;
  const StateLayout& state_;
  Exec& exec_;
  MoeRows* moe_;
};

// Shared mixers (their own papers) with norm and residual: the gated delta rule and multi-head
// latent attention.
void DeltaNetMix(Forward& f, const LayerWeights& w);
void LatentAttention(Forward& f, const LayerWeights& w);

// Mixture of experts, the part before the experts: norms x to h, keeps h for the expert store,
// routes it, and starts the output with the shared expert (docs: experts are added in ascending id
// order).
void Route(Forward& f, const LayerWeights& w);

}  // namespace sluice
