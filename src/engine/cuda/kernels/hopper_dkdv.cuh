#pragma once

#include "engine/cuda/kernels/hopper_tiles.cuh"

/// dk and dv for sm_90a where the sums of either of 64 keys alone fill a warpgroup's registers, an instance
/// of its own with softcap, ALiBi and any scale.
///
/// A block stays on its multiprocessor and takes one tile of 64 keys of one kv head after the other. It
/// passes over the query rows of all heads of the group that see them. Its first warpgroup copies K and V
/// once a tile, Q, dO, log-sum-exp and delta through rings of buffers. One warpgroup computes P' and sums dv,
/// the other dP' and dS' and sums dk. Both hold the same fragments of keys by queries, so P', times the slope
/// of the scores, goes from one to the other in register order.
///
///   first:   S' = K Q', P' = exp(scale S' - lse), dV += P' dO
///   second:  dP' = V dO', dS' = P' (dP' - delta), dK += dS' Q
///
/// Pipeline: S' of the next step runs beside dK; dP' waits for it and runs under the exponentials, dV under
/// dS'. With 128 queries a step, exponentials of the second half run under the products of the first. The
/// next tile's keys and rows arrive while the sums leave through the last buffers of Q and dO.
/// hopper_dq.cuh has what was measured.
namespace attngraph::cuda {

template <HopperDkdvTile kTile>
struct DkdvShared {
  uint32_t k, v, q, dout, weights;  ///< addresses, all but the last of whole panels

  __device__ explicit DkdvShared(uint32_t base) {
    k = (base + 1023) / 1024 * 1024;
    v = k + kTile.k_bytes();
    q = v + kTile.v_bytes();
    dout = q + kTile.stages * kTile.q_bytes();
    weights = dout + kTile.stages * kTile.dout_bytes();
  }
};

/// What the copying warp tells the others about a tile. Of kSlots, one is what it writes while the sums of
/// the tile before the last still leave.
struct DkdvWork {
  static constexpr int kSlots = 3;

  Sequence sequence;
  int kv_head, first_key;
  int begin, end;            ///< tiles of queries that see some key, the same for every head of the group
  int full_begin, full_end;  ///< queries that see every key
};

/// The numbers of the rows in the buffers of Q.
template <HopperDkdvTile kTile>
struct DkdvRows {
  alignas(8) float lse[kTile.stages][kTile.q_rows];  ///< times log2(e)
  alignas(8) float delta[kTile.stages][kTile.q_rows];
};

/// Addresses of the barriers that a block's tiles pass through.
template <HopperDkdvTile kTile>
struct DkdvBarriers {
  uint32_t base;

  __device__ uint32_t k_full() const { return base; }
  __device__ uint32_t k_empty() const { return base + 8; }
  __device__ uint32_t v_full() const { return base + 16; }
  __device__ uint32_t v_empty() const { return base + 24; }
  __device__ uint32_t cleared() const { return base + 32; }
  __device__ uint32_t located(int slot) const { return base + 40 + 8 * slot; }
  __device__ uint32_t weights_full(int part) const { return base + 64 + 16 * part; }
  __device__ uint32_t weights_empty(int part) const { return base + 72 + 16 * part; }
  __device__ uint32_t q_full(int stage) const { return base + 96 + 40 * stage; }
  __device__ uint32_t q_empty(int stage) const { return base + 104 + 40 * stage; }
  __device__ uint32_t dout_full(int stage) const { return base + 112 + 40 * stage; }
  __device__ uint32_t dout_empty(int stage) const { return base + 120 + 40 * stage; }
  __device__ uint32_t scores_done(int stage) const { return base + 128 + 40 * stage; }
  static_assert(DkdvWork::kSlots == 3 && HopperDkdvTile::parts_kept == 2);
  static constexpr int kCount = 12 + 5 * kTile.stages;

