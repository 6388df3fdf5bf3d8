#pragma once

#include "engine/cuda/kernels/tensor.cuh"

/// Backward on tensor cores, in two forms.
///
/// Two kernels without atomics: dq loops over keys, dk and dv over query rows; both recompute the scores:
/// seven products an element. Bit-equal from run to run, no accumulator in memory, every feature.
/// One pass: the loop over query rows also adds its share of dq to float32 sums in memory: five products.
///
/// dv = P^T dO, ds = P (dO V^T - delta), dq = scale ds K, dk = scale ds^T Q.
/// Measured on an H200 by `attngraph bench --engine cuda --filter gpu/backward`, bf16, 4,096 tokens: in one
/// pass 241 TFLOP/s at dim 64 and 237 at 128, in two kernels 194 and 231, and 139 at dim 256.
namespace attngraph::cuda {

/// dq, and the row sums behind dalibi_slopes: a block owns `rows` packed query rows of one kv head. Q
/// and dO stay in shared memory, dq in registers; K and V stream through two stages.
template <class I>
__global__ void __launch_bounds__(dq_tile(I::kDim).threads()) tensor_dq(const __grid_constant__ Params p) {
  constexpr TensorTile kTile = dq_tile(I::kDim);
  constexpr int kRows = kTile.rows(), kKeys = kTile.columns, kM = kTile.warp_rows / 16,
                kThreads = kTile.threads();
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Sequence s;
  __shared__ BlockWork work;
  __shared__ QueryRow extras[I::kExtras ? kRows : 1];
  __shared__ int2 ranges[I::kExtras ? 1 : kRows];
  __shared__ float2 sums[kRows];  // lse, in log2 units without extras, and delta

  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  load_work(p, s, block, kRows, kKeys, work);
  const PackedRows rows{p, work.head};
  const int num_rows = s.q_len * p.group;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kTile.warp_rows,
            lane = static_cast<int>(threadIdx.x) % 32;
  const SharedTile<I::kDim> q{shared_address(shared)}, dout{q.base + kTile.row_bytes()};
  const uint32_t stages = dout.base + kTile.row_bytes();
  const auto k_tile = [&](int stage) {
    return SharedTile<I::kDim>{stages + 2 * stage * kTile.column_bytes()};
  };
  const auto v_tile = [&](int stage) {
    return SharedTile<I::kDim>{stages + (2 * stage + 1) * kTile.column_bytes()};
  };
  const auto load = [&](int j0, int stage) {
    load_rows<kKeys, kThreads>(k_tile(stage), p, s, Role::kK, work.head, j0, s.kv_len, p.qk_dim);
    load_rows<kKeys, kThreads>(v_tile(stage), p, s, Role::kV, work.head, j0, s.kv_len, p.v_dim);
    commit_copies();
  };

  load_packed_rows<kRows, kThreads>(q, p, s, rows, Role::kQ, work.first_row, p.qk_dim);
  load_packed_rows<kRows, kThreads>(dout, p, s, rows, Role::kDo, work.first_row, p.v_dim);
  if (work.tile < work.tile_end) load(work.tile * kKeys, 0);
  for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kThreads) {
    const int64_t index = rows.index(s, work.first_row + r);
    const bool valid = work.first_row + r < num_rows;
    sums[r] = valid ? float2{p.scratch.lse[index] * (I::kExtras ? 1.0f : kLog2e), p.scratch.delta[index]}
                    : float2{kInf, 0.0f};
    if constexpr (I::kExtras) {
      extras[r] = query_row(p, s, rows.head(work.first_row + r), rows.position(work.first_row + r));
    } else {
      const KeyRange keys = band_keys(p, s, rows.position(work.first_row + r));
      ranges[r] = int2{static_cast<int>(keys.begin), static_cast<int>(keys.end)};
    }
  }

