#pragma once

#include "engine/cuda/kernels/hopper_matrices.cuh"

/// Forward for sm_90a: o = softmax(scale Q K^T within the band) V, an instance of its own with softcap and
/// ALiBi.
///
/// A block stays on its multiprocessor and takes one tile of `rows` query rows of one head after the other.
/// Its first warpgroup copies: Q once a tile, K and V through rings of `stages` buffers, keys from right to
/// left. Each other warpgroup owns 64 rows: scores, weights and o stay in registers; o leaves through a
/// buffer of its own, so that the next tile's Q and keys arrive meanwhile, or through Q's where heads are
/// wide, so that the next tile's first keys do.
///
/// Pipeline of a warpgroup: Q K(n)^T and weights(n+1) V(n+1) are started together; softmax(n) runs under the
/// second. At dim 128 the warpgroups take turns in starting products, so that one's softmax runs under the
/// other's; elsewhere they find that order better alone.
///
/// Measured: H200, bf16, 4,096 tokens, TFLOP/s full and causal: d64 460 and 389, d128 643 and 589, d256 714
/// and 655, d192 with v of 128 599 causal; attngraph bench --engine cuda --filter gpu/forward.
namespace attngraph::cuda {

/// What the copying warp tells the others about a tile. Of kSlots, one is what it writes while one warpgroup
/// may still store the tile before the last.
struct HopperWork {
  static constexpr int kSlots = 3;

  Sequence sequence;
  int head, first_row;
  MapPlace k_place, v_place;
  int begin, end;                             ///< tiles of keys that some row sees
  int full_begin, full_end;                   ///< keys that every row sees
  static constexpr int kAbsent = 0x7fffffff;  ///< full_begin of a sequence with absent pages
};

template <HopperTile kTile>
struct HopperShared {
  uint32_t q, k, v, o, matrices;  ///< addresses, each of whole panels

  __device__ explicit HopperShared(uint32_t base) {
    q = (base + 1023) / 1024 * 1024;
    k = q + kTile.q_bytes();
    v = k + kTile.stages * kTile.k_bytes();
    o = kTile.o_in_q ? q : v + kTile.stages * kTile.v_bytes();
    matrices = v + kTile.stages * kTile.v_bytes() + kTile.o_bytes();
  }
};

/// Addresses of the barriers that a tile passes through.
template <HopperTile kTile>
struct HopperBarriers {
  uint32_t base;