  /// By one thread, before the block meets.
  __device__ void init() const {
    constexpr int kWarps = 4;  // of a warpgroup
    init_barrier(k_full(), 1), init_barrier(k_empty(), kWarps + 1);
    init_barrier(v_full(), 1), init_barrier(v_empty(), kWarps);
    init_barrier(cleared(), 1);
    for (int slot = 0; slot < DkdvWork::kSlots; ++slot) init_barrier(located(slot), 1);
    for (int part = 0; part < HopperDkdvTile::parts_kept; ++part)
      init_barrier(weights_full(part), kWarps), init_barrier(weights_empty(part), kWarps);
    for (int stage = 0; stage < kTile.stages; ++stage) {
      init_barrier(q_full(stage), 2), init_barrier(q_empty(stage), 2 * kWarps);
      init_barrier(dout_full(stage), 1), init_barrier(dout_empty(stage), 2 * kWarps);
      init_barrier(scores_done(stage), kWarps);
    }
    fence_barrier_init();
  }
};

/// The warp that copies K and V of each tile, and Q and dO of each step.
template <HopperDkdvTile kTile>
__device__ inline void copy_tiles(const Params& p, const HopperCopies& copies,
                                  const DkdvShared<kTile>& shared, const DkdvBarriers<kTile>& barriers,
                                  DkdvWork (&work)[DkdvWork::kSlots]) {
  constexpr int kRows = kTile.q_rows, kKeys = kTile.keys;
  const bool leader = threadIdx.x == 0;
  RingPlace<kTile.stages> ring;
  RingPlace<DkdvWork::kSlots> slot;
  uint32_t cleared_parity = 0;
  for (int turn = 0; tile_of_turn(turn) < copies.tiles; ++turn, slot.next()) {
    const HopperPlace place(p, copies, p.kv_head_count, p.kv_head_begin, tile_of_turn(turn));
    DkdvWork& w = work[slot.stage];
    warp_loads_sequence(p, place.batch, w.sequence);
    const Sequence& s = w.sequence;
    const int first = (p.row_tiles - 1 - place.tile) * kKeys, last = first + kKeys - 1;
    const KeySpan seeing = span_seeing(p, s, first, last);
    const int begin = seeing.begin / kRows;
    const int end = seeing.begin < seeing.end ? (seeing.end + kRows - 1) / kRows : begin;
    if (leader) {
      w.kv_head = place.head, w.first_key = first;
      w.begin = begin, w.end = end;
      w.full_begin = span_seeing(p, s, last, last).begin;
      w.full_end = last < s.kv_len ? span_seeing(p, s, first, first).end : 0;
      arrive(barriers.located(slot.stage));
    }
    const uint32_t empty = static_cast<uint32_t>(turn & 1) ^ 1;
    if (begin == end) {
      wait(barriers.k_empty(), empty), wait(barriers.v_empty(), empty);
      if (leader) arrive(barriers.k_full()), arrive(barriers.v_full());
      continue;
    }
    const int num_keys = s.kv_len - first, first_head = place.head * p.group;
    for (int head = first_head; head < first_head + p.group; ++head)
      for (int tile = begin; tile < end; ++tile) {
        const bool is_first = head == first_head && tile == begin;
        const int row = tile * kRows, num_rows = s.q_len - row;
        wait(barriers.q_empty(ring.stage), ring.parity ^ 1);
        bring_tile<kTile.dim, kRows>(
            {shared.q + ring.stage * kTile.q_bytes(), barriers.q_full(ring.stage), barriers.cleared()},
            copies.q, map_place(p, s, Role::kQ), row, head, num_rows, Keep::kLastOut, cleared_parity);
        if (is_first) {
          wait(barriers.k_empty(), empty);
          bring_tile<kTile.dim, kKeys>({shared.k, barriers.k_full(), barriers.cleared()}, copies.k,
                                       map_place(p, s, Role::kK), first, place.head, num_keys,
                                       Keep::kFirstOut, cleared_parity);
        }
        wait(barriers.dout_empty(ring.stage), ring.parity ^ 1);
        bring_tile<kTile.v_dim, kRows>({shared.dout + ring.stage * kTile.dout_bytes(),
                                        barriers.dout_full(ring.stage), barriers.cleared()},
                                       copies.dout, map_place(p, s, Role::kDo), row, head, num_rows,
                                       Keep::kLastOut, cleared_parity);
        if (is_first) {
          wait(barriers.v_empty(), empty);
          bring_tile<kTile.v_dim, kKeys>({shared.v, barriers.v_full(), barriers.cleared()}, copies.v,
                                         map_place(p, s, Role::kV), first, place.head, num_keys,
                                         Keep::kFirstOut, cleared_parity);
        }
        ring.next();
      }
  }
}

/// The warp that brings the log-sum-exp and delta of the rows of Q.
template <HopperDkdvTile kTile>
__device__ inline void copy_row_numbers(const Params& p, const HopperCopies& copies,
                                        const DkdvBarriers<kTile>& barriers,
                                        const DkdvWork (&work)[DkdvWork::kSlots], DkdvRows<kTile>& numbers) {
  constexpr int kRows = kTile.q_rows, kPerLane = kRows / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace<kTile.stages> ring;
  RingPlace<DkdvWork::kSlots> slot;
  for (int turn = 0; tile_of_turn(turn) < copies.tiles; ++turn, slot.next()) {
    wait(barriers.located(slot.stage), slot.parity);
    const DkdvWork& w = work[slot.stage];
    const Sequence& s = w.sequence;
    const PackedRows rows{p, w.kv_head};
    for (int head = 0; head < p.group; ++head)
      for (int tile = w.begin; tile < w.end; ++tile) {
        float lse[kPerLane], delta[kPerLane];
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
          const int position = tile * kRows + lane + 32 * i;
          const int64_t index = rows.index(s, position * p.group + head);
          lse[i] = position < s.q_len ? p.scratch.lse[index] * kLog2e : kInf;
          delta[i] = position < s.q_len ? p.scratch.delta[index] : 0.0f;
        }
        wait(barriers.q_empty(ring.stage), ring.parity ^ 1);
#pragma unroll
        for (int i = 0; i < kPerLane; ++i)
          numbers.lse[ring.stage][lane + 32 * i] = lse[i],
                                              numbers.delta[ring.stage][lane + 32 * i] = delta[i];
        __syncwarp();
        if (lane == 0) arrive(barriers.q_full(ring.stage));
        ring.next();
      }
    wait(barriers.k_full(), static_cast<uint32_t>(turn & 1));  // else this may count for the turn before
    __syncwarp();
    if (lane == 0) arrive(barriers.k_empty());
  }
}