  float slope_sum[kM][2] = {};
  float dq[kM][I::kDim / 8][4] = {};
  for (int tile = work.tile; tile < work.tile_end; ++tile) {
    const int j0 = tile * kKeys, stage = (tile - work.tile) & 1;
    wait_copies<0>();
    __syncthreads();
    if (tile + 1 < work.tile_end) load(j0 + kKeys, stage ^ 1);
    float scores[kM][kKeys / 8][4] = {}, dp[kM][kKeys / 8][4] = {};
    multiply_rows<typename I::T>(scores, q, warp_row, k_tile(stage), 0);
    multiply_rows<typename I::T>(dp, dout, warp_row, v_tile(stage), 0);
    const bool all_seen = j0 >= work.all_begin && j0 + kKeys <= work.all_end;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = warp_row + 16 * m + 8 * half + lane / 4;
        const auto [lse, delta] = sums[r];
        if constexpr (I::kExtras) {
          const QueryRow& row = extras[r];
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int j = j0 + 8 * n + lane % 4 * 2 + e;
              float& score = scores[m][n][2 * half + e];
              const ElementGradient g =
                  element_gradient(p, s, row, j, score, dp[m][n][2 * half + e], lse, delta);
              if (g.ds != 0.0f) slope_sum[m][half] += g.ds * static_cast<float>(j - row.diagonal);
              score = g.dx;
            }
        } else {
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              float& score = scores[m][n][2 * half + e];
              score = exp2_fast(fmaf(score, p.scale_log2, -lse)) * (dp[m][n][2 * half + e] - delta);
            }
          if (!all_seen) {
            const int2 keys = ranges[r];
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                const int j = j0 + 8 * n + lane % 4 * 2 + e;
                if (j < keys.x || j >= keys.y) scores[m][n][2 * half + e] = 0.0f;
              }
          }
        }
      }
    multiply_weights<typename I::T>(dq, scores, k_tile(stage), 0);
  }
  wait_all_copies();
  __syncthreads();  // also without a tile: results are staged over rows that other threads have copied

  if constexpr (I::kExtras) {
    if (p.scratch.row_slopes != nullptr) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = work.first_row + warp_row + 16 * m + 8 * half + lane / 4;
          const float sum = lanes_sum<4>(slope_sum[m][half]);
          if (lane % 4 == 0 && row < num_rows) p.scratch.row_slopes[rows.index(s, row)] = sum;
        }
    }
  }
  const TensorView& out = p[Role::kDq];
  if (!out.present) return;
  float factor[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) factor[m][half] = p.scale;
  stage_rows<typename I::T>(q, warp_row, dq, factor);
  store_rows<kTile.warp_rows>(q, warp_row, out, p.qk_dim / 8, [&](int r) {
    const int row = work.first_row + r, position = rows.position(row);
    return row < p.q_len * p.group && position < rows_written(out, s.q_len, p.q_len)
               ? row_offset(p, s, Role::kDq, rows.head(row), position)
               : int64_t{-1};
  });
}

/// Adds a block's share of dq, ds^T K over its keys, for query rows i0 .. of one head of the group.
template <class I>
__device__ inline void add_dq(const Params& p, const Sequence& s, const PackedRows& rows,
                              SharedTile<one_pass_tile(I::kDim).columns> ds, SharedTile<I::kDim> k, int i0,
                              int member) {
  constexpr TensorTile kTile = one_pass_tile(I::kDim);
  constexpr int kRowBlocks = kTile.columns / 16, kParts = kTile.warps / kRowBlocks, kN = I::kDim / 8 / kParts;
  const int thread = made_anew(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int first_row = warp % kRowBlocks * 16, first_chunk = warp / kRowBlocks * kN;
  float sums[kN][4] = {};
  multiply_transposed<typename I::T, kTile.rows()>(sums, ds, first_row, k, first_chunk, lane);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int position = i0 + first_row + 8 * half + lane / 4;
    if (position >= s.q_len) continue;
    float* const to = dq_sums(p, s, rows.first_head() + member, position, 8 * first_chunk / kDqColumns);
#pragma unroll
    for (int n = 0; n < kN; n += 2)
      add_4(to + dq_position(position, (first_chunk + n) % (kDqColumns / 8) / 2, lane % 4), sums[n][2 * half],
            sums[n][2 * half + 1], sums[n + 1][2 * half], sums[n + 1][2 * half + 1]);
  }
}

constexpr TensorTile key_side_tile(int dim, bool with_dq) {
  return with_dq ? one_pass_tile(dim) : dkdv_tile(dim);
}

