#pragma once

#include "engine/cuda/kernels/hopper_tiles.cuh"

/// dq for sm_90a of rows whose delta and log-sum-exp are known, where heads are so wide that sums of dq, dk
/// and dv do not fit a block together; an instance of its own with softcap, ALiBi and any scale.
///
/// A block stays on its multiprocessor and takes one tile of 128 query rows of one head after the other, and
/// passes over the keys that they see. Its first warpgroup copies Q and dO once a tile, K and V through rings
/// of buffers; each of the others owns 64 rows, whose sums stay in registers and leave through dO's memory,
/// while the next tile's Q and keys arrive.
///
///   S = Q K', P = exp(scale S - lse), dP = dO V', dS = P (dP - delta), dQ += dS K
///
/// Pipeline: P is computed under dP, one warpgroup's dS under the other's products.
///
/// Measured: H200, bf16, 4 x 4,096 tokens, d256, dq, dk and dv together: 514 TFLOP/s full and 484 causal,
/// d192 with v of 128 476 causal; attngraph bench --engine cuda --filter gpu/backward.
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
  __device__ uint32_t q_empty() const { return base + 8; }
  __device__ uint32_t dout_full() const { return base + 16; }
  __device__ uint32_t dout_empty() const { return base + 24; }
  __device__ uint32_t cleared() const { return base + 32; }
  __device__ uint32_t k_full(int stage) const { return base + 40 + 16 * stage; }
  __device__ uint32_t k_empty(int stage) const { return base + 48 + 16 * stage; }
  __device__ uint32_t v_full(int stage) const { return k_full(kTile.k_stages + stage); }
  __device__ uint32_t v_empty(int stage) const { return k_empty(kTile.k_stages + stage); }
  static constexpr int kCount = 5 + 2 * (kTile.k_stages + kTile.v_stages);

  /// By one thread, before the block meets.
  __device__ void init() const {
    constexpr int kWarps = 8;
    init_barrier(q_full(), 1), init_barrier(q_empty(), kWarps);
    init_barrier(dout_full(), 1), init_barrier(dout_empty(), kWarps);
    init_barrier(cleared(), 1);
    for (int stage = 0; stage < kTile.k_stages; ++stage)
      init_barrier(k_full(stage), 1), init_barrier(k_empty(stage), kWarps);
    for (int stage = 0; stage < kTile.v_stages; ++stage)
      init_barrier(v_full(stage), 1), init_barrier(v_empty(stage), kWarps);
    fence_barrier_init();
  }
};

/// What the copying warp tells the others about a tile; it writes one while they work on another.
struct DqWork {
  static constexpr int kSlots = 2;

  Sequence sequence;
  int head, kv_head, first_row;
  int begin, end;            ///< tiles of keys that some row sees
  int full_begin, full_end;  ///< keys that every row sees
};

/// The copying warp.
template <HopperDqTile kTile>
__device__ inline void copy_tiles(const Params& p, const HopperCopies& copies, const DqShared<kTile>& shared,
                                  const DqBarriers<kTile>& barriers, DqWork (&work)[DqWork::kSlots]) {
  constexpr int kRows = kTile.rows, kKeys = kTile.keys;
  const bool leader = threadIdx.x == 0;
  RingPlace<kTile.k_stages> k;
  RingPlace<kTile.v_stages> v;
  RingPlace<DqWork::kSlots> slot;
  uint32_t cleared_parity = 0;
  for (int turn = 0; tile_of_turn(turn) < copies.tiles; ++turn, slot.next()) {
    const HopperPlace place(p, copies, p.kv_head_count * p.group, p.kv_head_begin * p.group,
                            tile_of_turn(turn));
    DqWork& w = work[slot.stage];
    warp_loads_sequence(p, place.batch, w.sequence);
    const Sequence& s = w.sequence;
    const int first = place.tile * kRows, last = first + kRows - 1;
    const KeySpan seen = span_seen(p, s, first, last);
    const int begin = seen.begin / kKeys, end = max(begin, (seen.end + kKeys - 1) / kKeys);
    const int kv_head = static_cast<int>(p.by_group.quotient(static_cast<uint32_t>(place.head)));
    if (leader) {
      w.head = place.head, w.kv_head = kv_head, w.first_row = first;
      w.begin = begin, w.end = end;
      w.full_begin = static_cast<int>(band_keys(p, s, min(last, s.q_len - 1)).begin);
      w.full_end = static_cast<int>(band_keys(p, s, first).end);
    }
    const uint32_t empty = static_cast<uint32_t>(turn & 1) ^ 1;
    if (begin == end) {
      wait(barriers.q_empty(), empty), wait(barriers.dout_empty(), empty);
      if (leader) arrive(barriers.q_full()), arrive(barriers.dout_full());
      continue;
    }
    const MapPlace k_place = map_place(p, s, Role::kK), v_place = map_place(p, s, Role::kV);
    for (int tile = begin; tile < end; ++tile) {
      // What lies behind a sequence's rows spoils rows that are not stored.
      if (tile == begin) {
        wait(barriers.q_empty(), empty);
        if (leader) {
          arrive_expecting(barriers.q_full(), kTile.q_bytes());
          copy_panels<kTile.dim, kRows>(shared.q, copies.q, map_place(p, s, Role::kQ), first, place.head,
                                        barriers.q_full(), Keep::kFirstOut);
        }
      }
      wait(barriers.k_empty(k.stage), k.parity ^ 1);
      bring_tile<kTile.dim, kKeys>(
          {shared.k + k.stage * kTile.k_bytes(), barriers.k_full(k.stage), barriers.cleared()}, copies.k,
          k_place, tile * kKeys, kv_head, s.kv_len - tile * kKeys, Keep::kLastOut, cleared_parity);
      k.next();
      if (tile == begin) {
        wait(barriers.dout_empty(), empty);
        if (leader) {
          arrive_expecting(barriers.dout_full(), kTile.dout_bytes());
          copy_panels<kTile.v_dim, kRows>(shared.dout, copies.dout, map_place(p, s, Role::kDo), first,
                                          place.head, barriers.dout_full(), Keep::kFirstOut);
        }
      }
      wait(barriers.v_empty(v.stage), v.parity ^ 1);
      bring_tile<kTile.v_dim, kKeys>(
          {shared.v + v.stage * kTile.v_bytes(), barriers.v_full(v.stage), barriers.cleared()}, copies.v,
          v_place, tile * kKeys, kv_head, s.kv_len - tile * kKeys, Keep::kLastOut, cleared_parity);
      v.next();
    }
  }
}

