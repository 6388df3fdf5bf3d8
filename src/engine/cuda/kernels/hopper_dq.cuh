#pragma once

#include "engine/cuda/kernels/hopper_tiles.cuh"

/// dq for sm_90a of rows whose delta and log-sum-exp are known, where heads are so wide that sums of dq, dk
/// and dv do not fit a block together.
///
/// A block owns 128 query rows of one head, Q and dO in shared memory, and passes over the keys that they
/// see. Its first warpgroup copies K and V through rings of buffers; each of the others owns 64 rows, whose
/// sums stay in registers.
///
///   S = Q K', P = exp(scale S - lse), dP = dO V', dS = P (dP - delta), dQ += dS K
///
/// Pipeline: P is computed under dP, one warpgroup's dS under the other's products.
///
/// Measured: H200, bf16, 4 x 4,096 tokens, d256, dq, dk and dv together: 525 TFLOP/s full and 471 causal,
/// d192 with v of 128 463 causal; attngraph bench --engine cuda --filter gpu/backward.
namespace attngraph::cuda {

template <HopperDqTile kTile>
struct DqShared {
  uint32_t q, dout, k, v;  ///< addresses, each of whole panels

  __device__ explicit DqShared(uint32_t base) {
    q = (base + 1023) / 1024 * 1024;
    dout = q + kTile.q_bytes();
    k = dout + kTile.dout_bytes();
    v = k + kTile.k_stages * kTile.k_bytes();
  }
};

/// Addresses of the barriers that a block's tiles pass through.
template <HopperDqTile kTile>
struct DqBarriers {
  uint32_t base;

  __device__ uint32_t q_full() const { return base; }
  __device__ uint32_t dout_full() const { return base + 8; }
  __device__ uint32_t cleared() const { return base + 16; }
  __device__ uint32_t k_full(int stage) const { return base + 24 + 16 * stage; }
  __device__ uint32_t k_empty(int stage) const { return base + 32 + 16 * stage; }
  __device__ uint32_t v_full(int stage) const { return k_full(kTile.k_stages + stage); }
  __device__ uint32_t v_empty(int stage) const { return k_empty(kTile.k_stages + stage); }
  static constexpr int kCount = 3 + 2 * (kTile.k_stages + kTile.v_stages);
};

/// What a block knows of its sequence and rows.
struct DqWork {
  Sequence sequence;
  int head, kv_head, first_row;
  int begin, end;            ///< tiles of keys that some row sees
  int full_begin, full_end;  ///< keys that every row sees
};

/// Fills in which rows and keys the block works on; the sequence is known.
template <HopperDqTile kTile>
__device__ inline void locate(const Params& p, const Block& block, DqWork& work) {
  constexpr int kKeys = kTile.keys;
  const Sequence& s = work.sequence;
  const int first = block.tile * kTile.rows, last = first + kTile.rows - 1;
  const KeySpan seen = span_seen(p, s, first, last);
  work.head = block.head, work.first_row = first;
  work.kv_head = static_cast<int>(p.by_group.quotient(static_cast<uint32_t>(block.head)));
  work.begin = seen.begin / kKeys;
  work.end = max(work.begin, (seen.end + kKeys - 1) / kKeys);
  work.full_begin = static_cast<int>(band_keys(p, s, min(last, s.q_len - 1)).begin);
  work.full_end = static_cast<int>(band_keys(p, s, first).end);
}

/// The copying warp.
template <HopperDqTile kTile>
__device__ inline void copy_tiles(const Params& p, const HopperCopies& copies, const DqShared<kTile>& shared,
                                  const DqBarriers<kTile>& barriers, const DqWork& work) {
  constexpr int kRows = kTile.rows, kKeys = kTile.keys;
  const Sequence& s = work.sequence;
  const bool leader = threadIdx.x == 0;
  const MapPlace k_place = map_place(p, s, Role::kK), v_place = map_place(p, s, Role::kV);
  RingPlace<kTile.k_stages> k;
  RingPlace<kTile.v_stages> v;
  uint32_t cleared_parity = 0;
  for (int tile = work.begin; tile < work.end; ++tile) {
    // What lies behind a sequence's rows spoils rows that are not stored.
    if (leader && tile == work.begin) {
      arrive_expecting(barriers.q_full(), kTile.q_bytes());
      copy_panels<kTile.dim, kRows>(shared.q, copies.q, map_place(p, s, Role::kQ), work.first_row, work.head,
                                    barriers.q_full(), Keep::kFirstOut);
    }
    wait(barriers.k_empty(k.stage), k.parity ^ 1);
    bring_tile<kTile.dim, kKeys>(
        {shared.k + k.stage * kTile.k_bytes(), barriers.k_full(k.stage), barriers.cleared()}, copies.k,
        k_place, tile * kKeys, work.kv_head, s.kv_len - tile * kKeys, Keep::kLastOut, cleared_parity);
    k.next();
    if (leader && tile == work.begin) {
      arrive_expecting(barriers.dout_full(), kTile.dout_bytes());
      copy_panels<kTile.v_dim, kRows>(shared.dout, copies.dout, map_place(p, s, Role::kDo), work.first_row,
                                      work.head, barriers.dout_full(), Keep::kFirstOut);
    }
    wait(barriers.v_empty(v.stage), v.parity ^ 1);
    bring_tile<kTile.v_dim, kKeys>(
        {shared.v + v.stage * kTile.v_bytes(), barriers.v_full(v.stage), barriers.cleared()}, copies.v,
        v_place, tile * kKeys, work.kv_head, s.kv_len - tile * kKeys, Keep::kLastOut, cleared_parity);
    v.next();
  }
}

/// The two rows of a thread in its warpgroup's accumulators.
struct DqRowNumbers {
  Span keys;  ///< of the band
  float lse[2], delta[2];

