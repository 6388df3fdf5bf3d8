#pragma once

#include "engine/cuda/kernels/hopper_dropout.cuh"
#include "engine/cuda/kernels/hopper_matrices.cuh"

/// Backward for sm_90a: dq, dk and dv of rows whose delta and log-sum-exp are known.
///
/// A block owns 128 keys of one kv head, K and V in shared memory, and passes over the query rows of all
/// heads of the group that see them. Its first warpgroup copies Q, dO, log-sum-exp and delta through two
/// buffers; each of the others owns 64 keys. Products are transposed, keys by queries, so that weights and
/// their gradients are operands as they stand in registers: only the gradients pass through shared memory,
/// for dq.
///
///   S' = K Q', P' = exp(scale S' - lse), dP' = V dO', dS' = P' (dP' - delta),
///   dV += P' dO, dK += dS' Q, dQ = dS K, of which each warpgroup computes a half of 64 x 64.
///
/// Pipeline of a step: P' is computed under dP', dq is added to global memory under dK. With softcap, ALiBi
/// or a scale that does not keep the order, and with a bias, a mask or dropout, instances of their own make
/// scores and their gradients after both products; at dim 64 in two parts, the first under the products of
/// the second, the second under those that add the first to dv and dk.
///
/// Measured: H200, bf16, 4 x 4,096 tokens, d128 590 TFLOP/s full and 538 causal, d64 530 and 482;
/// attngraph bench --engine cuda --filter gpu/backward.
namespace attngraph::cuda {

template <HopperGradientTile kTile>
struct GradientShared {
  uint32_t k, v, q, dout, ds, dq, matrices;  ///< addresses, each of whole panels

  __device__ explicit GradientShared(uint32_t base) : k(base) {
    v = k + kTile.k_bytes();
    q = v + kTile.v_bytes();
    dout = q + kTile.stages * kTile.q_bytes();
    ds = dout + kTile.stages * kTile.dout_bytes();
    dq = ds + kTile.ds_buffers * kTile.ds_bytes();
    matrices = dq + kTile.dq_buffers * 2 * kTile.dq_bytes;
  }
};

/// What a block knows of its sequence and keys, and the numbers of the rows in its buffers.
template <HopperGradientTile kTile>
struct GradientWork {
  Sequence sequence;
  int kv_head, first_key;
  int begin, end;            ///< tiles of queries that see some key, the same for every head of the group
  int full_begin, full_end;  ///< queries that see every key
  int ahead;                 ///< query r of those tiles sees keys below r + ahead, and below kv_len
  alignas(8) float lse[kTile.stages][kTile.q_rows];  ///< times log2(e), but with Scores::kRead
  float delta[kTile.stages][kTile.q_rows];
};

struct GradientBarriers {
  uint32_t base;

  __device__ uint32_t keys_full() const { return base; }
  __device__ uint32_t cleared() const { return base + 8; }
  __device__ uint32_t dq_full(int adder) const { return base + 16 + 16 * adder; }
  __device__ uint32_t dq_empty(int adder) const { return base + 24 + 16 * adder; }
  __device__ uint32_t ds_empty() const { return base + 48; }
  __device__ uint32_t q_full(int stage) const { return base + 56 + 32 * stage; }
  __device__ uint32_t q_empty(int stage) const { return base + 64 + 32 * stage; }
  __device__ uint32_t dout_full(int stage) const { return base + 72 + 32 * stage; }
  __device__ uint32_t dout_empty(int stage) const { return base + 80 + 32 * stage; }
  static constexpr int count(int stages) { return 7 + 4 * stages; }

