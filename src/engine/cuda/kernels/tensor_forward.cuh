#pragma once

#include "engine/cuda/kernels/tensor.cuh"

/// Forward on tensor cores: a block owns `rows` packed query rows of one kv head, a warp 32 or 16 of
/// them; scores, weights and o stay in registers, Q, one K and one V tile in shared memory.
///
/// Pipeline: K(n) arrives while weights(n-1) V(n-1) runs, V(n) while Q K(n) runs.
/// o = softmax(scale Q K^T) V.
/// Measured on an H200 by `attngraph bench --engine cuda --filter gpu/forward`, bf16, 4,096 tokens: 337
/// TFLOP/s at dim 64, 371 at 128, 324 at 256; decode 91 % of the rate of a copy.
namespace attngraph::cuda {

/// Where a block leaves a finished row: o and stats, or its split's partial result. `to_natural` turns
/// scores to natural units.
template <class I, int kM, int kDim>
__device__ inline void finish_rows(const Params& p, const Sequence& s, const PackedRows& rows, int split,
                                   int first_row, SharedTile<kDim> stage, int stage_row,
                                   float (&o)[kM][kDim / 8][4], const RunningRows<kM>& running,
                                   float to_natural) {
  const int lane = static_cast<int>(threadIdx.x) % 32, num_rows = s.q_len * p.group;
  const TensorView& out = p[Role::kO];
  float factor[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 16 * m + 8 * half + lane / 4;
      const float sum = lanes_sum<4>(running.sum[m][half]);
      const float maximum = running.maximum[m][half] * to_natural;
      RowResult result;
      if (p.num_splits > 1) {
        if (sum != 0.0f) result.o_scale = 1.0f / sum;
      } else if (row < num_rows) {
        result = finish_row(p, rows.head(row), maximum, sum);
      }
      factor[m][half] = row < num_rows ? result.o_scale * p.dropout_scale : 0.0f;
      if (lane % 4 != 0) continue;
      if (p.num_splits == 1 && row < p.q_len * p.group)
        store_stats(p, s, rows.head(row), rows.position(row), result.lse);
      if (p.num_splits > 1 && row < num_rows)
        p.scratch.partial_rows[split * packed_rows(p) + rows.index(s, row)] = {maximum, sum};
    }
  if (p.num_splits > 1) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + 16 * m + 8 * half + lane / 4;
        if (row >= num_rows) continue;
        float* const part = p.scratch.partial_o + (split * packed_rows(p) + rows.index(s, row)) * p.v_dim;
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n)
          if (8 * n < p.v_dim)
            *reinterpret_cast<float2*>(part + 8 * n + lane % 4 * 2) =
                float2{o[m][n][2 * half] * factor[m][half], o[m][n][2 * half + 1] * factor[m][half]};
      }
    return;
  }
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (factor[m][half] == 0.0f)
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) o[m][n][2 * half] = o[m][n][2 * half + 1] = 0.0f;
  stage_rows<typename I::T>(stage, stage_row, o, factor);
  store_rows<16 * kM>(stage, stage_row, out, p.v_dim / 8, [&](int r) {
    const int row = first_row + r - stage_row, position = rows.position(row);
    return row < p.q_len * p.group && position < rows_written(out, s.q_len, p.q_len)
               ? row_offset(p, s, Role::kO, rows.head(row), position)
               : int64_t{-1};
  });
}

