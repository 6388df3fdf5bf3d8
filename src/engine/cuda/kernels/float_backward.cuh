#pragma once

#include "engine/cuda/kernels/float.cuh"

/// Backward in float32, in one pass of five products: a block owns 64 keys of one kv head and walks the query
/// heads of its group one after the other. Scores are computed transposed, so that dk and dv stay in
/// registers; K, V, one tile of Q and dO and one of weights are in shared memory; a tile's share of dq is
/// added to sums in memory. Two blocks a multiprocessor hide each other's loads.
///
/// dv = P^T dO, ds = P (dO V^T - delta), dq = scale ds K, dk = scale ds^T Q. An H200 does 33 TFLOP/s at d64.
namespace attngraph::cuda {

/// Adds a block's share of dq, ds^T K over its keys, for query rows i0 .. of one head: a thread takes 4 rows
/// and twice 4 columns.
template <int kColumns, int kDim>
__device__ inline void add_float_dq(const Params& p, const Sequence& s, FloatRows<kColumns> ds,
                                    FloatRows<kDim> k, int head, int i0) {
  constexpr int kRowWarps = kColumns / 16, kHalf = kDim / 8;  // warps side by side along the rows; chunks
  const int thread = made_anew(threadIdx.x), warp = thread / 32, lane = thread % 32;
  // As FloatPlace: neighbouring lanes share rows, the next ones columns.
  const int four = warp % kRowWarps * 4 + ((lane >> 1 & 1) | lane >> 4 << 1);
  const int chunk = warp / kRowWarps * 8 + ((lane & 1) | (lane >> 2 & 3) << 1);
  float sums[4][8] = {};
#pragma unroll 4
  for (int key = 0; key < FloatTile::rows; ++key) {
    const float4 x = ds.at(key, four), y[2] = {k.at(key, chunk), k.at(key, chunk + kHalf)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      add_float_columns(&sums[0][4 * half], x.x, y[half]),
          add_float_columns(&sums[1][4 * half], x.y, y[half]);
      add_float_columns(&sums[2][4 * half], x.z, y[half]),
          add_float_columns(&sums[3][4 * half], x.w, y[half]);
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int position = i0 + 4 * four + r;
    if (position >= s.q_len) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = 4 * (chunk + half * kHalf);
      const float* const sum = &sums[r][4 * half];
      add_4(dq_sums(p, s, head, position, column / kDqColumns) + column % kDqColumns, sum[0], sum[1], sum[2],
            sum[3]);
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(FloatTile::threads, 2) float_backward(const __grid_constant__ Params p) {
  constexpr FloatTile kTile = float_backward_tile(kDim);
  constexpr int kRows = kTile.rows, kColumns = kTile.columns, kOwnColumns = kColumns / 16;
  extern __shared__ __align__(128) float float_shared[];
  __shared__ Sequence s;
  __shared__ BlockWork work;
  __shared__ int2 ranges[kRows];
  __shared__ float lse[kColumns], delta[kColumns];  // in log2 units; delta

  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  load_key_work(p, s, block, kRows, kColumns, work);
  const PackedRows rows{p, work.head};
  const FloatRows<kDim> k{float_shared}, v{k.base + kRows * kDim}, q{v.base + kRows * kDim},
      dout{q.base + kColumns * kDim};
  const FloatRows<kColumns> weights{dout.base + kColumns * kDim};
  const FloatPlace place;
  load_float_keys<Role::kK, kRows>(k, p, s, work.head, work.first_row);
  load_float_keys<Role::kV, kRows>(v, p, s, work.head, work.first_row);
  for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kTile.threads) {
    const KeyRange seeing = rows_seeing(p, s, work.first_row + r);
    ranges[r] = int2{static_cast<int>(seeing.begin), static_cast<int>(seeing.end)};
  }

  float dk[kFloatRows][kDim / 16] = {}, dv[kFloatRows][kDim / 16] = {};
  const int tiles = work.tile_end - work.tile;
  for (int turn = 0; turn < tiles * p.group; ++turn) {
    // The tiles of query rows of the first head of the group, then of the second, ...
    const int member = turn / tiles, i0 = (work.tile + turn % tiles) * kColumns,
              head = rows.first_head() + member;
    const auto load = [&](FloatRows<kDim> to, Role role, int dim) {
      load_float_rows<kColumns>(to, p[role], dim, [&](int r) {
        return i0 + r < s.q_len ? row_offset(p, s, role, head, i0 + r) : int64_t{-1};
      });
    };
    __syncthreads();  // the last turn's tiles are not read any more
    load(q, Role::kQ, p.qk_dim), load(dout, Role::kDo, p.v_dim);
    if (const int c = static_cast<int>(threadIdx.x); c < kColumns) {
      const int64_t index = rows.index(s, (i0 + c) * p.group + member);
      const bool has_row = i0 + c < s.q_len;
      lse[c] = has_row ? p.scratch.lse[index] * kLog2e : kInf,
      delta[c] = has_row ? p.scratch.delta[index] : 0.0f;
    }
    wait_all_copies();
    __syncthreads();

    float w[kFloatRows][kOwnColumns] = {}, ds[kFloatRows][kOwnColumns] = {};
    multiply_float_rows(w, k, q);
    multiply_float_rows(ds, v, dout);
    const bool all_seen = i0 >= work.all_begin && i0 + kColumns <= work.all_end;
#pragma unroll
    for (int r = 0; r < kFloatRows; ++r) {
      const int2 seeing = ranges[place.row(r)];
#pragma unroll
      for (int c = 0; c < kOwnColumns; ++c) {
        const int column = place.other(c);
        w[r][c] = exp2_fast(fmaf(w[r][c], p.scale_log2, -lse[column]));
        if (!all_seen && (i0 + column < seeing.x || i0 + column >= seeing.y)) w[r][c] = 0.0f;
        ds[r][c] = w[r][c] * (ds[r][c] - delta[column]);
      }
    }
    store_float_weights(weights, w);
    __syncwarp();  // a row's weights are of one warp
    multiply_float_weights(dv, weights, dout);
    __syncwarp();
    store_float_weights(weights, ds);
    __syncwarp();
    multiply_float_weights(dk, weights, q);
    __syncthreads();
    add_float_dq(p, s, weights, k, head, i0);
  }

  const auto store = [&](Role role, const float(&sums)[kFloatRows][kDim / 16], float scale) {
    const TensorView& out = p[role];
#pragma unroll
    for (int r = 0; r < kFloatRows; ++r)
      if (const int j = work.first_row + place.row(r); j < rows_written(out, s.kv_len, p.kv_len))
        store_float_row(out, row_offset(p, s, role, work.head, j), sums[r], j < s.kv_len ? scale : 0.0f);
  };
  store(Role::kDk, dk, p.scale);
  store(Role::kDv, dv, 1.0f);
}

}  // namespace attngraph::cuda