/// What both warpgroups of products know and do.
template <class T, HopperDkdvTile kTile>
struct SumsOwner {
  const Params& p;
  const HopperCopies& copies;
  const DkdvShared<kTile>& shared;
  const DkdvBarriers<kTile>& barriers;
  const DkdvWork (&work)[DkdvWork::kSlots];
  const DkdvRows<kTile>& numbers;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }
  __device__ static int kept(int value) { return static_cast<int>(uniform(static_cast<uint32_t>(value))); }

  __device__ static void release(uint32_t barrier) {
    __syncwarp();
    if (lane() == 0) arrive(barrier);
  }
  __device__ uint32_t q(int stage) const { return shared.q + stage * kTile.q_bytes(); }
  __device__ uint32_t dout(int stage) const { return shared.dout + stage * kTile.dout_bytes(); }
  /// 16 bytes of this thread's P', of 16 queries of a part.
  __device__ uint32_t weights(int part, int sixteen) const {
    const uint32_t thread = threadIdx.x % kWarpgroup;
    return shared.weights + part * kTile.weights_bytes + (sixteen * kWarpgroup + thread) * 16;
  }

  /// Adds a head's ALiBi to the scores of queries `first` ..
  template <int kElements>
  __device__ __forceinline__ void add_alibi(const DkdvWork& w, float slope_log2, int first,
                                            float (&scores)[kElements]) const {
    if (!p[Role::kAlibiSlopes].present) return;
    const Sequence& s = w.sequence;
    const int key = w.first_key + warp() * 16 + lane() / 4, query = first + lane() % 4 * 2;
    const int distance = key - query - static_cast<int>(p.band.offset(s.q_len, s.kv_len));
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int further = i / 2 % 2 * 8 - (i / 4 * 8 + i % 2);
      scores[i] = fmaf(slope_log2, static_cast<float>(distance + further), scores[i]);
    }
  }

  /// Leaves out the products of queries `first` .. that lie outside of the band.
  template <int kElements>
  __device__ __forceinline__ void mask(const DkdvWork& w, float (&products)[kElements], int first) const {
    if (first >= w.full_begin && first + 2 * kElements <= w.full_end) return;
    Span queries;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = w.first_key + warp() * 16 + lane() / 4 + 8 * half;
      const KeySpan seeing = span_seeing(p, w.sequence, key, key);
      queries.begin[half] = seeing.begin, queries.end[half] = seeing.end;
    }
    queries.mask(products, first);
  }

  /// Stores a warpgroup's sums through `memory`, which nobody reads any more.
  __device__ __forceinline__ void store(const DkdvWork& w, Role role, const auto& sums, float scale,
                                        uint32_t memory) const {
    constexpr int kPanelBytes = 16 * kPanelRowBytes, kDim = 2 * sizeof(sums) / sizeof(float);
    if (!p[role].present) return;
    const Sequence& s = w.sequence;
    const int thread = made_anew(threadIdx.x), row = thread / 32 % 4 * 16, lane = thread % 32;
    const uint32_t stage = memory + static_cast<uint32_t>(row * kDim * 2);
    const int first_row = w.first_key + row;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      factor[half] = first_row + lane / 4 + 8 * half < s.kv_len ? scale : 0.0f;
    stage_rows<T, kPanelBytes>(stage, sums, factor, lane);
    __syncwarp();
    const int num_rows = min(rows_written(p[role], s.kv_len, p.kv_len) - first_row, 16);
    store_staged<T, kDim, kPanelBytes>(p, s, role, {w.kv_head, first_row, num_rows}, stage, 0, lane);
  }
  /// The same of keys that no query sees.
  __device__ void store_zeros(const DkdvWork& w, Role role) const {
    if (!p[role].present) return;
    const int first_row = w.first_key + made_anew(threadIdx.x) / 32 % 4 * 16;
    const int num_rows = min(rows_written(p[role], w.sequence.kv_len, p.kv_len) - first_row, 16);
    store_zero_rows<T>(p, w.sequence, role, {w.kv_head, first_row, num_rows});
  }
};