template <class I>
__global__ void __launch_bounds__(forward_tile(I::kDim).threads())
    tensor_forward(const __grid_constant__ Params p) {
  constexpr TensorTile kTile = forward_tile(I::kDim);
  constexpr int kRows = kTile.rows(), kKeys = kTile.columns, kM = kTile.warp_rows / 16,
                kThreads = kTile.threads();
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Sequence s;
  __shared__ BlockWork work;
  __shared__ QueryRow extras[I::kExtras ? kRows : 1];
  __shared__ uint8_t absent[I::kExtras ? kKeys : 1];
  __shared__ int2 ranges[I::kExtras ? 1 : kRows];

  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  load_work(p, s, block, kRows, kKeys, work);
  const PackedRows rows{p, work.head};
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kTile.warp_rows,
            lane = static_cast<int>(threadIdx.x) % 32;
  const SharedTile<I::kDim> q{shared_address(shared)}, k{q.base + kTile.row_bytes()},
      v{k.base + kTile.column_bytes()};

  load_packed_rows<kRows, kThreads>(q, p, s, rows, Role::kQ, work.first_row, p.qk_dim);
  const auto load_k = [&](int j0) {
    load_keys<Role::kK, kKeys, kThreads, I::kExtras>(k, p, s, work.head, j0);
    commit_copies();
  };
  const auto load_v = [&](int j0) {
    load_keys<Role::kV, kKeys, kThreads, I::kExtras>(v, p, s, work.head, j0);
    commit_copies();
  };

  for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kThreads) {
    if constexpr (I::kExtras) {
      extras[r] = query_row(p, s, rows.head(work.first_row + r), rows.position(work.first_row + r));
    } else {
      const KeyRange keys = band_keys(p, s, rows.position(work.first_row + r));
      ranges[r] = int2{static_cast<int>(keys.begin), static_cast<int>(keys.end)};
    }
  }

  const float kappa = I::kExtras ? kLog2e : p.scale_log2;
  float o[kM][I::kDim / 8][4] = {};
  RunningRows<kM> running;
  if (work.tile < work.tile_end) load_k(work.tile * kKeys);
  for (int tile = work.tile; tile < work.tile_end; ++tile) {
    const int j0 = tile * kKeys;
    wait_copies<0>();
    __syncthreads();
    load_v(j0);
    if constexpr (I::kExtras) mark_absent<kKeys>(p, s, work.head, j0, absent);
    float scores[kM][kKeys / 8][4] = {};
    multiply_rows<typename I::T>(scores, q, warp_row, k, 0);
    wait_copies<0>();
    __syncthreads();
    if (tile + 1 < work.tile_end) load_k(j0 + kKeys);
    if constexpr (I::kExtras) {
      score_fragment(p, extras, absent, warp_row, j0, scores);
    } else if (j0 < work.all_begin || j0 + kKeys > work.all_end) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int2 keys = ranges[warp_row + 16 * m + 8 * half + lane / 4];
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int j = j0 + 8 * n + lane % 4 * 2 + e;
              if (j < keys.x || j >= keys.y) scores[m][n][2 * half + e] = -kInf;
            }
        }
    }
    running.template step<I::kExtras>(scores, o, kappa);
    if constexpr (I::kExtras)
      if (p.dropout) drop_fragment(p, s, extras, warp_row, j0, scores);
    multiply_weights<typename I::T>(o, scores, v, 0);
  }
  wait_all_copies();
  __syncthreads();  // also without a tile: results are staged over rows that other threads have copied
  finish_rows<I>(p, s, rows, work.split, work.first_row + warp_row, q, warp_row, o, running,
                 I::kExtras ? 1.0f : p.scale);
}