  /// By one thread, before the block meets.
  __device__ void init(int stages, int dq_buffers) const {
    constexpr int kWarps = 8;
    init_barrier(keys_full(), 2), init_barrier(cleared(), 1), init_barrier(ds_empty(), kWarps);
    for (int stage = 0; stage < stages; ++stage) {
      init_barrier(q_full(stage), 2), init_barrier(q_empty(stage), kWarps);
      init_barrier(dout_full(stage), 1), init_barrier(dout_empty(stage), kWarps);
    }
    for (int adder = 0; adder < 2; ++adder)
      init_barrier(dq_full(adder), kWarps / 2 * dq_buffers), init_barrier(dq_empty(adder), 1);
    fence_barrier_init();
  }
};

template <HopperGradientTile kTile>
__device__ inline int last_query(const GradientWork<kTile>& work, int tile) {
  return min((tile + 1) * kTile.q_rows, work.sequence.q_len) - 1;
}
/// Tiles of keys behind this block's that see a tile of queries which this one sees.
template <HopperGradientTile kTile>
__device__ inline int tiles_before(const GradientWork<kTile>& work, int tile) {
  const int end = min(last_query<kTile>(work, tile) + work.ahead, work.sequence.kv_len);
  return (end - 1 - work.first_key) / kTile.keys;
}

/// Fills in which keys and queries the block works on; the sequence is known.
template <HopperGradientTile kTile>
__device__ inline void locate(const Params& p, const HopperPlace& place, GradientWork<kTile>& work) {
  const Sequence& s = work.sequence;
  const int first = place.tile * kTile.keys, last = first + kTile.keys - 1;
  const KeySpan seeing = span_seeing(p, s, first, last);
  work.kv_head = place.head, work.first_key = first;
  work.begin = seeing.begin / kTile.q_rows;
  work.end = seeing.begin < seeing.end ? (seeing.end + kTile.q_rows - 1) / kTile.q_rows : work.begin;
  const int row = last_query<kTile>(work, work.begin);
  work.ahead = static_cast<int>(band_keys(p, s, row).end) - row;
  work.full_begin = span_seeing(p, s, last, last).begin;
  work.full_end = last < s.kv_len ? span_seeing(p, s, first, first).end : 0;
}

/// The warp that copies K and V, then Q and dO of every step.
template <HopperGradientTile kTile>
__device__ inline void copy_tiles(const Params& p, const HopperCopies& copies,
                                  const GradientShared<kTile>& shared, const GradientBarriers& barriers,
                                  const GradientWork<kTile>& work) {
  constexpr int kRows = kTile.q_rows;
  const Sequence& s = work.sequence;
  if (work.begin == work.end) return;
  uint32_t cleared_parity = 0;
  const int num_keys = s.kv_len - work.first_key;
  bring_tile<kTile.dim, kTile.keys>({shared.k, barriers.keys_full(), barriers.cleared()}, copies.k,
                                    map_place(p, s, Role::kK), work.first_key, work.kv_head, num_keys,
                                    Keep::kFirstOut, cleared_parity);
  bring_tile<kTile.v_dim, kTile.keys>({shared.v, barriers.keys_full(), barriers.cleared()}, copies.v,
                                      map_place(p, s, Role::kV), work.first_key, work.kv_head, num_keys,
                                      Keep::kFirstOut, cleared_parity);

  const MapPlace q_place = map_place(p, s, Role::kQ), dout_place = map_place(p, s, Role::kDo);
  RingPlace<kTile.stages> ring;
  for (int head = work.kv_head * p.group; head < (work.kv_head + 1) * p.group; ++head)
    for (int tile = work.begin; tile < work.end; ++tile) {
      const int row = tile * kRows, num_rows = s.q_len - row;
      wait(barriers.q_empty(ring.stage), ring.parity ^ 1);
      bring_tile<kTile.dim, kRows>(
          {shared.q + ring.stage * kTile.q_bytes(), barriers.q_full(ring.stage), barriers.cleared()},
          copies.q, q_place, row, head, num_rows, Keep::kLastOut, cleared_parity);
      wait(barriers.dout_empty(ring.stage), ring.parity ^ 1);
      bring_tile<kTile.v_dim, kRows>(
          {shared.dout + ring.stage * kTile.dout_bytes(), barriers.dout_full(ring.stage), barriers.cleared()},
          copies.dout, dout_place, row, head, num_rows, Keep::kLastOut, cleared_parity);
      ring.next();
    }
}

/// The warp that brings the log-sum-exp and delta of the rows of Q.
template <HopperGradientTile kTile, Scores kScores>
__device__ inline void copy_row_numbers(const Params& p, const GradientBarriers& barriers,
                                        GradientWork<kTile>& work) {
  constexpr int kRows = kTile.q_rows, kPerLane = kRows / 32;
  const Sequence& s = work.sequence;
  const PackedRows rows{p, work.kv_head};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace<kTile.stages> ring;
  for (int head = 0; head < p.group; ++head)
    for (int tile = work.begin; tile < work.end; ++tile) {
      float lse[kPerLane], delta[kPerLane];
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const int position = tile * kRows + lane + 32 * i;
        const int64_t index = rows.index(s, position * p.group + head);
        lse[i] =
            position < s.q_len ? p.scratch.lse[index] * (kScores == Scores::kRead ? 1.0f : kLog2e) : kInf;
        delta[i] = position < s.q_len ? p.scratch.delta[index] : 0.0f;
      }
      wait(barriers.q_empty(ring.stage), ring.parity ^ 1);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i)
        work.lse[ring.stage][lane + 32 * i] = lse[i], work.delta[ring.stage][lane + 32 * i] = delta[i];
      __syncwarp();
      if (lane == 0) arrive(barriers.q_full(ring.stage));
      ring.next();
    }
}

