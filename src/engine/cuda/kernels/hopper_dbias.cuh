#pragma once

#include "engine/cuda/kernels/dbias.cuh"
#include "engine/cuda/kernels/hopper_forward.cuh"

/// dbias for sm_90a of rows whose delta and log-sum-exp are known, where it has as many rows and keys as the
/// scores.
///
/// A block stays on its multiprocessor and takes one tile of 128 query rows by 128 keys of dbias after the
/// other. For each it passes over the sequences and query heads that share the bias, in ascending order. Its
/// first warpgroup copies Q, K, dO and V of each through a ring of buffers, on into the next tile; each of
/// the others owns 64 rows, whose sums stay in registers and leave from there.
///
///   S = Q K', P = exp(S - lse), dP = dO V', dbias += P (dP - delta)
///
/// Measured: H200, bf16, d128, 4 x 4,096 tokens, a bias of each head: backward with dbias 245 to 259 TFLOP/s,
/// without 414; attngraph bench --engine cuda --filter 'backward bf16 d128 s4096 dbias'.
namespace attngraph::cuda {

template <HopperDbiasTile kTile>
struct DbiasShared {
  uint32_t tiles, matrices;  ///< addresses, each of whole panels

  __device__ explicit DbiasShared(uint32_t base) {
    tiles = (base + 1023) / 1024 * 1024;
    matrices = tiles + kTile.stages * kTile.bytes();
  }
};

/// Addresses of the barriers that steps pass through.
template <HopperDbiasTile kTile>
struct DbiasBarriers {
  static constexpr int kSlots = 2;  ///< of HopperWork, one a step
  static constexpr int kCount = 1 + 2 * kSlots + 2 * kTile.stages;
  uint32_t base;

  __device__ uint32_t cleared() const { return base; }
  __device__ uint32_t work_full(int slot) const { return base + 8 + 16 * slot; }
  __device__ uint32_t work_empty(int slot) const { return base + 16 + 16 * slot; }
  __device__ uint32_t full(int stage) const { return work_full(kSlots + stage); }
  __device__ uint32_t empty(int stage) const { return work_empty(kSlots + stage); }

