#pragma once

#include "engine/cuda/kernels/hopper_dropout.cuh"
#include "engine/cuda/kernels/hopper_forward_copies.cuh"
#include "engine/cuda/kernels/hopper_matrices.cuh"

/// Forward for sm_90a: o = softmax(scale Q K^T within the band) V, with instances of their own for softcap
/// and ALiBi, and for a bias, a mask or dropout besides.
///
/// A block stays on its multiprocessor and takes one tile of query rows of one head after the other. Its
/// first warpgroup copies: Q once a tile, K and V through rings of buffers, keys from right to left. Each
/// other warpgroup owns 64 rows: scores, weights and o stay in registers, and o leaves from there.
///
/// Pipeline of a warpgroup: Q K(n)^T and weights(n+1) V(n+1) are started together; softmax(n) runs under the
/// second. At dim 128 this goes on from tile to tile: Q K^T of the next is started with the last weights V of
/// one, whose o is stored under the next product after that. Warpgroups find an order among each other alone,
/// but at dim 64, where exponentials take as long as products: there they take turns at them.
///
/// Plain and bent weights, but those of dim 128, are relative to the maximum so far, without a search for the
/// new one, until one is far above it.
///
/// Measured: H200, bf16, 4,096 tokens, TFLOP/s full and causal: d64 505 and 480, d128 675 and 633, d256 764
/// and 692, d192 with v of 128 670 causal; attngraph bench --engine cuda --filter gpu/forward.
namespace attngraph::cuda {

/// Scores of keys on pages outside of their container, which are whole groups of 8 keys, become -inf.
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

/// The two rows of a thread in its warpgroup's accumulators. Bent, products become scores in units of log2
/// before the maximum is taken: through softcap and ALiBi, or by a scale that does not keep their order;
/// where scores read a bias or a mask, in natural units.
template <Scores kScores>
struct HopperRows {
  static constexpr float kPerNatural = kScores == Scores::kBent ? kLog2e : 1.0f;  ///< of a score once bent

  /// The exponential, from the last, with which the other warpgroup may begin its own.
  static constexpr int kLate = 6;

  float maximum[2] = {-kInf, -kInf};  ///< or an earlier one, see weigh_as_before()
  float sum[2] = {0.0f, 0.0f};        ///< of this thread's columns
  Span keys;                          ///< of the band
  float slope[2];                     ///< of ALiBi, in the scores' unit
  int diagonal[2];                    ///< where its distance is 0