/// The two rows of a thread in its warpgroup's accumulators.
template <bool kExtras>
struct DqRowNumbers {
  Span keys;  ///< of the band
  float lse[2], delta[2];
  float slope_log2;  ///< of ALiBi
  int diagonal;      ///< where the first row's distance is 0

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
    if constexpr (kExtras) {
      slope_log2 = alibi_slope(p, s, work.head) * kLog2e;
      diagonal = first_row + static_cast<int>(p.band.offset(s.q_len, s.kv_len));
    }
  }

  /// Makes scores in units of log2 of the products with keys `first_key` .., and of gradients of the weights
  /// those of the scaled products, but for the weights as factors.
  template <int kElements>
  __device__ __forceinline__ void bend(const Params& p, int first_key, float (&scores)[kElements],
                                       float (&gradients)[kElements]) const {
#pragma unroll
    for (int i = 0; i < kElements; ++i) gradients[i] -= delta[i / 2 % 2];
    bend_scores(p, scores, gradients);
    if (!p[Role::kAlibiSlopes].present) return;
    const int distance = first_key + static_cast<int>(threadIdx.x) % 4 * 2 - diagonal;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int further = i / 4 * 8 + i % 2 - i / 2 % 2 * 8;
      scores[i] = fmaf(slope_log2, static_cast<float>(distance + further), scores[i]);
    }
  }
};

/// Stores a finished tile of one warp: 16 rows through its own shared memory of v_dim columns, piece by
/// piece.
template <class T, HopperDqTile kTile>
__device__ __forceinline__ void store_dq(const Params& p, const DqWork& w, const float (&dq)[kTile.dim / 2],
                                         int first_row, uint32_t stage) {
  constexpr int kPanelBytes = kTile.rows * kPanelRowBytes;
  const Sequence& s = w.sequence;
  const int lane = made_anew(threadIdx.x) % 32;
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    factor[half] = first_row + lane / 4 + 8 * half < s.q_len ? p.scale : 0.0f;
  const RowBlock rows{w.head, first_row, min(rows_written(p[Role::kDq], s.q_len, p.q_len) - first_row, 16)};
  const auto store = [&]<int kFirst, int kColumns>() {
    stage_rows<T, kPanelBytes>(stage, part_of<kColumns / 2>(dq, kFirst / kColumns), factor, lane);
    __syncwarp();
    store_staged<T, kColumns, kPanelBytes>(p, s, Role::kDq, rows, stage, kFirst, lane);
    __syncwarp();
  };
  store.template operator()<0, kTile.v_dim>();
  if constexpr (kTile.dim > kTile.v_dim) store.template operator()<kTile.v_dim, kTile.dim - kTile.v_dim>();
}