inline constexpr int kSumsMeeting = 1, kDkMeeting = 2;

/// The warpgroup of P' and dv.
template <class T, HopperDkdvTile kTile, bool kExtras>
__device__ inline void sum_dv(const SumsOwner<T, kTile>& c) {
  constexpr int kRows = kTile.q_rows, kPart = kTile.part_rows;
  const auto& [p, copies, shared, barriers, work, numbers] = c;
  const float to_log2 = kExtras ? 1.0f : p.scale_log2;
  RingPlace<kTile.stages> ring;
  RingPlace<kTile.parts_kept> sent;
  RingPlace<DkdvWork::kSlots> slot;
  for (int turn = 0; tile_of_turn(turn) < copies.tiles; ++turn, slot.next()) {
    wait(barriers.k_full(), static_cast<uint32_t>(turn & 1));
    const DkdvWork& w = work[slot.stage];
    const int begin = c.kept(w.begin), end = c.kept(w.end), steps = (end - begin) * p.group;
    if (steps == 0) {
      c.release(barriers.k_empty());
      c.store_zeros(w, Role::kDv);
      continue;
    }
    float dv[kTile.v_dim / 2] = {};
    int before = 0, tile = begin;
    [[maybe_unused]] int head = w.kv_head * p.group;
    [[maybe_unused]] float slope_log2 = 0.0f;
    for (int step = 0; step < steps; ++step) {
      float weights[kRows / 2];
      if constexpr (kExtras)
        if (tile == begin) slope_log2 = alibi_slope(p, w.sequence, head++) * kLog2e;
      wait(barriers.q_full(ring.stage), ring.parity);
      start_row_products<T, kTile.dim, kTile.keys, kRows>(weights, shared.k, c.q(ring.stage));
      if (step > 0) {
        wait_products<1>();
        c.release(barriers.dout_empty(before));
      }
      wait_products<0>();
      c.release(barriers.scores_done(ring.stage));
      if (step == steps - 1) c.release(barriers.k_empty());
#pragma unroll
      for (int part = 0; part < kRows / kPart; ++part) {
        float(&scores)[kPart / 2] = part_of<kPart / 2>(weights, part);
        const int first = tile * kRows + part * kPart;
        [[maybe_unused]] float slopes[kPart / 2];
        if constexpr (kExtras) {
#pragma unroll
          for (int i = 0; i < kPart / 2; ++i) slopes[i] = 1.0f;
          bend_scores(p, scores, slopes);
          c.add_alibi(w, slope_log2, first, scores);
        }
        c.mask(w, scores, first);
#pragma unroll
        for (int i = 0; i < kPart / 8; ++i) {
          const float2 lse = *reinterpret_cast<const float2*>(
              &numbers.lse[ring.stage][part * kPart + 8 * i + c.lane() % 4 * 2]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int at = 4 * i + 2 * half;
            scores[at] = exp2_fast(fmaf(scores[at], to_log2, -lse.x));
            scores[at + 1] = exp2_fast(fmaf(scores[at + 1], to_log2, -lse.y));
          }
        }
        uint32_t operand[kPart / 16][4];
        if constexpr (kExtras) {
#pragma unroll
          for (int i = 0; i < kPart / 2; ++i) slopes[i] *= scores[i];
          round_weights<T>(slopes, operand);
        } else {
          round_weights<T>(scores, operand);
        }
        wait(barriers.weights_empty(sent.stage), sent.parity ^ 1);
#pragma unroll
        for (int i = 0; i < kPart / 16; ++i)
          store_shared_16(c.weights(sent.stage, i),
                          uint4{operand[i][0], operand[i][1], operand[i][2], operand[i][3]});
        c.release(barriers.weights_full(sent.stage));
        sent.next();
        if (part == kRows / kPart - 1 && c.lane() == 0) arrive(barriers.q_empty(ring.stage));
        if (part == 0) wait(barriers.dout_full(ring.stage), ring.parity);
        if constexpr (kExtras) round_weights<T>(scores, operand);
        start_weighted_rows<T, kRows, kPart>(dv, operand, c.dout(ring.stage), part * kPart);
      }
      before = ring.stage;
      ring.next();
      if (++tile == end) tile = begin;
    }
    wait_products<0>();
    meet(kSumsMeeting, 2 * kWarpgroup);
    c.store(w, Role::kDv, dv, 1.0f, c.dout(before));
    fence_async_shared();
    c.release(barriers.dout_empty(before));
  }
}