/// dk and dv, and in one pass dq: a block owns `rows` keys of one kv head and walks the query heads of its
/// group one after the other, so grouped heads need no copies. Scores are computed transposed, keys on the
/// fragment's rows: weights and ds are then already the left operands of dv and dk. K and V stay in shared
/// memory; Q, dO, lse and delta stream through two stages. For dq the warps lay down ds, and each takes 16
/// query rows and half of the head dim of ds^T K, whose fragments it adds to scratch.dq.
template <class I, bool kDk, bool kDv, bool kDq = false>
__global__ void __launch_bounds__(key_side_tile(I::kDim, kDq).threads())
    tensor_key_side(const __grid_constant__ Params p) {
  constexpr TensorTile kTile = key_side_tile(I::kDim, kDq);
  constexpr int kRows = kTile.rows(), kColumns = kTile.columns, kThreads = kTile.threads(),
                kM = kTile.warp_rows / 16;
  static_assert(kThreads >= kColumns);
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Sequence s;
  __shared__ BlockWork work;
  __shared__ QueryRow extras[2][I::kExtras ? kColumns : 1];
  __shared__ int2 ranges[I::kExtras ? 1 : kRows];

  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  load_key_work(p, s, block, kRows, kColumns, work);
  const PackedRows rows{p, work.head};
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kTile.warp_rows,
            lane = static_cast<int>(threadIdx.x) % 32;
  const SharedTile<I::kDim> k{shared_address(shared)}, v{k.base + kTile.row_bytes()};
  const uint32_t stages = v.base + kTile.row_bytes();
  constexpr int kStageBytes = 2 * kTile.column_bytes() + 2 * kColumns * 4;
  [[maybe_unused]] const SharedTile<kColumns> ds_tile{stages + kTile.stages * kStageBytes};
  const auto q_tile = [&](int stage) { return SharedTile<I::kDim>{stages + stage * kStageBytes}; };
  const auto do_tile = [&](int stage) {
    return SharedTile<I::kDim>{stages + stage * kStageBytes + kTile.column_bytes()};
  };
  const auto row_sums_of = [&](int stage) {  // lse[kColumns], then delta[kColumns]
    return reinterpret_cast<const float*>(shared + 2 * kTile.row_bytes() + stage * kStageBytes +
                                          2 * kTile.column_bytes());
  };
  // Turns walk the tiles of query rows of the first head of the group, then of the second, ...
  const auto tiles = [&] { return work.tile_end - work.tile; };
  const auto turns = [&] { return tiles() * p.group; };
  const auto member_of = [&](int turn) { return p.group == 1 ? 0 : turn / tiles(); };
  const auto first_position = [&](int turn) {
    return (work.tile + turn - member_of(turn) * tiles()) * kColumns;
  };
  const auto load = [&](int turn) {
    const int stage = turn & 1, i0 = first_position(turn), member = member_of(turn);
    const int head = rows.first_head() + member;
    load_rows<kColumns, kThreads>(q_tile(stage), p, s, Role::kQ, head, i0, s.q_len, p.qk_dim);
    load_rows<kColumns, kThreads>(do_tile(stage), p, s, Role::kDo, head, i0, s.q_len, p.v_dim);
    if (const int c = static_cast<int>(threadIdx.x); c < kColumns) {
      const int64_t index = rows.index(s, (i0 + c) * p.group + member);
      const int bytes = i0 + c < s.q_len ? 4 : 0;
      const uint32_t to = do_tile(stage).base + kTile.column_bytes() + 4 * c;
      copy_async_4(to, p.scratch.lse + index, bytes);
      copy_async_4(to + 4 * kColumns, p.scratch.delta + index, bytes);
      if constexpr (I::kExtras) extras[stage][c] = query_row(p, s, head, i0 + c);
    }
    commit_copies();
  };

  load_rows<kRows, kThreads>(k, p, s, Role::kK, work.head, work.first_row, s.kv_len, p.qk_dim);
  if constexpr (kDk)
    load_rows<kRows, kThreads>(v, p, s, Role::kV, work.head, work.first_row, s.kv_len, p.v_dim);
  if (turns() > 0) load(0);
  if constexpr (!I::kExtras)
    for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kThreads) {
      const KeyRange seeing = rows_seeing(p, s, work.first_row + r);
      ranges[r] = int2{static_cast<int>(seeing.begin), static_cast<int>(seeing.end)};
    }

  float dk[kM][kDk ? I::kDim / 8 : 1][4] = {}, dv[kM][kDv ? I::kDim / 8 : 1][4] = {};
  for (int turn = 0; turn < turns(); ++turn) {
    const int i0 = first_position(turn), stage = turn & 1;
    wait_copies<0>();
    __syncthreads();
    if (turn + 1 < turns()) load(turn + 1);
    const float* const lse = row_sums_of(stage);
    float weights[kM][kColumns / 8][4] = {}, ds[kM][kColumns / 8][4] = {};
    multiply_rows<typename I::T>(weights, k, warp_row, q_tile(stage), 0);
    if constexpr (kDk) multiply_rows<typename I::T>(ds, v, warp_row, do_tile(stage), 0);
    const bool all_seen = i0 >= work.all_begin && i0 + kColumns <= work.all_end;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int column = 8 * n + lane % 4 * 2;
      const float2 lse2 = *reinterpret_cast<const float2*>(lse + column);
      const float2 delta2 = *reinterpret_cast<const float2*>(lse + kColumns + column);
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int key = warp_row + 16 * m + 8 * half + lane / 4;
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float &weight = weights[m][n][2 * half + e], &d = ds[m][n][2 * half + e];
            const float lse_e = e == 0 ? lse2.x : lse2.y, delta_e = e == 0 ? delta2.x : delta2.y;
            if constexpr (I::kExtras) {
              const ElementGradient g = element_gradient(p, s, extras[stage][column + e],
                                                         work.first_row + key, weight, d, lse_e, delta_e);
              weight = g.p, d = g.dx;
            } else {
              weight = exp2_fast(fmaf(weight, p.scale_log2, -lse_e * kLog2e));
              if (!all_seen) {
                const int2 seen = ranges[key];
                if (i0 + column + e < seen.x || i0 + column + e >= seen.y) weight = 0.0f;
              }
              if constexpr (kDk) d = weight * (d - delta_e);
            }
          }
        }
    }
    if constexpr (kDq) {
      const int thread = made_anew(threadIdx.x), first = thread / 32 * kTile.warp_rows + thread % 32 / 4;
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int n = 0; n < kColumns / 8; ++n)
            store_shared_4(ds_tile.at(first + 16 * m + 8 * half, n) + thread % 4 * 4,
                           pack<typename I::T>(ds[m][n][2 * half], ds[m][n][2 * half + 1]));
    }
    if constexpr (kDv)
      if (p[Role::kDv].present) multiply_weights<typename I::T>(dv, weights, do_tile(stage), 0);
    if constexpr (kDk)
      if (p[Role::kDk].present) multiply_weights<typename I::T>(dk, ds, q_tile(stage), 0);
    if constexpr (kDq) {
      __syncthreads();  // ds of all warps; the next one is laid down after the barrier of the next turn
      add_dq<I>(p, s, rows, ds_tile, k, i0, member_of(turn));
    }
  }
  wait_all_copies();
  __syncthreads();  // also without a tile: results are staged over rows that other threads have copied

  // Each warp stages its result over the keys that only it has read.
  const auto store = [&](Role role, SharedTile<I::kDim> tile, const float(&sums)[kM][I::kDim / 8][4], int dim,
                         float scale) {
    const TensorView& out = p[role];
    if (!out.present) return;
    float factor[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) factor[m][0] = factor[m][1] = scale;
    stage_rows<typename I::T>(tile, warp_row, sums, factor);
    store_rows<kTile.warp_rows>(tile, warp_row, out, dim / 8, [&](int r) {
      const int j = work.first_row + r;
      return j < rows_written(out, s.kv_len, p.kv_len) ? row_offset(p, s, role, work.head, j) : int64_t{-1};
    });
  };
  const auto clear_padding = [&](float(&sums)[kM][I::kDim / 8][4]) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (work.first_row + warp_row + 16 * m + 8 * half + lane / 4 >= s.kv_len)
#pragma unroll
          for (int n = 0; n < I::kDim / 8; ++n) sums[m][n][2 * half] = sums[m][n][2 * half + 1] = 0.0f;
  };
  if constexpr (kDk) clear_padding(dk), store(Role::kDk, k, dk, p.qk_dim, p.scale);
  if constexpr (kDv) clear_padding(dv), store(Role::kDv, v, dv, p.v_dim, 1.0f);
}

}  // namespace attngraph::cuda
