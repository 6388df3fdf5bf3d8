#pragma once

#include "engine/cuda/kernels/float.cuh"

/// Forward in float32: a block owns 64 packed query rows of one kv head; scores and o stay in registers, Q,
/// one K and one V tile and the weights in shared memory.
///
/// Pipeline: K(n) arrives while weights(n-1) V(n-1) runs, V(n) while Q K(n) runs.
/// o = softmax(scale Q K^T) V. Measured on an H200, attngraph bench --filter "f32 d64": 30 TFLOP/s.
namespace attngraph::cuda {

/// Online softmax of a thread's rows: maximum and the thread's part of the sum of
/// exp2((scores - maximum) * kappa).
struct FloatRunningRows {
  float maximum[kFloatRows], sum[kFloatRows];

  __device__ FloatRunningRows() {
#pragma unroll
    for (int r = 0; r < kFloatRows; ++r) maximum[r] = -kInf, sum[r] = 0.0f;
  }

  /// Turns scores into weights. kappa > 0; kAnyScore as in RunningRows::step().
  template <bool kAnyScore, int kColumns, int kSums>
  __device__ void step(float (&scores)[kFloatRows][kColumns], float (&o)[kFloatRows][kSums], float kappa) {
#pragma unroll
    for (int r = 0; r < kFloatRows; ++r) {
      float top = maximum[r];
#pragma unroll
      for (const float score : scores[r]) top = fmaxf(top, score);
      top = row_max(top);
      // Rounded alike, products leave 0 for a maximum that stays, however large it is.
      const float reference = top == -kInf ? 0.0f : kAnyScore ? top : __fmul_rn(top, kappa);
      const float shrink =
          exp2_fast(kAnyScore ? (maximum[r] - reference) * kappa : __fmul_rn(maximum[r], kappa) - reference);
      maximum[r] = top, sum[r] *= shrink;
#pragma unroll
      for (float& value : o[r]) value *= shrink;
#pragma unroll
      for (float& score : scores[r]) {
        score = exp2_fast(kAnyScore ? (score - reference) * kappa : fmaf(score, kappa, -reference));
        sum[r] += score;
      }
    }
  }
};

/// Leaves the thread's finished rows: o and stats, or its split's partial result. `to_natural` turns scores
/// to natural units.
template <int kColumns>
__device__ inline void finish_float_rows(const Params& p, const Sequence& s, const BlockWork& work,
                                         const FloatRunningRows& running, float (&o)[kFloatRows][kColumns],
                                         float to_natural) {
  const FloatPlace place;
  const PackedRows rows{p, work.head};
  const TensorView& out = p[Role::kO];
  const int num_rows = s.q_len * p.group;
#pragma unroll
  for (int r = 0; r < kFloatRows; ++r) {
    const float sum = row_sum(running.sum[r]);
    const int row = work.first_row + place.row(r), head = rows.head(row), position = rows.position(row);
    if (row >= p.q_len * p.group) continue;
    const float maximum = running.maximum[r] * to_natural;
    RowResult result;
    if (p.num_splits > 1) {
      if (row >= num_rows) continue;
      if (sum != 0.0f) result.o_scale = 1.0f / sum;
      const int64_t part = work.split * packed_rows(p) + rows.index(s, row);
      if (place.column_group == 0) p.scratch.partial_rows[part] = {maximum, sum};
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        if (place.dim(c) < p.v_dim)
          p.scratch.partial_o[part * p.v_dim + place.dim(c)] = o[r][c] * result.o_scale * p.dropout_scale;
      continue;
    }
    if (row < num_rows) result = finish_row(p, head, maximum, sum);
    if (place.column_group == 0) store_stats(p, s, head, position, result.lse);
    if (position < rows_written(out, s.q_len, p.q_len))
      store_float_row(out, row_offset(p, s, Role::kO, head, position), o[r],
                      result.o_scale * p.dropout_scale);
  }
}

template <int kDim, bool kExtras>
__global__ void __launch_bounds__(FloatTile::threads, kExtras || kDim == 128 ? 2 : 3)
    float_forward(const __grid_constant__ Params p) {
  constexpr FloatTile kTile = float_forward_tile(kDim);
  constexpr int kKeys = kTile.columns;
  extern __shared__ __align__(128) float float_shared[];
  __shared__ Sequence s;
  __shared__ BlockWork work;
  __shared__ QueryRow extras[kExtras ? kTile.rows : 1];
  __shared__ uint8_t absent[kExtras ? kKeys : 1];
  __shared__ int2 ranges[kExtras ? 1 : kTile.rows];

  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  load_work(p, s, block, kTile.rows, kKeys, work);
  const PackedRows rows{p, work.head};
  const FloatRows<kDim> q{float_shared}, k{q.base + kTile.rows * kDim}, v{k.base + kKeys * kDim};
  const FloatRows<kKeys> weights{v.base + kKeys * kDim};
  const FloatPlace place;

  load_float_rows<kTile.rows>(q, p[Role::kQ], p.qk_dim, [&](int r) {
    const int row = work.first_row + r;
    return row < s.q_len * p.group ? row_offset(p, s, Role::kQ, rows.head(row), rows.position(row))
                                   : int64_t{-1};
  });
  for (int r = static_cast<int>(threadIdx.x); r < kTile.rows; r += kTile.threads) {
    const int row = work.first_row + r;
    if constexpr (kExtras) {
      extras[r] = query_row(p, s, rows.head(row), rows.position(row));
    } else {
      const KeyRange keys = band_keys(p, s, rows.position(row));
      ranges[r] = int2{static_cast<int>(keys.begin), static_cast<int>(keys.end)};
    }
  }

  const float kappa = kExtras ? kLog2e : p.scale_log2;
  float o[kFloatRows][kDim / 16] = {};
  FloatRunningRows running;
  if (work.tile < work.tile_end) load_float_keys<Role::kK, kKeys>(k, p, s, work.head, work.tile * kKeys);
  for (int tile = work.tile; tile < work.tile_end; ++tile) {
    const int j0 = tile * kKeys;
    wait_all_copies();
    __syncthreads();
    load_float_keys<Role::kV, kKeys>(v, p, s, work.head, j0);
    if constexpr (kExtras) mark_absent<kKeys>(p, s, work.head, j0, absent);
    float scores[kFloatRows][kKeys / 16] = {};
    multiply_float_rows(scores, q, k);
    wait_all_copies();
    __syncthreads();
    if (tile + 1 < work.tile_end) load_float_keys<Role::kK, kKeys>(k, p, s, work.head, j0 + kKeys);
    if (kExtras || j0 < work.all_begin || j0 + kKeys > work.all_end)
#pragma unroll
      for (int r = 0; r < kFloatRows; ++r)
#pragma unroll
        for (int c = 0; c < kKeys / 16; ++c) {
          const int j = j0 + place.other(c);
          float& score = scores[r][c];
          if constexpr (kExtras) {
            score = absent[place.other(c)] ? -kInf : logit(p, extras[place.row(r)], j, score).x;
          } else {
            const int2 keys = ranges[place.row(r)];
            if (j < keys.x || j >= keys.y) score = -kInf;
          }
        }
    running.step<kExtras>(scores, o, kappa);
    if constexpr (kExtras)
      if (p.dropout)
#pragma unroll
        for (int r = 0; r < kFloatRows; ++r)
#pragma unroll
          for (int c = 0; c < kKeys / 16; ++c)
            if (!draws_keep(p, s, extras[place.row(r)], j0 + place.other(c))) scores[r][c] = 0.0f;
    store_float_weights(weights, scores);
    __syncwarp();  // a row's weights are of one warp
    multiply_float_weights(o, weights, v);
  }
  finish_float_rows(p, s, work, running, o, kExtras ? 1.0f : p.scale);
}

}  // namespace attngraph::cuda