/// One warpgroup of products.
template <class T, HopperDqTile kTile, bool kExtras>
__device__ inline void multiply_keys(const Params& p, const HopperCopies& copies,
                                     const DqShared<kTile>& shared, const DqBarriers<kTile>& barriers,
                                     const DqWork (&work)[DqWork::kSlots]) {
  constexpr int kRows = kTile.rows, kKeys = kTile.keys;
  const int group = product_group();
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t own_rows = static_cast<uint32_t>(group * 64 * kPanelRowBytes);
  const uint32_t stage = shared.dout + own_rows + static_cast<uint32_t>(warp * 16 * kPanelRowBytes);
  const auto release = [lane](uint32_t barrier) {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  };
  RingPlace<kTile.k_stages> k;
  RingPlace<kTile.v_stages> v;
  RingPlace<DqWork::kSlots> slot;
  for (int turn = 0; tile_of_turn(turn) < copies.tiles; ++turn, slot.next()) {
    wait(barriers.q_full(), static_cast<uint32_t>(turn & 1));
    const DqWork& w = work[slot.stage];
    const int first_row = w.first_row + group * 64 + warp * 16;
    const int begin = w.begin, end = w.end, full_begin = w.full_begin, full_end = w.full_end;
    if (begin == end) {
      wait(barriers.dout_full(), static_cast<uint32_t>(turn & 1));
      const int num_rows = min(rows_written(p[Role::kDq], w.sequence.q_len, p.q_len) - first_row, 16);
      store_zero_rows<T>(p, w.sequence, Role::kDq, {w.head, first_row, num_rows});
      release(barriers.q_empty()), release(barriers.dout_empty());  // last: they free `w`, too
      continue;
    }
    const DqRowNumbers<kExtras> rows(p, w, first_row + lane / 4);
    float dq[kTile.dim / 2] = {};
    for (int tile = begin; tile < end; ++tile) {
      float weights[kKeys / 2], gradients[kKeys / 2];
      uint32_t operand[kKeys / 16][4];
      const uint32_t keys = shared.k + k.stage * kTile.k_bytes();
      wait(barriers.k_full(k.stage), k.parity);
      start_row_products<T, kTile.dim, kRows, kKeys>(weights, shared.q + own_rows, keys);
      if (tile == begin) wait(barriers.dout_full(), static_cast<uint32_t>(turn & 1));
      wait(barriers.v_full(v.stage), v.parity);
      start_row_products<T, kTile.v_dim, kRows, kKeys>(gradients, shared.dout + own_rows,
                                                       shared.v + v.stage * kTile.v_bytes());
      wait_products<kExtras ? 0 : 1>();
      if (tile == end - 1) release(barriers.q_empty());
      if constexpr (kExtras) rows.bend(p, tile * kKeys, weights, gradients);
      if (tile * kKeys < full_begin || (tile + 1) * kKeys > full_end) rows.keys.mask(weights, tile * kKeys);
      const float to_log2 = kExtras ? 1.0f : p.scale_log2;
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i)
        weights[i] = exp2_fast(fmaf(weights[i], to_log2, -rows.lse[i / 2 % 2]));
      // The barrier has been passed already. Without this end of a block of instructions ptxas moves the wait
      // for dP before the exponentials that should run under it.
      if constexpr (!kExtras) wait(barriers.v_full(v.stage), v.parity);
      wait_products<0>();
      release(barriers.v_empty(v.stage));
      v.next();
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i)
        weights[i] *= kExtras ? gradients[i] : gradients[i] - rows.delta[i / 2 % 2];
      round_weights<T>(weights, operand);
      start_weighted_rows<T, kKeys>(dq, operand, keys);
      wait_products<0>();
      release(barriers.k_empty(k.stage));
      k.next();
    }
    meet(1 + group, kWarpgroup);  // its four warps have read dO, which the rows leave through
    store_dq<T, kTile>(p, w, dq, first_row, stage);
    fence_async_shared();
    release(barriers.dout_empty());
  }
}

template <class T, int kDim, bool kExtras>
__global__ void __launch_bounds__(HopperDqTile::threads, 1)
    hopper_dq(const __grid_constant__ Params p, const __grid_constant__ HopperCopies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr HopperDqTile kTile = hopper_dq_tile(kDim);
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  __shared__ uint64_t barrier_memory[DqBarriers<kTile>::kCount];
  __shared__ DqWork work[DqWork::kSlots];
  const DqShared<kTile> shared(shared_address(dynamic_shared));
  const DqBarriers<kTile> barriers{shared_address(barrier_memory)};
  if (threadIdx.x == 0) {
    barriers.init();
    prefetch_map(&copies.q), prefetch_map(&copies.k), prefetch_map(&copies.v), prefetch_map(&copies.dout);
  }
  // The launch before computes delta, or else dk and dv, of which this one reads nothing: its blocks fill
  // multiprocessors that those leave idle, and only its end must not come before theirs.
  if (!p[Role::kDk].present && !p[Role::kDv].present) await_previous();
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    shrink_registers<kTile.copy_registers>();
    if (threadIdx.x < 32) copy_tiles<kTile>(p, copies, shared, barriers, work);
    if (blockIdx.x == gridDim.x - 1) await_previous();
  } else {
    grow_registers<kTile.product_registers>();
    multiply_keys<T, kTile, kExtras>(p, copies, shared, barriers, work);
  }
#else
  __trap();  // no recipe for another target has it
#endif
}

}  // namespace attngraph::cuda