  /// Rows `first_row` and the eighth after it; lse times log2(e).
  __device__ DqRowNumbers(const Params& p, const DqWork& work, int first_row) {
    const Sequence& s = work.sequence;
    const PackedRows rows{p, work.kv_head};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = first_row + 8 * half;
      const KeyRange seen = band_keys(p, s, position);
      keys.begin[half] = static_cast<int>(seen.begin), keys.end[half] = static_cast<int>(seen.end);
      const int64_t index = rows.index(s, position * p.group + work.head - rows.first_head());
      lse[half] = position < s.q_len ? p.scratch.lse[index] * kLog2e : kInf;
      delta[half] = position < s.q_len ? p.scratch.delta[index] : 0.0f;
    }
  }
};

/// One warpgroup of products.
template <class T, HopperDqTile kTile>
__device__ inline void multiply_keys(const Params& p, const DqShared<kTile>& shared,
                                     const DqBarriers<kTile>& barriers, const DqWork& work) {
  constexpr int kRows = kTile.rows, kKeys = kTile.keys;
  const Sequence& s = work.sequence;
  const int group = product_group();
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t own_rows = static_cast<uint32_t>(group * 64 * kPanelRowBytes);
  const auto release = [lane](uint32_t barrier) {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  };
  const int first_row = work.first_row + group * 64 + warp * 16;
  const DqRowNumbers rows(p, work, first_row + lane / 4);
  const int begin = work.begin, end = work.end, full_begin = work.full_begin, full_end = work.full_end;
  float dq[kTile.dim / 2] = {};
  RingPlace<kTile.k_stages> k;
  RingPlace<kTile.v_stages> v;
  if (begin < end) wait(barriers.q_full(), 0);
  for (int tile = begin; tile < end; ++tile) {
    float weights[kKeys / 2], gradients[kKeys / 2];
    uint32_t operand[kKeys / 16][4];
    const uint32_t keys = shared.k + k.stage * kTile.k_bytes();
    wait(barriers.k_full(k.stage), k.parity);
    start_row_products<T, kTile.dim, kRows, kKeys>(weights, shared.q + own_rows, keys);
    if (tile == begin) wait(barriers.dout_full(), 0);
    wait(barriers.v_full(v.stage), v.parity);
    start_row_products<T, kTile.v_dim, kRows, kKeys>(gradients, shared.dout + own_rows,
                                                     shared.v + v.stage * kTile.v_bytes());
    wait_products<1>();
    if (tile * kKeys < full_begin || (tile + 1) * kKeys > full_end) rows.keys.mask(weights, tile * kKeys);
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i)
      weights[i] = exp2_fast(fmaf(weights[i], p.scale_log2, -rows.lse[i / 2 % 2]));
    // The barrier has been passed already. Without this end of a block of instructions ptxas moves the wait
    // for dP before the exponentials that should run under it.
    wait(barriers.v_full(v.stage), v.parity);
    wait_products<0>();
    release(barriers.v_empty(v.stage));
    v.next();
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) weights[i] *= gradients[i] - rows.delta[i / 2 % 2];
    round_weights<T>(weights, operand);
    start_weighted_rows<T, kKeys>(dq, operand, keys);
    wait_products<0>();
    release(barriers.k_empty(k.stage));
    k.next();
  }

  if (!p[Role::kDq].present) return;
  constexpr int kPanelBytes = kRows * kPanelRowBytes;
  meet(1 + group, kWarpgroup);  // its four warps have read Q, which the rows leave through
  const uint32_t stage = shared.q + own_rows + static_cast<uint32_t>(warp * 16 * kPanelRowBytes);
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    factor[half] = first_row + lane / 4 + 8 * half < s.q_len ? p.scale : 0.0f;
  stage_rows<T, kPanelBytes>(stage, dq, factor);
  __syncwarp();
  const int num_rows = min(rows_written(p[Role::kDq], s.q_len, p.q_len) - first_row, 16);
  store_staged<T, kTile.dim, kPanelBytes>(p, s, Role::kDq, {work.head, first_row, num_rows}, stage);
}