  /// Rows `first_row` and the eighth after it. What those behind the sequence see has no meaning.
  __device__ HopperRows(const Params& p, const HopperWork& w, int first_row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 8 * half;
      keys.begin[half] = row + w.low, keys.end[half] = min(row + w.high, w.sequence.kv_len);
      if constexpr (kScores != Scores::kPlain) {
        slope[half] = alibi_slope(p, w.sequence, w.head) * kPerNatural;
        diagonal[half] = row + static_cast<int>(p.band.offset(w.sequence.q_len, w.sequence.kv_len));
      }
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

  /// Scores of a tile of keys outside the band become -inf; all rows see `full_begin` .. `full_end` - 1.
  template <int kElements>
  __device__ __forceinline__ void mask(float (&scores)[kElements], int first_key, int full_begin,
                                       int full_end) const {
    const int column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
    if (first_key < full_begin) {
#pragma unroll
      for (int i = 0; i < kElements; ++i)
        if (i / 4 * 8 + i % 2 < keys.begin[i / 2 % 2] - column) scores[i] = -kInf;
    }
    if (first_key + 2 * kElements > full_end) {
#pragma unroll
      for (int i = 0; i < kElements; ++i)
        if (i / 4 * 8 + i % 2 >= keys.end[i / 2 % 2] - column) scores[i] = -kInf;
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

  /// Weights of scores, which they may take the place of, relative to the new maximum; `shrink` is what
  /// earlier sums must shrink by.
  template <int kElements>
  __device__ __forceinline__ void weigh(const Params& p, const float (&scores)[kElements],
                                        float (&weights)[kElements], float (&shrink)[2]) {
    // A bias may be the least float32, which units of log2 do not hold.
    constexpr bool kReads = kScores == Scores::kRead;
    float top[2] = {maximum[0], maximum[1]};
#pragma unroll
    for (int i = 0; i < kElements; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[i]);
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = lanes_max<4>(top[half]);
      // Rounded alike, products leave 0 for a maximum that stays, however large it is.
      shift[half] = top[half] == -kInf ? 0.0f : kReads ? top[half] : __fmul_rn(top[half], to_log2(p));
      shrink[half] = exp2_fast(kReads ? (maximum[half] - shift[half]) * to_log2(p)
                                      : __fmul_rn(maximum[half], to_log2(p)) - shift[half]);
      maximum[half] = top[half];
      sum[half] *= shrink[half];
    }
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      weights[i] = exp2_fast(kReads ? (scores[i] - shift[i / 2 % 2]) * to_log2(p)
                                    : fmaf(scores[i], to_log2(p), -shift[i / 2 % 2]));
      sum[i / 2 % 2] += weights[i];
    }
  }

  /// The same relative to the maximum so far, where earlier sums stay as they are: false, and nothing but
  /// `weights` is changed, if a score may be far above it for `any` thread. Calls `behind` with a late weight
  /// once the exponentials are nearly done.
  template <int kElements, class Behind, class Any>
  __device__ __forceinline__ bool weigh_as_before(const Params& p, const float (&scores)[kElements],
                                                  float (&weights)[kElements], Behind&& behind, Any&& any) {
    static_assert(kScores != Scores::kRead);
    // Of a thread's weights of both rows; float16 has numbers up to 65,504.
    constexpr float kMost = 4096.0f;
    const float shift[] = {maximum[0] * to_log2(p), maximum[1] * to_log2(p)};
    float added[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      weights[i] = exp2_fast(fmaf(scores[i], to_log2(p), -shift[i / 2 % 2]));
      added[i / 2 % 2] += weights[i];
    }
    behind(weights[kElements - kLate]);
    // A row that has seen no key adds infinities, or no numbers.
    if (any(!(added[0] + added[1] <= kMost))) return false;
    sum[0] += added[0], sum[1] += added[1];
    return true;
  }
};

/// Closes the sums of a warp's rows and stores their stats; `factor` is what o must be multiplied by.
template <Scores kScores>
__device__ inline void finish_rows(const Params& p, const HopperWork& w, const HopperRows<kScores>& rows,
                                   int first_row, float (&factor)[2]) {
  const Sequence& s = w.sequence;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Of the four lanes that share two rows, each closes one.
  const float sums[] = {lanes_sum<4>(rows.sum[0]), lanes_sum<4>(rows.sum[1])};
  const int own = lane % 2, row = first_row + lane / 4 + 8 * own;
  const float maximum = own == 0 ? rows.maximum[0] : rows.maximum[1];
  RowResult result;
  if (row < s.q_len)
    result = finish_row(p, w.head, maximum * rows.to_natural(p), own == 0 ? sums[0] : sums[1]);
  if (lane % 4 < 2) store_stats(p, s, w.head, row, result.lse);
  if constexpr (kScores == Scores::kRead) result.o_scale *= p.dropout_scale;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    factor[half] = __shfl_sync(0xffffffffu, result.o_scale, lane / 4 * 4 + half);
}

/// Stores o of one warp's 16 rows.
template <class T, int kElements>
__device__ __forceinline__ void store_rows(const Params& p, const HopperWork& w, const float (&o)[kElements],
                                           const float (&factor)[2], int first_row) {
  const int num_rows = min(rows_written(p[Role::kO], w.sequence.q_len, p.q_len) - first_row, 16);
  store_fragments<T>(p, w.sequence, Role::kO, {w.head, first_row, num_rows}, o, factor);
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
  const uint32_t q = shared.q_of(0, group);
  [[maybe_unused]] const uint32_t matrices =
      shared.matrices + static_cast<uint32_t>((group * 4 + warp) * MatrixBlock<16, kKeys>::kBytes);
  const auto release = [lane](uint32_t barrier) {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  };

  RingPlace<kTile.k_stages> k;
  RingPlace<kTile.v_stages> v;
  for (int turn = 0;; ++turn) {
    wait(barriers.q_full(), static_cast<uint32_t>(turn & 1));
    const HopperWork& w = work[turn % HopperWork::kSlots];
    if (static_cast<int>(uniform(w.head)) < 0) break;
    const int first_row = w.first_row + group * 64 + warp * 16;
    HopperRows<kScores> rows(p, w, first_row + lane / 4);
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
      const auto start_scores = [&] {
        start_row_products<T, kTile.dim, kTile.rows, kKeys>(scores, q, shared.k + k.stage * kTile.k_bytes());
      };
      const auto release_k = [&] {
        release(barriers.k_empty(k.stage));
        k.next();
      };
      // Products become scores of keys that rows see.
      const auto bound = [&](int tile) {
        if constexpr (kScores == Scores::kBent) rows.bend(p, scores, tile * kKeys);
        if constexpr (kScores == Scores::kRead) {
          block.arrive();
          rows.read(p, block, scores, tile * kKeys);
          if (tile > begin) block.bring(copies, w.sequence, w.head, first_row, (tile - 1) * kKeys);
        }
        rows.mask(scores, tile * kKeys, full_begin, full_end);
        if (full_begin == HopperWork::kAbsent) mask_absent(p, w.sequence, scores, tile * kKeys);
      };
      bool shrinks = true;  // o, before the next products are added
      const auto soften = [&](int tile, [[maybe_unused]] bool is_first) {
        if constexpr (kScores == Scores::kRead) {
          release_k();
          bound(tile);
          rows.weigh(p, scores, scores, shrink);
          if (drops(p)) {
#pragma unroll
            for (int i = 0; i < kKeys / 2; ++i)
              if (!is_kept(kept, i)) scores[i] = 0.0f;
          }
        } else {
          bound(tile);
          const auto any = [group](bool is_far) { return any_of_group(1 + group, is_far); };
          shrinks = is_first || !rows.weigh_as_before(
                                    p, scores, scores, [](float) {}, any);
          if (shrinks) {
            if (!is_first) {  // weights took the place of scores
              wait_products<0>();
              start_scores();
              wait_products<0>();
              bound(tile);
            }
            rows.weigh(p, scores, scores, shrink);
          }
          release_k();
        }
      };
      if constexpr (kScores == Scores::kRead)
        block.bring(copies, w.sequence, w.head, first_row, (end - 1) * kKeys);
      wait(barriers.k_full(k.stage), k.parity);
      start_scores();
      prepare(end - 1);
      wait_products<0>();
      soften(end - 1, true);
      // The wait for a tile's product with V stands in the next turn of the loop: within one block of
      // instructions ptxas moves it before the softmax that should run under that product.
      for (int tile = end - 1;; --tile) {
        wait_products<0>();
        if (tile < end - 1) release(barriers.v_empty(v.stage)), v.next();
        if (shrinks) {
#pragma unroll
          for (int i = 0; i < kTile.v_dim / 2; ++i) o[i] *= shrink[i / 2 % 2];
        }
        round_weights<T>(scores, weights);
        if (tile == begin) break;
        wait(barriers.k_full(k.stage), k.parity);
        start_scores();
        wait(barriers.v_full(v.stage), v.parity);
        start_weighted_rows<T, kKeys>(o, weights, shared.v + v.stage * kTile.v_bytes());
        prepare(tile - 1);
        wait_products<1>();
        soften(tile - 1, false);
      }
      release(barriers.q_empty());
      wait(barriers.v_full(v.stage), v.parity);
      start_weighted_rows<T, kKeys>(o, weights, shared.v + v.stage * kTile.v_bytes());
      wait_products<0>();
      release(barriers.v_empty(v.stage));
      v.next();
    } else {
      release(barriers.q_empty());
    }
    float factor[2];
    finish_rows(p, w, rows, first_row, factor);
    store_rows<T>(p, w, o, factor, first_row);
  }
}

/// A warpgroup's tile of rows, as one thread sees it.
template <Scores kScores>
struct HopperPass {
  const HopperWork* work;
  int first_row;    ///< of the warp's 16
  uint32_t buffer;  ///< of Q
  HopperRows<kScores> rows;
  int tile, begin;           ///< of keys: the one whose scores are at hand, and the last
  int full_begin, full_end;  ///< keys that every row sees