  /// By one thread, before the block meets.
  __device__ void init() const {
    constexpr int kWarps = 8;
    init_barrier(cleared(), 1);
    for (int at = 0; at < kSlots + kTile.stages; ++at)
      init_barrier(work_full(at), 1), init_barrier(work_empty(at), kWarps);
    fence_barrier_init();
  }
};

/// The copying warp. A step whose tile no pair sees does not reach the others; behind the last of a tile
/// comes one with a head below 0.
template <HopperDbiasTile kTile>
__device__ inline void copy_steps(const Params& p, const HopperCopies& copies,
                                  const DbiasShared<kTile>& shared, const DbiasBarriers<kTile>& barriers,
                                  HopperWork (&work)[DbiasBarriers<kTile>::kSlots]) {
  constexpr int kRows = kTile.scores.rows, kDim = kTile.scores.dim;
  RingPlace<kTile.stages> ring;
  RingPlace<DbiasBarriers<kTile>::kSlots> slot;
  uint32_t cleared_parity = 0;
  const auto hand_over = [&] {
    if (threadIdx.x == 0) arrive(barriers.work_full(slot.stage));
    slot.next();
  };
  const auto describe = [&](const HopperPlace& place) -> const HopperWork& {
    HopperWork& w = work[slot.stage];
    wait(barriers.work_empty(slot.stage), slot.parity ^ 1);
    __syncwarp();  // all have read the step that stays here because it is not seen
    describe_tile<kTile.scores>(p, place, /*box_rows=*/0, nullptr, w);
    return w;
  };
  for (int turn = 0; tile_of_turn(turn) < copies.tiles; ++turn) {
    const DbiasTile tile(p, kRows, static_cast<unsigned>(tile_of_turn(turn)));
    HopperPlace place;
    for (int batch = tile.batch_begin; batch < tile.batch_end; ++batch)
      for (int head = tile.head_begin; head < tile.head_end; ++head) {
        place.tile = tile.tile_i, place.head = head, place.batch = batch;
        const HopperWork& w = describe(place);
        if (tile.tile_j < w.begin || tile.tile_j >= w.end) continue;
        hand_over();
        const Sequence& s = w.sequence;
        const auto bring = [&](const TensorMap& map, Role role, int of_head, int first, int rows) {
          wait(barriers.empty(ring.stage), ring.parity ^ 1);
          bring_tile<kDim, kRows>(
              {shared.tiles + ring.stage * kTile.bytes(), barriers.full(ring.stage), barriers.cleared()}, map,
              map_place(p, s, role), first, of_head, rows - first, Keep::kLastOut, cleared_parity);
          ring.next();
        };
        const int kv_head = static_cast<int>(p.by_group.quotient(static_cast<uint32_t>(head)));
        const int first_row = tile.tile_i * kRows, first_key = tile.tile_j * kRows;
        bring(copies.q, Role::kQ, head, first_row, s.q_len);
        bring(copies.k, Role::kK, kv_head, first_key, s.kv_len);
        bring(copies.dout, Role::kDo, head, first_row, s.q_len);
        bring(copies.v, Role::kV, kv_head, first_key, s.kv_len);
      }
    place.head = -1;
    describe(place);
    hand_over();
  }
}

/// Two neighbouring elements.
template <class T>
__device__ __forceinline__ void store_pair(T* to, float first, float second) {
  if constexpr (std::is_same_v<T, float>)
    *reinterpret_cast<float2*>(to) = {first, second};
  else
    *reinterpret_cast<uint32_t*>(to) = pack<T>(first, second);
}

/// Stores a thread's sums, of rows `row` and the eighth after it, its first keys `key` and the next.
template <class T, int kElements>
__device__ __forceinline__ void store_dbias(const Params& p, const DbiasPlane& plane, int row, int key,
                                            const float (&sums)[kElements]) {
  const TensorView& out = p[Role::kDbias];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= out.extent[2]) continue;
    T* to = plane.at<T>(row + 8 * half, key);
    const bool pairs =
        plane.key_stride == 1 && !plane.adds && reinterpret_cast<uintptr_t>(to) % (2 * sizeof(T)) == 0;
#pragma unroll
    for (int n = 0; n < kElements / 4; ++n, to += 8 * plane.key_stride) {
      const int left = out.extent[3] - key - 8 * n;
      const float first = sums[4 * n + 2 * half], second = sums[4 * n + 2 * half + 1];
      if (pairs && left >= 2) {
        store_pair(to, first, second);
      } else {
        if (left >= 1) plane.put(to, first);
        if (left >= 2) plane.put(to + plane.key_stride, second);
      }
    }
  }
}