  __device__ uint32_t q_full() const { return base; }
  __device__ uint32_t q_empty() const { return base + 8; }
  __device__ uint32_t cleared() const { return base + 16; }  ///< a tail of V that is still to be zeroed
  __device__ uint32_t k_full(int stage) const { return base + 24 + 32 * stage; }
  __device__ uint32_t k_empty(int stage) const { return base + 32 + 32 * stage; }
  __device__ uint32_t v_full(int stage) const { return base + 40 + 32 * stage; }
  __device__ uint32_t v_empty(int stage) const { return base + 48 + 32 * stage; }
  static constexpr int kCount = 3 + 4 * kTile.stages;
};

/// Whether a key of the sequence is on a page outside of its container; pages are whole pieces of
/// `box_rows` keys.
__device__ inline bool warp_lacks_pages(const Params& p, const Sequence& s, int box_rows) {
  bool lacks = false;
#pragma unroll 1
  for (int key = static_cast<int>(threadIdx.x) % 32 * box_rows; key < s.kv_len; key += 32 * box_rows)
    lacks |= is_absent(p, s, 0, key);
  return __any_sync(0xffffffffu, lacks);
}
/// Scores of keys on such pages, which are whole groups of 8 keys, become -inf.
template <int kElements>
__device__ __forceinline__ void mask_absent(const Params& p, const Sequence& s, float (&scores)[kElements],
                                            int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32, key = first_key + 8 * lane;
  const uint32_t absent =
      __ballot_sync(0xffffffffu, lane < kElements / 4 && key < s.kv_len && is_absent(p, s, 0, key));
#pragma unroll
  for (int i = 0; i < kElements; ++i)
    if (absent >> i / 4 & 1) scores[i] = -kInf;
}

/// The copying warp: all tiles of the block.
template <HopperTile kTile>
__device__ inline void copy_tiles(const Params& p, const HopperCopies& copies,
                                  const HopperShared<kTile>& shared, const HopperBarriers<kTile>& barriers,
                                  HopperWork (&work)[HopperWork::kSlots]) {
  constexpr int kRows = kTile.rows(), kKeys = kTile.keys;
  const int lane = static_cast<int>(threadIdx.x), piece_rows = copies.key_box_rows;
  const bool leader = lane == 0, is_paged = p[Role::kPageTableK].present;
  RingPlace<kTile.stages> k, v;
  uint32_t cleared_parity = 0;
  for (int turn = 0; tile_of_turn(turn) < copies.tiles; ++turn) {
    const HopperPlace place(p, copies, p.kv_head_count * p.group, p.kv_head_begin * p.group,
                            tile_of_turn(turn));
    HopperWork& w = work[turn % HopperWork::kSlots];
    warp_loads_sequence(p, place.batch, w.sequence);
    const Sequence& s = w.sequence;
    const int first = place.tile * kRows, last = first + kRows - 1;
    const KeySpan seen = span_seen(p, s, first, last);
    const int begin = seen.begin / kKeys, end = (seen.end + kKeys - 1) / kKeys;
    const int kv_head = static_cast<int>(p.by_group.quotient(static_cast<uint32_t>(place.head)));
    bool lacks_pages = false;
    if (is_paged) {
      const HopperWork& before = work[(turn + HopperWork::kSlots - 1) % HopperWork::kSlots];
      lacks_pages = turn > 0 && before.sequence.batch == place.batch
                        ? before.full_begin == HopperWork::kAbsent
                        : warp_lacks_pages(p, s, piece_rows);
    }
    if (leader) {
      w.head = place.head, w.first_row = first;
      w.k_place = map_place(p, s, Role::kK), w.v_place = map_place(p, s, Role::kV);
      w.begin = begin, w.end = max(begin, end);
      w.full_begin =
          lacks_pages ? HopperWork::kAbsent : static_cast<int>(band_keys(p, s, min(last, s.q_len - 1)).begin);
      w.full_end = static_cast<int>(band_keys(p, s, first).end);
    }
    const MapPlace q_place = map_place(p, s, Role::kQ);
    const auto copy_q = [&](bool has_keys) {
      wait(barriers.q_empty(), static_cast<uint32_t>(turn & 1) ^ 1);
      if (!leader) return;
      if (!has_keys) return arrive(barriers.q_full());
      arrive_expecting(barriers.q_full(), kTile.q_bytes());
      copy_panels<kTile.dim, kRows>(shared.q, copies.q, q_place, first, place.head, barriers.q_full(),
                                    Keep::kFirstOut);
    };
    __syncwarp();
    const int kv_len = s.kv_len;
    const auto copy_k = [&](int tile) {
      PageRow at{w.k_place.batch, w.k_place.row + tile * kKeys};
      if (is_paged) at = key_pages(p, s, tile * kKeys + lane * piece_rows).k;
      wait(barriers.k_empty(k.stage), k.parity ^ 1);
      copy_pieces<kTile.dim, kKeys>(
          {shared.k + k.stage * kTile.k_bytes(), barriers.k_full(k.stage), piece_rows}, copies.k, at, kv_head,
          Keep::kLastOut);
      k.next();
    };
    const auto copy_v = [&](int tile) {
      PageRow at{w.v_place.batch, w.v_place.row + tile * kKeys};
      if (is_paged) at = key_pages(p, s, tile * kKeys + lane * piece_rows).v;
      const uint32_t to = shared.v + v.stage * kTile.v_bytes();
      wait(barriers.v_empty(v.stage), v.parity ^ 1);
      bring_tile<kTile.v_dim, kKeys>(
          {to, barriers.v_full(v.stage), barriers.cleared()}, kv_len - tile * kKeys, cleared_parity,
          [&](uint32_t barrier) {
            copy_pieces<kTile.v_dim, kKeys>({to, barrier, piece_rows}, copies.v, at, kv_head, Keep::kLastOut);
          });
      v.next();
    };
    for (int tile = end - 1; tile >= begin; --tile) {
      copy_k(tile);
      if (tile + 1 < end)
        copy_v(tile + 1);
      else
        copy_q(true);
    }
    if (begin < end)
      copy_v(begin);
    else
      copy_q(false);
  }
}

/// The two rows of a thread in its warpgroup's accumulators. Bent, products become scores in units of log2
/// before the maximum is taken: through softcap and ALiBi, or by a scale that turns their order; where scores
/// read a bias or a mask, in natural units.
template <Scores kScores>
struct HopperRows {
  static constexpr float kPerNatural = kScores == Scores::kBent ? kLog2e : 1.0f;  ///< of a score once bent