  __device__ HopperPass(const Params& p, const HopperWork& w, int group_row, uint32_t of_q)
      : work(&w),
        first_row(w.first_row + group_row + static_cast<int>(threadIdx.x) / 32 % 4 * 16),
        buffer(of_q),
        rows(p, w, first_row + static_cast<int>(threadIdx.x) % 32 / 4),
        tile(w.end - 1),
        begin(w.begin),
        full_begin(w.full_begin),
        full_end(w.full_end) {}
};

/// What remains of a tile of rows until its o is stored.
struct HopperFinished {
  const HopperWork* work = nullptr;  ///< null: none
  int first_row;
  float factor[2];  ///< of o
};

template <bool kIsFirst, class First, class Second>
__device__ __forceinline__ auto& one_of(First& first, Second& second) {
  if constexpr (kIsFirst)
    return first;
  else
    return second;
}

/// One warpgroup of products where tiles are joined: all tiles of the block.
template <class T, HopperTile kTile, Scores kScores>
__device__ inline void multiply_joined_tiles(const Params& p, const HopperShared<kTile>& shared,
                                             const HopperBarriers<kTile>& barriers,
                                             const HopperWork (&work)[HopperWork::kSlots]) {
  using Pass = HopperPass<kScores>;
  static_assert(kScores != Scores::kRead);
  constexpr int kKeys = kTile.keys;
  const int group = product_group();
  const int lane = static_cast<int>(threadIdx.x) % 32;

  RingPlace<kTile.k_stages> k;
  RingPlace<kTile.v_stages> v;
  float o[kTile.v_dim / 2] = {}, scores[kKeys / 2], shrink[2];
  uint32_t weights[kKeys / 16][4];
  bool shrinks = true;  ///< o, before the next products are added
  // Weights take the place of scores, or have their own.
  [[maybe_unused]] float own_weights[kTile.keeps_scores() ? kKeys / 2 : 1];
  float(&unrounded)[kKeys / 2] = one_of<kTile.keeps_scores()>(own_weights, scores);
  const auto release = [lane](uint32_t barrier) {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  };
  const auto work_of = [&](int turn) -> const HopperWork& {
    wait(barriers.q_full(turn % 2, group), static_cast<uint32_t>(turn / 2 % 2));
    return work[turn % HopperWork::kSlots];
  };
  const auto begin_pass = [&](int turn) {
    return Pass(p, work_of(turn), group * HopperTile::group_rows, static_cast<uint32_t>(turn % 2));
  };
  const auto joins = [&](int turn) {
    const HopperWork& w = work_of(turn);
    return w.begin < w.end;
  };
  const auto start_scores = [&](uint32_t buffer) {
    start_row_products<T, kTile.dim, kTile.rows, kKeys>(scores, shared.q_of(buffer, group),
                                                        shared.k + k.stage * kTile.k_bytes());
  };
  // One warpgroup is at its exponentials while the other has products: both at once would take twice as long
  // and leave the tensor cores idle meanwhile.
  constexpr int kTurn = 1;  // of the named barriers, one a warpgroup
  const auto pass_turn = [&](float weight) {
    announce(once_known(kTurn + (group ^ 1), weight), 2 * kWarpgroup);
  };
  if (kTile.keeps_scores() && group == 1) announce(kTurn, 2 * kWarpgroup);
  const auto soften = [&](Pass& pass, [[maybe_unused]] bool is_first) {
    release(barriers.k_empty(k.stage));
    k.next();
    if (pass.tile == pass.begin) release(barriers.q_empty(pass.buffer, group));
    const int first_key = pass.tile * kKeys;
    if constexpr (kScores == Scores::kBent) pass.rows.bend(p, scores, first_key);
    pass.rows.mask(scores, first_key, pass.full_begin, pass.full_end);
    if (pass.full_begin == HopperWork::kAbsent) mask_absent(p, pass.work->sequence, scores, first_key);
    if constexpr (kTile.keeps_scores()) {
      meet(kTurn + group, 2 * kWarpgroup);
      const auto any = [](bool is_far) { return __any_sync(0xffffffffu, is_far); };
      shrinks = is_first || !pass.rows.weigh_as_before(p, scores, own_weights, pass_turn, any);
      if (!shrinks) return;
    }
    pass.rows.weigh(p, scores, unrounded, shrink);
    if (kTile.keeps_scores() && is_first) pass_turn(unrounded[kKeys / 2 - HopperRows<kScores>::kLate]);
  };
  const auto start_weighted = [&] {
    wait(barriers.v_full(v.stage), v.parity);
    start_weighted_rows<T, kKeys>(o, weights, shared.v + v.stage * kTile.v_bytes());
  };
  const auto release_v = [&] {
    release(barriers.v_empty(v.stage));
    v.next();
  };
  const auto finish = [&](const Pass& pass, HopperFinished& done) {
    done.work = pass.work, done.first_row = pass.first_row;
    finish_rows(p, *pass.work, pass.rows, pass.first_row, done.factor);
  };
  const auto store = [&](HopperFinished& done) {
    store_rows<T>(p, *done.work, o, done.factor, done.first_row);
    done.work = nullptr;
#pragma unroll
    for (float& element : o) element = 0.0f;
  };
  const auto shrink_o = [&] {
#pragma unroll
    for (int i = 0; i < kTile.v_dim / 2; ++i) o[i] *= shrink[i / 2 % 2];
  };

  HopperFinished done;
  for (int turn = 0; static_cast<int>(uniform(work_of(turn).head)) >= 0; ++turn) {
    Pass pass = begin_pass(turn);
    if (pass.begin <= pass.tile) {
      wait(barriers.k_full(k.stage), k.parity);
      start_scores(pass.buffer);
      wait_products<0>();
      soften(pass, true);
      // The wait for a tile's product with V stands in the next turn of the loop: within one block of
      // instructions ptxas moves it before the softmax that should run under that product.
      for (bool is_first = true;; is_first = false) {
        wait_products<0>();
        if (!is_first) release_v();
        round_weights<T>(unrounded, weights);
        const bool is_last = pass.tile == pass.begin;
        if (is_last) {
          if (done.work != nullptr) store(done);
          if (!joins(turn + 1)) break;
        }
        wait(barriers.k_full(k.stage), k.parity);
        start_scores(is_last ? pass.buffer ^ 1 : pass.buffer);
        if (done.work != nullptr)
          store(done);
        else if (shrinks)
          shrink_o();
        start_weighted();
        if (is_last)
          finish(pass, done), pass = begin_pass(++turn);
        else
          --pass.tile;
        wait_products<1>();
        soften(pass, is_last);
      }
      if (shrinks) shrink_o();
      start_weighted();
      wait_products<0>();
      release_v();
    } else {
      release(barriers.q_empty(pass.buffer, group));
    }
    finish(pass, done);
    store(done);
  }
  if (kTile.keeps_scores() && group == 0) meet(kTurn, 2 * kWarpgroup);  // or a turn would be left over
}

template <class T, int kDim, Scores kScores>
__global__ void __launch_bounds__(hopper_forward_tile(kDim, kScores).threads, 1)
    hopper_forward(const __grid_constant__ Params p, const __grid_constant__ HopperCopies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr HopperTile kTile = hopper_forward_tile(kDim, kScores);
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  __shared__ uint64_t barrier_memory[HopperBarriers<kTile>::kCount];
  __shared__ HopperWork work[HopperWork::kSlots];
  static_assert(sizeof(barrier_memory) + sizeof(work) <= kHopperTableBytes);
  const HopperShared<kTile> shared(shared_address(dynamic_shared));
  const HopperBarriers<kTile> barriers{shared_address(barrier_memory)};
  if (threadIdx.x == 0) {
    barriers.init(p[Role::kPageTableK].present ? 2 : 1);
    prefetch_map(&copies.q), prefetch_map(&copies.k), prefetch_map(&copies.v);
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    shrink_registers<kTile.copy_registers>();
    if constexpr (kTile.joins()) {
      copy_joined_tiles<kTile>(p, copies, shared, barriers, work);
    } else if (threadIdx.x < 32) {
      copy_tiles<kTile>(p, copies, shared, barriers, work);
    }
  } else {
    grow_registers<kTile.product_registers>();
    if constexpr (kTile.joins())
      multiply_joined_tiles<T, kTile, kScores>(p, shared, barriers, work);
    else
      multiply_tiles<T, kTile, kScores>(p, copies, shared, barriers, work);
  }
#else
  __trap();  // no recipe for another target has it
#endif
}

}  // namespace attngraph::cuda