/// One warpgroup of products.
template <class T, HopperDbiasTile kTile>
__device__ inline void sum_steps(const Params& p, const HopperCopies& copies,
                                 const DbiasShared<kTile>& shared, const DbiasBarriers<kTile>& barriers,
                                 const HopperWork (&work)[DbiasBarriers<kTile>::kSlots]) {
  constexpr int kRows = kTile.scores.rows, kKeys = kTile.scores.keys, kDim = kTile.scores.dim;
  using Matrices = MatrixBlock<16, kKeys>;
  const int group = product_group();
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t own_rows = static_cast<uint32_t>(group * 64 * kPanelRowBytes);
  const Matrices block{p, shared.matrices + static_cast<uint32_t>((group * 4 + warp) * Matrices::kBytes)};
  const auto release = [lane](uint32_t barrier) {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  };
  RingPlace<kTile.stages> ring;
  RingPlace<DbiasBarriers<kTile>::kSlots> slot;
  /// Waits for the next buffer of the ring.
  const auto next_tile = [&] {
    const int stage = ring.stage;
    wait(barriers.full(stage), ring.parity);
    ring.next();
    return stage;
  };
  const auto address = [&](int stage) { return shared.tiles + stage * kTile.bytes(); };
  for (int turn = 0; tile_of_turn(turn) < copies.tiles; ++turn) {
    const DbiasTile tile(p, kRows, static_cast<unsigned>(tile_of_turn(turn)));
    const int first_row = tile.tile_i * kRows + group * 64 + warp * 16, first_key = tile.tile_j * kKeys;
    float sums[kKeys / 2] = {};
    int rows_brought = 0, keys_brought = 0;  // of the bias, which all steps of a tile share
    for (;; slot.next()) {
      wait(barriers.work_full(slot.stage), slot.parity);
      const HopperWork& w = work[slot.stage];
      const Sequence& s = w.sequence;
      const int head = static_cast<int>(uniform(static_cast<uint32_t>(w.head)));
      if (head < 0) break;
      // Rows behind the sequence are zeroed, as their bias may hold anything; keys are masked.
      if (p[Role::kMask].present || s.q_len != rows_brought || s.kv_len > keys_brought) {
        block.bring(copies, s, head, first_row, first_key);
        rows_brought = s.q_len, keys_brought = s.kv_len;
      }
      uint32_t kept[kKeys / 64] = {};
      if (drops(p)) draw_query_rows(p, s, head, first_row + lane / 4, first_key, kept);
      const HopperRows<Scores::kRead> rows(p, w, w.first_row + group * 64 + warp * 16 + lane / 4);
      float lse[2], delta[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const RowSums of_row = row_sums(p, s, head, first_row + lane / 4 + 8 * half);
        lse[half] = of_row.lse, delta[half] = of_row.delta;
      }
      float scores[kKeys / 2], gradients[kKeys / 2];
      const int q = next_tile(), k = next_tile();
      start_row_products<T, kDim, kRows, kKeys>(scores, address(q) + own_rows, address(k));
      const int dout = next_tile(), v = next_tile();
      start_row_products<T, kDim, kRows, kKeys>(gradients, address(dout) + own_rows, address(v));
      wait_products<1>();
      release(barriers.empty(q)), release(barriers.empty(k));
      block.arrive();
      rows.read(p, block, scores, first_key);
      rows.mask(scores, first_key, w.full_begin, w.full_end);
      release(barriers.work_empty(slot.stage));
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) scores[i] = exp2_fast((scores[i] - lse[i / 2 % 2]) * kLog2e);
      wait_products<0>();
      release(barriers.empty(dout)), release(barriers.empty(v));
      if (drops(p)) {
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i)
          gradients[i] = is_kept(kept, i) ? gradients[i] * p.dropout_scale : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) sums[i] = fmaf(scores[i], gradients[i] - delta[i / 2 % 2], sums[i]);
    }
    release(barriers.work_empty(slot.stage));
    slot.next();
    const DbiasPlane plane = tile.plane(p);
    plane.with_type([&](auto type) {
      store_dbias<decltype(type)>(p, plane, first_row + lane / 4, first_key + lane % 4 * 2, sums);
    });
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(hopper_dbias_tile(kDim).scores.threads, 1)
    hopper_dbias(const __grid_constant__ Params p, const __grid_constant__ HopperCopies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr HopperDbiasTile kTile = hopper_dbias_tile(kDim);
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  __shared__ uint64_t barrier_memory[DbiasBarriers<kTile>::kCount];
  __shared__ HopperWork work[DbiasBarriers<kTile>::kSlots];
  static_assert(sizeof(barrier_memory) + sizeof(work) <= kHopperTableBytes);
  const DbiasShared<kTile> shared(shared_address(dynamic_shared));
  const DbiasBarriers<kTile> barriers{shared_address(barrier_memory)};
  if (threadIdx.x == 0) {
    barriers.init();
    prefetch_map(&copies.q), prefetch_map(&copies.k), prefetch_map(&copies.v), prefetch_map(&copies.dout);
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    shrink_registers<kTile.scores.copy_registers>();
    if (threadIdx.x < 32) copy_steps<kTile>(p, copies, shared, barriers, work);
  } else {
    grow_registers<kTile.scores.product_registers>();
    sum_steps<T, kTile>(p, copies, shared, barriers, work);
  }
#else
  __trap();  // no recipe for another target has it
#endif
}

}  // namespace attngraph::cuda