  float maximum[2] = {-kInf, -kInf};
  float sum[2] = {0.0f, 0.0f};  ///< of this thread's columns
  Span keys;                    ///< of the band
  float slope[2];               ///< of ALiBi, in the scores' unit
  int diagonal[2];              ///< where its distance is 0

  /// Rows `first_row` and the eighth after it.
  __device__ HopperRows(const Params& p, const Sequence& s, int head, int first_row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const QueryRow row = query_row(p, s, head, first_row + 8 * half);
      keys.begin[half] = row.begin, keys.end[half] = row.end;
      slope[half] = row.slope * kPerNatural, diagonal[half] = row.diagonal;
    }
  }

  /// What a score is multiplied by for units of log2, and a maximum for natural units.
  __device__ static float to_log2(const Params& p) {
    return kScores == Scores::kPlain ? p.scale_log2 : kLog2e / kPerNatural;
  }
  __device__ static float to_natural(const Params& p) {
    if (kScores == Scores::kRead) return 1.0f;
    return kScores == Scores::kPlain ? p.scale : kLn2;
  }

  template <int kElements>
  __device__ __forceinline__ void bend(const Params& p, float (&scores)[kElements], int first_key) const {
    static_assert(kScores != Scores::kPlain);
    if (p.softcap > 0.0f) {
      Softcap softcap(p.softcap, p.scale_log2);
      if constexpr (kScores == Scores::kRead) softcap.cap = p.softcap;
#pragma unroll
      for (int i = 0; i < kElements; ++i) scores[i] = softcap.score(softcap.share(scores[i]));
    } else {
#pragma unroll
      for (int i = 0; i < kElements; ++i) scores[i] *= kScores == Scores::kRead ? p.scale : p.scale_log2;
    }
    if (!p[Role::kAlibiSlopes].present) return;
    const int column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int half = i / 2 % 2, distance = column + i / 4 * 8 + i % 2 - diagonal[half];
      scores[i] = fmaf(slope[half], static_cast<float>(distance), scores[i]);
    }
  }

  /// Products become scores with what they read.
  template <class Block, int kElements>
  __device__ __forceinline__ void read(const Params& p, const Block& block, float (&scores)[kElements],
                                       int first_key) const {
    const bool bends = p.softcap > 0.0f || p[Role::kAlibiSlopes].present || !p[Role::kBias].present;
    if (bends) bend(p, scores, first_key);
    const float factor = bends ? 1.0f : p.scale;
    if (p[Role::kBias].present)
      block.each_bias([&](int i, float bias) { scores[i] = fmaf(scores[i], factor, bias); });
    if (p[Role::kMask].present) block.each_masked([&](int i) { scores[i] = -kInf; });
  }

  /// Scores become weights relative to the new maximum; `shrink` is what earlier sums must shrink by.
  template <int kElements>
  __device__ __forceinline__ void weigh(const Params& p, float (&scores)[kElements], float (&shrink)[2]) {
    float top[2] = {maximum[0], maximum[1]};
#pragma unroll
    for (int i = 0; i < kElements; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[i]);
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = lanes_max<4>(top[half]);
      shift[half] = top[half] == -kInf ? 0.0f : top[half] * to_log2(p);
      shrink[half] = exp2_fast(maximum[half] * to_log2(p) - shift[half]);
      maximum[half] = top[half];
      sum[half] *= shrink[half];
    }
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      scores[i] = exp2_fast(fmaf(scores[i], to_log2(p), -shift[i / 2 % 2]));
      sum[i / 2 % 2] += scores[i];
    }
  }
};