/// Rows and columns of dq that a warpgroup computes in a step.
template <HopperGradientTile kTile>
struct DqBlock {
  int first_row, plane;

  __device__ explicit DqBlock(int group)
      : first_row(kTile.q_rows == 128 ? group * kDqRows : 0), plane(kTile.dim == 128 ? group : 0) {}
};

/// One of two warps that add blocks of dq to the sums in global memory, in any order or in turn. With two
/// buffers it adds those of every other step, because to wait for a turn, to add, to wait until that is
/// written and to count it takes as long as a step of products; with one those of a warpgroup.
///
/// Turns: of the tiles of keys that see a tile of queries the last comes first. The blocks of a launch start
/// in the order of their indices, of a head's tiles of keys the last first, and a block that has started
/// keeps its multiprocessor; so a block waits only for blocks that have started, and of those that have
/// started and not ended the first waits for none. The order of the passes is the same one: tile of keys n +
/// 1 begins at no earlier tile of queries than n, so that it has been where n arrives.
template <HopperGradientTile kTile>
__device__ inline void add_dq(const Params& p, const GradientShared<kTile>& shared,
                              const GradientBarriers& barriers, const GradientWork<kTile>& work, int adder) {
  constexpr bool kAlternate = kTile.dq_buffers == 2;
  const Sequence& s = work.sequence;
  const bool leader = threadIdx.x % 32 == 0;
  const int first_group = kAlternate ? 0 : adder, last_group = kAlternate ? 1 : adder;
  uint32_t parity = 0;
  bool is_own = !kAlternate || adder == 0;
  for (int head = work.kv_head * p.group; head < (work.kv_head + 1) * p.group; ++head)
    for (int tile = work.begin; tile < work.end; ++tile) {
      const bool passes = !is_own;
      if (kAlternate) is_own = !is_own;
      if (passes) continue;
      const int before = tiles_before<kTile>(work, tile);
      // Of the last tile the second warpgroup's rows may all lie behind the sequence.
      const DqBlock<kTile> own(first_group);
      const int own_first = tile * kTile.q_rows + own.first_row;
      int32_t* turn = nullptr;
      if (p.scratch.dq_turns != nullptr && leader && own_first < s.q_len) {
        turn = dq_turn(p, s, head, own_first, own.plane);
        while (read_count(turn) < before) {
        }
        fence_async_global();
      }
      // All lanes wait: while others of its warp are elsewhere, one does not sleep at a barrier.
      __syncwarp();
      wait(barriers.dq_full(adder), parity);
      __syncwarp();  // none still waits when the leader lets the phase after this one end
      parity ^= 1;
      if (leader) {
#pragma unroll
        for (int group = first_group; group <= last_group; ++group) {
          const DqBlock<kTile> block(group);
          const int first = tile * kTile.q_rows + block.first_row, rows = min(s.q_len - first, kDqRows);
          if (rows <= 0) continue;
          float* const to = dq_sums(p, s, head, first, block.plane);
          const uint32_t from = shared.dq + ((kAlternate ? 2 * adder : 0) + group) * kTile.dq_bytes;
          if (turn == nullptr || before > 0)
            add_floats(to, from, rows * kDqColumns * 4, Keep::kLastOut);
          else
            write_floats(to, from, rows * kDqColumns * 4, Keep::kLastOut);
        }
        wait_floats_read();
        arrive(barriers.dq_empty(adder));
        if (turn != nullptr) wait_floats_written(), raise_count(turn);
      }
      __syncwarp();
    }
  if (leader) wait_floats_written();
}