/// Few rows: all warps own the same 16 packed rows and each takes 16 keys of every tile, so that a
/// sequence's keys pass once through a deep pipeline; the warps' results meet in shared memory.
template <class I>
__global__ void __launch_bounds__(decode_tile(I::kDim).threads())
    tensor_decode(const __grid_constant__ Params p) {
  constexpr TensorTile kTile = decode_tile(I::kDim);
  constexpr int kKeys = kTile.columns, kThreads = kTile.threads(), kWarpKeys = kKeys / kTile.warps;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Sequence s;
  __shared__ BlockWork work;
  __shared__ QueryRow extras[kDecodeRows];
  __shared__ uint8_t absent[2][kKeys];

  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  load_work(p, s, block, kDecodeRows, kKeys, work);
  const PackedRows rows{p, work.head};
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const SharedTile<I::kDim> q{shared_address(shared)};
  const uint32_t pipeline = q.base + kDecodeRows * I::kDim * 2;
  const auto k_tile = [&](int stage) {
    return SharedTile<I::kDim>{pipeline + 2 * stage * kTile.column_bytes()};
  };
  const auto v_tile = [&](int stage) {
    return SharedTile<I::kDim>{pipeline + (2 * stage + 1) * kTile.column_bytes()};
  };

  const auto load = [&](int tile, int stage) {
    if (tile < work.tile_end) {
      load_keys<Role::kK, kKeys, kThreads, true>(k_tile(stage), p, s, work.head, tile * kKeys);
      load_keys<Role::kV, kKeys, kThreads, true>(v_tile(stage), p, s, work.head, tile * kKeys);
    }
    commit_copies();
  };
  load_packed_rows<kDecodeRows, kThreads>(q, p, s, rows, Role::kQ, work.first_row, p.qk_dim);
#pragma unroll
  for (int stage = 0; stage + 1 < kTile.stages; ++stage) load(work.tile + stage, stage);
  if (threadIdx.x < kDecodeRows)
    extras[threadIdx.x] = query_row(p, s, rows.head(work.first_row + static_cast<int>(threadIdx.x)),
                                    rows.position(work.first_row + static_cast<int>(threadIdx.x)));
  mark_absent<kKeys>(p, s, work.head, work.tile * kKeys, absent[0]);

  float o[1][I::kDim / 8][4] = {};
  RunningRows<1> running;
  int stage = 0;
  for (int tile = work.tile, turn = 0; tile < work.tile_end; ++tile, turn ^= 1) {
    wait_copies<kTile.stages - 2>();
    __syncthreads();
    load(tile + kTile.stages - 1, (stage + kTile.stages - 1) % kTile.stages);
    mark_absent<kKeys>(p, s, work.head, (tile + 1) * kKeys, absent[turn ^ 1]);
    float scores[1][kWarpKeys / 8][4] = {};
    multiply_rows<typename I::T>(scores, q, 0, k_tile(stage), warp * kWarpKeys);
    const int j0 = tile * kKeys + warp * kWarpKeys;
    score_fragment(p, extras, absent[turn] + warp * kWarpKeys, 0, j0, scores);
    running.template step<true>(scores, o, kLog2e);
    if (p.dropout) drop_fragment(p, s, extras, 0, j0, scores);
    multiply_weights<typename I::T>(o, scores, v_tile(stage), warp * kWarpKeys);
    stage = (stage + 1) % kTile.stages;
  }

  // Meet: every warp leaves its rows, warp 0 joins them in the order of the warps.
  wait_copies<0>();
  __syncthreads();
  float* const all_o = reinterpret_cast<float*>(shared + kDecodeRows * I::kDim * 2);
  float* const all_rows = all_o + kTile.warps * kDecodeRows * I::kDim;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * kDecodeRows + 8 * half + lane / 4;
    const float sum = lanes_sum<4>(running.sum[0][half]);
    if (lane % 4 == 0) all_rows[2 * row] = running.maximum[0][half], all_rows[2 * row + 1] = sum;
#pragma unroll
    for (int n = 0; n < I::kDim / 8; ++n)
      *reinterpret_cast<float2*>(all_o + row * I::kDim + 8 * n + lane % 4 * 2) =
          float2{o[0][n][2 * half], o[0][n][2 * half + 1]};
  }
  __syncthreads();
  if (warp > 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = 8 * half + lane / 4;
    float top = -kInf, total = 0.0f;
    for (int w = 0; w < kTile.warps; ++w) top = fmaxf(top, all_rows[2 * (w * kDecodeRows + row)]);
#pragma unroll
    for (int n = 0; n < I::kDim / 8; ++n) o[0][n][2 * half] = o[0][n][2 * half + 1] = 0.0f;
    for (int w = 0; w < kTile.warps; ++w) {
      const int from = w * kDecodeRows + row;
      const float maximum = all_rows[2 * from];
      const float weight = maximum == -kInf ? 0.0f : exp2_fast((maximum - top) * kLog2e);
      total += all_rows[2 * from + 1] * weight;
#pragma unroll
      for (int n = 0; n < I::kDim / 8; ++n) {
        const float2 part = *reinterpret_cast<const float2*>(all_o + from * I::kDim + 8 * n + lane % 4 * 2);
        o[0][n][2 * half] += part.x * weight, o[0][n][2 * half + 1] += part.y * weight;
      }
    }
    running.maximum[0][half] = top;
    running.sum[0][half] = lane % 4 == 0 ? total : 0.0f;
  }
  finish_rows<I>(p, s, rows, work.split, work.first_row, q, 0, o, running, 1.0f);
}

}  // namespace attngraph::cuda