/// The warpgroup of dP', dS' and dk.
template <class T, HopperDkdvTile kTile>
__device__ inline void sum_dk(const SumsOwner<T, kTile>& c) {
  constexpr int kRows = kTile.q_rows, kPart = kTile.part_rows;
  const auto& [p, copies, shared, barriers, work, numbers] = c;
  RingPlace<kTile.stages> ring;
  RingPlace<kTile.parts_kept> sent;
  RingPlace<DkdvWork::kSlots> slot;
  for (int turn = 0; tile_of_turn(turn) < copies.tiles; ++turn, slot.next()) {
    wait(barriers.v_full(), static_cast<uint32_t>(turn & 1));
    const DkdvWork& w = work[slot.stage];
    const int steps = c.kept(w.end - w.begin) * p.group;
    if (steps == 0) {
      c.release(barriers.v_empty());
      c.store_zeros(w, Role::kDk);
      continue;
    }
    float dk[kTile.dim / 2] = {};
    int before = 0;
    for (int step = 0; step < steps; ++step) {
      float gradients[kRows / 2];
      if (step > 0) {
        wait_products<0>();
        c.release(barriers.q_empty(before));
      }
      wait(barriers.dout_full(ring.stage), ring.parity);
      wait(barriers.scores_done(ring.stage), ring.parity);
      start_row_products<T, kTile.v_dim, kTile.keys, kRows>(gradients, shared.v, c.dout(ring.stage));
      wait(barriers.q_full(ring.stage), ring.parity);  // and delta's rows
#pragma unroll
      for (int part = 0; part < kRows / kPart; ++part) {
        uint32_t operand[kPart / 16][4];
        wait(barriers.weights_full(sent.stage), sent.parity);
#pragma unroll
        for (int i = 0; i < kPart / 16; ++i) {
          const uint4 four = load_shared_16(c.weights(sent.stage, i));
          operand[i][0] = four.x, operand[i][1] = four.y, operand[i][2] = four.z, operand[i][3] = four.w;
        }
        if (part == 0) {
          wait_products<0>();
          c.release(barriers.dout_empty(ring.stage));
          if (step == steps - 1) {
            c.release(barriers.v_empty());
            announce(kSumsMeeting, 2 * kWarpgroup);  // dv may leave through dO's buffer
          }
        }
        c.release(barriers.weights_empty(sent.stage));
        sent.next();
#pragma unroll
        for (int i = 0; i < kPart / 8; ++i) {
          const float2 delta = *reinterpret_cast<const float2*>(
              &numbers.delta[ring.stage][part * kPart + 8 * i + c.lane() % 4 * 2]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int at = part * kPart / 2 + 4 * i + 2 * half;
            uint32_t& both = operand[i / 2][i % 2 * 2 + half];
            const float2 weight = unpack<T>(both);
            both = pack<T>(weight.x * (gradients[at] - delta.x), weight.y * (gradients[at + 1] - delta.y));
          }
        }
        start_weighted_rows<T, kRows, kPart>(dk, operand, c.q(ring.stage), part * kPart);
      }
      before = ring.stage;
      ring.next();
    }
    wait_products<0>();
    meet(kDkMeeting, kWarpgroup);  // its four warps have read Q; the others had before P' came
    c.store(w, Role::kDk, dk, p.scale, c.q(before));
    fence_async_shared();
    c.release(barriers.q_empty(before));
  }
}