/// Starts dq = dS K for this warpgroup's 64 rows and 64 columns: a panel of dS' and a panel of K.
template <class T, HopperGradientTile kTile>
__device__ __forceinline__ void start_dq(float (&dq)[32], uint32_t ds_panel, uint32_t k_panel) {
  constexpr int kPanelBytes = kTile.keys * kPanelRowBytes;
  const Operand a = column_operand(ds_panel, kPanelBytes), b = column_operand(k_panel, kPanelBytes);
  fence_products();
#pragma unroll
  for (int step = 0; step < kTile.keys / 16; ++step)
    product<T, true>(dq, a + step * kPanelRowBytes, b + step * kPanelRowBytes, step > 0);
  commit_products();
}

/// ALiBi of a thread's elements.
struct Alibi {
  float slope;   ///< of the head, in the scores' unit
  int distance;  ///< of the thread's first key and query
};

/// Makes scores of products, through softcap, ALiBi and any scale, and of gradients of the weights those of
/// the scaled products, but for the weights as factors. Scores are in units of log2, in natural ones if they
/// go on to read a bias.
///
/// A thread's elements are of two neighbouring queries of each eight, and of two keys, the second eight after
/// the first.
template <Scores kScores, int kElements, int kQueries>
__device__ __forceinline__ void bend(const Params& p, const Alibi& alibi, const float (&delta)[kQueries],
                                     float (&scores)[kElements], float (&gradients)[kElements]) {
  static_assert(kQueries == 2 * kElements);
  constexpr bool kReads = kScores == Scores::kRead;
  const int column = made_anew(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int i = 0; i < kElements; ++i) gradients[i] -= delta[i / 4 * 8 + column + i % 2];
  if (p.softcap > 0.0f) {
    const int bits = made_anew(__float_as_uint(p.softcap));  // a register less than what follows from it
    Softcap softcap(__int_as_float(bits), p.scale_log2);
    if constexpr (kReads) softcap.cap = __int_as_float(bits);
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const float share = softcap.share(scores[i]);
      scores[i] = softcap.score(share), gradients[i] *= Softcap::slope(share);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kElements; ++i) scores[i] *= kReads ? p.scale : p.scale_log2;
  }
  if (!p[Role::kAlibiSlopes].present) return;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int further = i / 2 % 2 * 8 - (i / 4 * 8 + i % 2);
    scores[i] = fmaf(alibi.slope, static_cast<float>(alibi.distance + further), scores[i]);
  }
}