template <class T, int kDim>
__global__ void __launch_bounds__(HopperDqTile::threads, 1)
    hopper_dq(const __grid_constant__ Params p, const __grid_constant__ HopperCopies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr HopperDqTile kTile = hopper_dq_tile(kDim);
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  __shared__ uint64_t barrier_memory[DqBarriers<kTile>::kCount];
  __shared__ DqWork work;
  const DqShared<kTile> shared(shared_address(dynamic_shared));
  const DqBarriers<kTile> barriers{shared_address(barrier_memory)};
  if (threadIdx.x == 0) {
    constexpr int kWarps = 8;
    init_barrier(barriers.q_full(), 1), init_barrier(barriers.dout_full(), 1);
    init_barrier(barriers.cleared(), 1);
    for (int stage = 0; stage < kTile.k_stages; ++stage)
      init_barrier(barriers.k_full(stage), 1), init_barrier(barriers.k_empty(stage), kWarps);
    for (int stage = 0; stage < kTile.v_stages; ++stage)
      init_barrier(barriers.v_full(stage), 1), init_barrier(barriers.v_empty(stage), kWarps);
    fence_barrier_init();
  }
  // The launch before computes delta, or else dk and dv, of which this one reads nothing: its blocks fill
  // multiprocessors that those leave idle, and only its end must not come before theirs.
  if (!p[Role::kDk].present && !p[Role::kDv].present) await_previous();
  const Block block(p, p.kv_head_count * p.group, p.kv_head_begin * p.group);
  load_sequence(p, block.batch, work.sequence);  // the block meets here
  if (threadIdx.x == 0) locate<kTile>(p, block, work);
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    shrink_registers<kTile.copy_registers>();
    if (threadIdx.x < 32) copy_tiles<kTile>(p, copies, shared, barriers, work);
    if (blockIdx.x == gridDim.x - 1) await_previous();
  } else {
    grow_registers<kTile.product_registers>();
    multiply_keys<T, kTile>(p, shared, barriers, work);
  }
#endif
}

}  // namespace attngraph::cuda