/// Stores a finished tile of one warp: 16 rows through its own shared memory, then whole rows.
template <class T, HopperTile kTile, Scores kScores>
__device__ inline void store_rows(const Params& p, const HopperWork& w, const HopperRows<kScores>& rows,
                                  const float (&o)[kTile.v_dim / 2], int first_row, uint32_t stage) {
  constexpr int kPanelBytes = kTile.rows() * kPanelRowBytes;
  const Sequence& s = w.sequence;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float factor[2];
  __syncwarp();  // the rows of the tile before have left
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int local = lane / 4 + 8 * half, row = first_row + local;
    const float sum = lanes_sum<4>(rows.sum[half]);
    RowResult result;
    if (row < s.q_len) result = finish_row(p, w.head, rows.maximum[half] * rows.to_natural(p), sum);
    if (lane % 4 == 0) store_stats(p, s, w.head, row, result.lse);
    factor[half] = result.o_scale;
    if constexpr (kScores == Scores::kRead) factor[half] *= p.dropout_scale;
  }
  stage_rows<T, kPanelBytes>(stage, o, factor);
  __syncwarp();
  const int num_rows = min(rows_written(p[Role::kO], s.q_len, p.q_len) - first_row, 16);
  store_staged<T, kTile.v_dim, kPanelBytes>(p, s, Role::kO, {w.head, first_row, num_rows}, stage);
}

/// One warpgroup of products: all tiles of the block.
template <class T, HopperTile kTile, Scores kScores>
__device__ inline void multiply_tiles(const Params& p, const HopperCopies& copies,
                                      const HopperShared<kTile>& shared,
                                      const HopperBarriers<kTile>& barriers,
                                      const HopperWork (&work)[HopperWork::kSlots]) {
  constexpr int kKeys = kTile.keys;
  const int group = product_group();
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t q = shared.q + static_cast<uint32_t>(group * 64 * kPanelRowBytes);
  const uint32_t stage = shared.o + static_cast<uint32_t>((group * 64 + warp * 16) * kPanelRowBytes);
  [[maybe_unused]] const uint32_t matrices =
      shared.matrices + static_cast<uint32_t>((group * 4 + warp) * MatrixBlock<16, kKeys>::kBytes);
  const int own_rows = 1 + kTile.consumers + group, own_turn = 1 + group,
            next_turn = 1 + (group + 1) % kTile.consumers;
  constexpr int kTurnThreads = 2 * kWarpgroup;
  if (kTile.takes_turns && group == kTile.consumers - 1) announce(next_turn, kTurnThreads);
  const auto release = [lane](uint32_t barrier) {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  };

  RingPlace<kTile.stages> k, v;
  for (int turn = 0; tile_of_turn(turn) < copies.tiles; ++turn) {
    wait(barriers.q_full(), static_cast<uint32_t>(turn & 1));
    const HopperWork& w = work[turn % HopperWork::kSlots];
    const int first_row = w.first_row + group * 64 + warp * 16;
    HopperRows<kScores> rows(p, w.sequence, w.head, first_row + lane / 4);
    const int begin = w.begin, end = w.end, full_begin = w.full_begin, full_end = w.full_end;
    float o[kTile.v_dim / 2] = {};
    if (begin < end) {
      float scores[kKeys / 2], shrink[2];
      uint32_t weights[kKeys / 16][4];
      [[maybe_unused]] const MatrixBlock<16, kKeys> block{p, matrices};
      [[maybe_unused]] uint32_t kept[kKeys / 64] = {};
      // What a tile of scores needs besides its products, on its way or done before they are.
      const auto prepare = [&](int tile) {
        if constexpr (kScores == Scores::kRead)
          if (drops(p)) draw_query_rows(p, w.sequence, w.head, first_row + lane / 4, tile * kKeys, kept);
      };
      const auto soften = [&](int tile) {
        if constexpr (kScores == Scores::kBent) rows.bend(p, scores, tile * kKeys);
        if constexpr (kScores == Scores::kRead) {
          block.arrive();
          rows.read(p, block, scores, tile * kKeys);
          if (tile > begin) block.bring(copies, w.sequence, w.head, first_row, (tile - 1) * kKeys);
        }
        if (tile * kKeys < full_begin || (tile + 1) * kKeys > full_end) {
          rows.keys.mask(scores, tile * kKeys);
          if (full_begin == HopperWork::kAbsent) mask_absent(p, w.sequence, scores, tile * kKeys);
        }
        rows.weigh(p, scores, shrink);
        if constexpr (kScores == Scores::kRead)
          if (drops(p)) {
#pragma unroll
            for (int i = 0; i < kKeys / 2; ++i)
              if ((kept[i / 32] >> i % 32 & 1) == 0) scores[i] = 0.0f;
          }
      };
      if constexpr (kScores == Scores::kRead)
        block.bring(copies, w.sequence, w.head, first_row, (end - 1) * kKeys);
      wait(barriers.k_full(k.stage), k.parity);
      start_row_products<T, kTile.dim, kTile.rows(), kKeys>(scores, q, shared.k + k.stage * kTile.k_bytes());
      prepare(end - 1);
      wait_products<0>();
      release(barriers.k_empty(k.stage));
      k.next();
      soften(end - 1);
      // The wait for a tile's product with V stands in the next turn of the loop: within one block of
      // instructions ptxas moves it before the softmax that should run under that product.
      for (int tile = end - 1;; --tile) {
        wait_products<0>();
        if (tile < end - 1) release(barriers.v_empty(v.stage)), v.next();
#pragma unroll
        for (int i = 0; i < kTile.v_dim / 2; ++i) o[i] *= shrink[i / 2 % 2];
        round_weights<T>(scores, weights);
        if (tile == begin) break;
        wait(barriers.k_full(k.stage), k.parity);
        if constexpr (kTile.takes_turns) meet(own_turn, kTurnThreads);
        start_row_products<T, kTile.dim, kTile.rows(), kKeys>(scores, q,
                                                              shared.k + k.stage * kTile.k_bytes());
        wait(barriers.v_full(v.stage), v.parity);
        start_weighted_rows<T, kKeys>(o, weights, shared.v + v.stage * kTile.v_bytes());
        if constexpr (kTile.takes_turns) announce(next_turn, kTurnThreads);
        prepare(tile - 1);
        wait_products<1>();
        release(barriers.k_empty(k.stage));
        k.next();
        soften(tile - 1);
      }
      if constexpr (!kTile.o_in_q) release(barriers.q_empty());
      wait(barriers.v_full(v.stage), v.parity);
      start_weighted_rows<T, kKeys>(o, weights, shared.v + v.stage * kTile.v_bytes());
      wait_products<0>();
      release(barriers.v_empty(v.stage));
      v.next();
    } else if constexpr (!kTile.o_in_q) {
      release(barriers.q_empty());
    }
    if constexpr (kTile.o_in_q) meet(own_rows, kWarpgroup);  // its four warps have read Q
    store_rows<T, kTile, kScores>(p, w, rows, o, first_row, stage);
    if constexpr (kTile.o_in_q) fence_async_shared(), release(barriers.q_empty());
  }
}