/// One warpgroup of products.
template <class T, HopperGradientTile kTile, Scores kScores>
__device__ inline void multiply_queries(const Params& p, const HopperCopies& copies,
                                        const GradientShared<kTile>& shared, const GradientBarriers& barriers,
                                        const GradientWork<kTile>& work) {
  constexpr bool kExtras = kScores != Scores::kPlain, kReads = kScores == Scores::kRead;
  constexpr int kRows = kTile.q_rows, kPart = kTile.part_rows, kParts = kRows / kPart;
  constexpr int kBothGroups = 2 * kWarpgroup, kMeeting = 1;
  const Sequence& s = work.sequence;
  const int group = product_group();
  const int warp = static_cast<int>(threadIdx.x / 32 % 4), lane = static_cast<int>(threadIdx.x % 32);
  const uint32_t own_rows = static_cast<uint32_t>(group * 64 * kPanelRowBytes);
  const auto release = [lane](uint32_t barrier) {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  };
  // Made anew where they are needed, at edges of the band and at the end: kept, they would crowd out
  // accumulators.
  const auto first_key = [&] {  // of this warp
    return work.first_key + (made_anew(threadIdx.x) - kWarpgroup) / 32 * 16;
  };
  const auto queries = [&] {
    Span span;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = first_key() + made_anew(threadIdx.x) % 32 / 4 + 8 * half;
      const KeySpan seeing = span_seeing(p, s, key, key);
      span.begin[half] = seeing.begin, span.end[half] = seeing.end;
    }
    return span;
  };
  const int key = group * 64 + warp * 16 + lane / 4,
            ds_place = key * kPanelRowBytes + ((key & 7) << 4) + lane % 4 * 4;
  const auto dq_place = [&](int stage) {
    const unsigned thread = static_cast<unsigned>(made_anew(threadIdx.x)) - kWarpgroup,
                   row = thread / 32 * 16 + thread % 32 / 4;
    return shared.dq + (kTile.dq_buffers == 2 ? stage * 2 * kTile.dq_bytes : 0) + row * kDqColumns * 4 +
           static_cast<uint32_t>(dq_position(static_cast<int>(row), 0, static_cast<int>(thread % 4)) * 4);
  };
  const uint32_t ds_panel = kRows == 128 ? static_cast<uint32_t>(group * kTile.keys * kPanelRowBytes) : 0;
  const uint32_t k_panel = kTile.dim == 128 ? static_cast<uint32_t>(group * kTile.keys * kPanelRowBytes) : 0;
  float dk[kTile.dim / 2] = {}, dv[kTile.dim / 2] = {};
  // What is in shared memory is read anew behind each barrier.
  const auto copied = [](int value) { return static_cast<int>(uniform(static_cast<uint32_t>(value))); };
  const int begin = copied(work.begin), end = copied(work.end);
  const int full_begin = copied(work.full_begin), full_end = copied(work.full_end);
  constexpr float kPerNatural = kReads ? 1.0f : kLog2e;  // of a score once bent
  const float to_log2 = kExtras ? kLog2e / kPerNatural : p.scale_log2;
  using Matrices = MatrixBlock<kReads ? kPart : 16, 16>;
  const auto block = [&](int part) {
    const int number = (group * 4 + warp) * kParts + part;
    return Matrices{p, shared.matrices + static_cast<uint32_t>(number * Matrices::kBytes)};
  };
  const auto bring = [&](int head, int tile) {
#pragma unroll 1  // once in the code
    for (int part = 0; part < kParts; ++part)
      block(part).bring(copies, s, work.kv_head * p.group + head, tile * kRows + part * kPart, first_key());
  };
  RingPlace<kTile.stages> ring;
  if constexpr (kReads)
    if (begin < end) bring(0, begin);
  if (begin < end) wait(barriers.keys_full(), 0);
  for (int head = 0; head < p.group; ++head) {
    [[maybe_unused]] float slope = 0.0f;
    if constexpr (kExtras)
      if (const TensorView& t = p[Role::kAlibiSlopes]; t.present)
        slope = load_element(t, s.start[static_cast<size_t>(Role::kAlibiSlopes)] +
                                    (work.kv_head * p.group + head) * t.stride[1]) *
                kPerNatural;
    for (int tile = begin; tile < end; ++tile) {
      const uint32_t q = shared.q + ring.stage * kTile.q_bytes(),
                     dout = shared.dout + ring.stage * kTile.dout_bytes();
      // Of two buffers it is free: all have passed two meetings since.
      const uint32_t ds = shared.ds + (kTile.ds_buffers == 2 ? ring.stage * kTile.ds_bytes() : 0);
      float weights[kParts][kPart / 2], gradients[kParts][kPart / 2];
      uint32_t operand[kParts][kPart / 16][4], ds_operand[kParts][kPart / 16][4];
      wait(barriers.q_full(ring.stage), ring.parity);
      start_row_products<T, kTile.dim, kTile.keys, kPart>(weights[0], shared.k + own_rows, q);
      wait(barriers.dout_full(ring.stage), ring.parity);
      start_row_products<T, kTile.dim, kTile.keys, kPart>(gradients[0], shared.v + own_rows, dout);
      if constexpr (kParts == 2) {
        constexpr uint32_t kPartBytes = kPart * kPanelRowBytes;
        start_row_products<T, kTile.dim, kTile.keys, kPart>(weights[1], shared.k + own_rows, q + kPartBytes);
        start_row_products<T, kTile.dim, kTile.keys, kPart>(gradients[1], shared.v + own_rows,
                                                            dout + kPartBytes);
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        float(&scores)[kPart / 2] = weights[part];
        float(&slopes)[kPart / 2] = gradients[part];
        const int first_query = tile * kRows + part * kPart;
        [[maybe_unused]] uint32_t kept = ~uint32_t{0};
        if constexpr (kReads)
          if (drops(p)) kept = draw_key_rows(p, s, work.kv_head * p.group + head, first_query, first_key());
        // Of two parts the products of the second run, or those that add the first to dv and dk.
        wait_products<kExtras ? 2 * (kParts - 1) : 1>();
        if constexpr (kReads)
          if (drops(p)) {
#pragma unroll
            for (int i = 0; i < kPart / 2; ++i)
              slopes[i] = kept >> key_row_bit(i) & 1 ? slopes[i] * p.dropout_scale : 0.0f;
          }
        if constexpr (kExtras) {
          const int thread = made_anew(threadIdx.x), query = first_query + thread % 4 * 2;
          const int diagonal = query + static_cast<int>(p.band.offset(s.q_len, s.kv_len));
          bend<kScores>(p, {slope, first_key() + thread % 32 / 4 - diagonal},
                        part_of<kPart>(work.delta[ring.stage], part), scores, slopes);
        }
        if constexpr (kReads) {
          if (part == 0) Matrices::arrive();
          if (p[Role::kBias].present) block(part).each_bias([&](int i, float bias) { scores[i] += bias; });
          if (p[Role::kMask].present) block(part).each_masked([&](int i) { scores[i] = -kInf; });
          if (part == kParts - 1) {
            const bool ends = tile + 1 == end;
            if (!ends || head + 1 < p.group) bring(head + ends, ends ? begin : tile + 1);
          }
        }
        if (first_query < full_begin || first_query + kPart > full_end) queries().mask(scores, first_query);
        const auto& lse_of_rows = part_of<kPart>(work.lse[ring.stage], part);
        const auto& delta_of_rows = part_of<kPart>(work.delta[ring.stage], part);
#pragma unroll
        for (int i = 0; i < kPart / 8; ++i) {
          const float2 lse = *reinterpret_cast<const float2*>(&lse_of_rows[8 * i + lane % 4 * 2]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int at = 4 * i + 2 * half;
            // A bias may be the least float32, which units of log2 do not hold.
            scores[at] =
                exp2_fast(kReads ? (scores[at] - lse.x) * to_log2 : fmaf(scores[at], to_log2, -lse.x));
            scores[at + 1] = exp2_fast(kReads ? (scores[at + 1] - lse.y) * to_log2
                                              : fmaf(scores[at + 1], to_log2, -lse.y));
          }
        }
        // The barrier has been passed already. Without this end of a block of instructions ptxas moves the
        // wait for dP' before the exponentials that should run under it; with 128 rows that would cost
        // spills.
        if constexpr (kRows == 64 && !kExtras) wait(barriers.dout_full(ring.stage), ring.parity);
        if constexpr (!kExtras) wait_products<0>();
#pragma unroll
        for (int i = 0; i < kPart / 8; ++i) {
          const float2 delta = *reinterpret_cast<const float2*>(&delta_of_rows[8 * i + lane % 4 * 2]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int at = 4 * i + 2 * half;
            const float low = scores[at] * (kExtras ? slopes[at] : slopes[at] - delta.x);
            const float high = scores[at + 1] * (kExtras ? slopes[at + 1] : slopes[at + 1] - delta.y);
            ds_operand[part][i / 2][i % 2 * 2 + half] = pack<T>(low, high);
          }
        }
        if constexpr (kReads)
          if (drops(p)) {
#pragma unroll
            for (int i = 0; i < kPart / 2; ++i)
              if ((kept >> key_row_bit(i) & 1) == 0) scores[i] = 0.0f;
          }
        round_weights<T>(scores, operand[part]);
        if constexpr (kTile.ds_buffers == 1)
          if (part == 0) wait(barriers.ds_empty(), static_cast<uint32_t>(ring.stage ^ 1));
        // dS': a row of keys, chunks of 8 queries, each at its number xor the row's.
        const uint32_t ds_row = ds + static_cast<uint32_t>(ds_place);
#pragma unroll
        for (int i = 0; i < kPart / 4; ++i) {
          const int chunk = part * (kPart / 8) + i / 2,
                    further = chunk / 8 * kTile.keys * kPanelRowBytes + i % 2 * 8 * kPanelRowBytes;
          store_shared_4((ds_row ^ static_cast<uint32_t>(chunk % 8 << 4)) + static_cast<uint32_t>(further),
                         ds_operand[part][i / 4][i % 4]);
        }
        start_weighted_rows<T, kRows, kPart>(dv, operand[part], dout, part * kPart);
        if (part + 1 < kParts) start_weighted_rows<T, kRows, kPart>(dk, ds_operand[part], q, part * kPart);
      }
      fence_async_shared();
      meet(kMeeting, kBothGroups);
      float dq[32];
      start_dq<T, kTile>(dq, ds + ds_panel, shared.k + k_panel);
      wait_products<1>();
      release(barriers.dout_empty(ring.stage));
      start_weighted_rows<T, kRows, kPart>(dk, ds_operand[kParts - 1], q, kRows - kPart);
      wait_products<1>();
      if constexpr (kTile.ds_buffers == 1) release(barriers.ds_empty());
      static_assert(kTile.stages == 2, "the ring's stage is the parity of the step");
      const int adder = kTile.dq_buffers == 2 ? ring.stage : group;
      wait(barriers.dq_empty(adder),
           kTile.dq_buffers == 2 ? ring.parity ^ 1 : static_cast<uint32_t>(ring.stage ^ 1));
      const uint32_t dq_row = dq_place(ring.stage);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {  // of accumulators: neighbours at dq_position()
          const int at = 8 * pair + 2 * half;
          store_shared_16(
              (dq_row ^ static_cast<uint32_t>(pair * 64)) + static_cast<uint32_t>(half * 8 * kDqColumns * 4),
              uint4{__float_as_uint(dq[at]), __float_as_uint(dq[at + 1]), __float_as_uint(dq[at + 4]),
                    __float_as_uint(dq[at + 5])});
        }
      fence_async_shared();
      release(barriers.dq_full(adder));
      wait_products<0>();
      release(barriers.q_empty(ring.stage));
      ring.next();
    }
  }

  meet(kMeeting, kBothGroups);  // nobody reads dS' any more: its buffers take the rows on their way out
  constexpr int kPanelBytes = 16 * kPanelRowBytes;
  const int first = first_key(), row = first - work.first_key;
  const uint32_t stage = shared.ds + static_cast<uint32_t>(row * kTile.dim * 2);
  const auto store = [&](Role role, const float(&sums)[kTile.dim / 2], float scale) {
    if (!p[role].present) return;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      factor[half] = first + made_anew(threadIdx.x) % 32 / 4 + 8 * half < s.kv_len ? scale : 0.0f;
    stage_rows<T, kPanelBytes>(stage, sums, factor);
    __syncwarp();
    const int num_rows = min(rows_written(p[role], s.kv_len, p.kv_len) - first, 16);
    store_staged<T, kTile.dim, kPanelBytes, kTile.dim / 16>(p, s, role, {work.kv_head, first, num_rows},
                                                            stage);
    __syncwarp();
  };
  store(Role::kDv, dv, kReads ? p.dropout_scale : 1.0f);
  store(Role::kDk, dk, p.scale);
}