template <class T, int kDim, bool kExtras>
__global__ void __launch_bounds__(HopperDkdvTile::threads, 1)
    hopper_dkdv(const __grid_constant__ Params p, const __grid_constant__ HopperCopies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr HopperDkdvTile kTile = hopper_dkdv_tile(kDim, kExtras);
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  __shared__ uint64_t barrier_memory[DkdvBarriers<kTile>::kCount];
  __shared__ DkdvWork work[DkdvWork::kSlots];
  __shared__ DkdvRows<kTile> numbers;
  const DkdvShared<kTile> shared(shared_address(dynamic_shared));
  const DkdvBarriers<kTile> barriers{shared_address(barrier_memory)};
  if (p[Role::kDq].present) let_next_start();  // that of dq; what else follows is the caller's
  if (threadIdx.x == 0) {
    barriers.init();
    prefetch_map(&copies.q), prefetch_map(&copies.k), prefetch_map(&copies.v), prefetch_map(&copies.dout);
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    shrink_registers<kTile.copy_registers>();
    if (threadIdx.x < 32)
      copy_tiles<kTile>(p, copies, shared, barriers, work);
    else if (threadIdx.x < 64)
      copy_row_numbers<kTile>(p, copies, barriers, work, numbers);
  } else {
    grow_registers<kTile.product_registers>();
    const SumsOwner<T, kTile> owner{p, copies, shared, barriers, work, numbers};
    if (product_group() == 0)
      sum_dv<T, kTile, kExtras>(owner);
    else
      sum_dk<T, kTile>(owner);
  }
#else
  __trap();  // no recipe for another target has it
#endif
}

}  // namespace attngraph::cuda