template <class T, int kDim, int kRows, Scores kScores>
__global__ void __launch_bounds__(hopper_forward_tile(kDim, kRows, kScores).threads(), 1)
    hopper_forward(const __grid_constant__ Params p, const __grid_constant__ HopperCopies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr HopperTile kTile = hopper_forward_tile(kDim, kRows, kScores);
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  __shared__ uint64_t barrier_memory[HopperBarriers<kTile>::kCount];
  __shared__ HopperWork work[HopperWork::kSlots];
  const HopperShared<kTile> shared(shared_address(dynamic_shared));
  const HopperBarriers<kTile> barriers{shared_address(barrier_memory)};
  if (threadIdx.x == 0) {
    constexpr int kWarps = 4 * kTile.consumers;
    init_barrier(barriers.q_full(), 1), init_barrier(barriers.q_empty(), kWarps);
    init_barrier(barriers.cleared(), 1);
    for (int stage = 0; stage < kTile.stages; ++stage) {
      init_barrier(barriers.k_full(stage), 1), init_barrier(barriers.k_empty(stage), kWarps);
      init_barrier(barriers.v_full(stage), 1), init_barrier(barriers.v_empty(stage), kWarps);
    }
    fence_barrier_init();
    prefetch_map(&copies.q), prefetch_map(&copies.k), prefetch_map(&copies.v);
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    shrink_registers<kTile.copy_registers()>();
    if (threadIdx.x < 32) copy_tiles<kTile>(p, copies, shared, barriers, work);
  } else {
    grow_registers<kTile.product_registers()>();
    multiply_tiles<T, kTile, kScores>(p, copies, shared, barriers, work);
  }
#endif
}

}  // namespace attngraph::cuda