template <class T, int kDim, Scores kScores>
__global__ void __launch_bounds__(hopper_gradient_tile(kDim).threads, 1)
    hopper_backward(const __grid_constant__ Params p, const __grid_constant__ HopperCopies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr HopperGradientTile kTile = hopper_gradient_tile(kDim, kScores);
  extern __shared__ __align__(1024) unsigned char gradient_tiles[];
  __shared__ uint64_t barrier_memory[GradientBarriers::count(kTile.stages)];
  __shared__ GradientWork<kTile> work;
  static_assert(sizeof(barrier_memory) + sizeof(work) <= kGradientTableBytes);
  const GradientShared<kTile> shared(shared_address(gradient_tiles));
  const GradientBarriers barriers{shared_address(barrier_memory)};
  if (threadIdx.x == 0) barriers.init(kTile.stages, kTile.dq_buffers);
  HopperPlace place(p, copies, p.kv_head_count, p.kv_head_begin, static_cast<int>(blockIdx.x));
  if (p.scratch.dq_turns != nullptr) place.tile = p.row_tiles - 1 - place.tile;
  load_sequence(p, place.batch, work.sequence);  // the block meets here
  if (threadIdx.x == 0) locate<kTile>(p, place, work);
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    shrink_registers<kTile.copy_registers>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp == 0)
      copy_tiles<kTile>(p, copies, shared, barriers, work);
    else if (warp == 1)
      copy_row_numbers<kTile, kScores>(p, barriers, work);
    else
      add_dq<kTile>(p, shared, barriers, work, warp - 2);
  } else {
    grow_registers<kTile.product_registers>();
    multiply_queries<T, kTile, kScores>(p, copies, shared, barriers, work);
  }
#else
  __trap();  // no recipe for another target has it
#endif
}

}  // namespace attngraph::cuda
