#pragma once

#include "engine/cuda/hopper_tiles.hpp"
#include "engine/cuda/kernels/hopper_ptx.cuh"
#include "engine/cuda/kernels/scores.cuh"

/// What the sm_90a kernels share: rings of buffers, tiles that the copy engine brings, accumulators that
/// become operands, rows on their way out.
namespace attngraph::cuda {

inline constexpr int kWarpgroup = 128;
/// Which of the warpgroups behind the copying one the thread is in, from 0.
__device__ inline int product_group() { return static_cast<int>(uniform(threadIdx.x / kWarpgroup)) - 1; }

/// A place in a ring of buffers: which one, and the parity of its round.
template <int kStages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

/// Where a sequence's rows lie in a tensor's map.
struct MapPlace {
  int row, batch;
};
__device__ inline MapPlace map_place(const Params& p, const Sequence& s, Role role) {
  const TensorView& t = p[role];
  if (!t.ragged) return {0, s.batch};
  return {static_cast<int>(s.start[static_cast<size_t>(role)] / t.stride[2]), 0};
}

/// Copies `kRows` rows of one head, panel by panel.
template <int kDim, int kRows>
__device__ inline void copy_panels(uint32_t to, const TensorMap& map, MapPlace place, int row, int head,
                                   uint32_t barrier, Keep keep) {
#pragma unroll
  for (int panel = 0; panel < kDim / kPanelColumns; ++panel)
    copy_box(to + panel * kRows * kPanelRowBytes, &map, panel * kPanelColumns, place.row + row, head,
             place.batch, barrier, keep);
}

/// Zeroes rows `first` .. of a tile: a weight of 0 must not meet what lies behind a sequence.
template <int kDim, int kRows>
__device__ inline void clear_rows(uint32_t tile, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int panel = 0; panel < kDim / kPanelColumns; ++panel)
    for (int at = first * kPanelRowBytes + lane * 16; at < kRows * kPanelRowBytes; at += 32 * 16)
      store_shared_16(tile + panel * kRows * kPanelRowBytes + at, uint4{});
  fence_async_shared();
  __syncwarp();
}

/// Where a tile goes and which barriers say so.
struct TileArrival {
  uint32_t to;
  uint32_t full;     ///< completes when the tile may be read
  uint32_t cleared;  ///< passed first by a tile whose tail is zeroed
};

/// Brings rows `row` .. of one head, zero from `num_rows` on; the whole warp calls it. `parity` is that of
/// the cleared barrier.
template <int kDim, int kRows>
__device__ inline void bring_tile(const TileArrival& at, const TensorMap& map, MapPlace place, int row,
                                  int head, int num_rows, Keep keep, uint32_t& parity) {
  const bool leader = threadIdx.x % 32 == 0, has_tail = num_rows < kRows;
  const uint32_t barrier = has_tail ? at.cleared : at.full;
  if (leader) {
    arrive_expecting(barrier, kRows * kDim * 2);
    copy_panels<kDim, kRows>(at.to, map, place, row, head, barrier, keep);
  }
  if (!has_tail) return;
  wait(barrier, parity);
  parity ^= 1;
  clear_rows<kDim, kRows>(at.to, num_rows);
  if (leader) arrive(at.full);
}

/// Rows l / 4 and l / 4 + 8 of lane l's accumulators: the columns that the band leaves to each.
struct Span {
  int begin[2], end[2];

  template <int kElements>
  __device__ __forceinline__ void mask(float (&scores)[kElements], int first_key) const {
    const int column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int key = column + i / 4 * 8 + i % 2, half = i / 2 % 2;
      if (key < begin[half] || key >= end[half]) scores[i] = -kInf;
    }
  }
};

/// Softcap of products in units of log2: cap tanh(x / cap) = cap (1 - 2 r), where r = 1 / (e^(2 x / cap) +
/// 1).
struct Softcap {
  float rate, cap;

  __device__ Softcap(float softcap, float scale_log2)
      : rate(2.0f * scale_log2 / softcap), cap(softcap * kLog2e) {}
  /// r of a product.
  __device__ float share(float product) const { return reciprocal_fast(exp2_fast(product * rate) + 1.0f); }
  __device__ float score(float share) const { return fmaf(-2.0f * cap, share, cap); }
  /// Of the score, with respect to the product times the scale.
  __device__ static float slope(float share) { return 4.0f * share * (1.0f - share); }
};

/// Starts products = a b^T of two tiles of kDim columns: 64 of a's kRowsA rows, from the one at `a` on, and
/// all kRowsB rows of b.
template <class T, int kDim, int kRowsA, int kRowsB>
__device__ __forceinline__ void start_row_products(float (&products)[kRowsB / 2], uint32_t a, uint32_t b) {
  const Operand of_a = row_operand(a), of_b = row_operand(b);
  constexpr uint32_t kPanelA = kRowsA * kPanelRowBytes / 16, kPanelB = kRowsB * kPanelRowBytes / 16;
  fence_products();
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    const uint32_t panel = step / 4, within = step % 4 * 2;
    product<T, false>(products, of_a + panel * kPanelA + within, of_b + panel * kPanelB + within, step > 0);
  }
  commit_products();
}

/// Starts sums += weights times a tile of kRows rows.
template <class T, int kRows, int kElements>
__device__ __forceinline__ void start_weighted_rows(float (&sums)[kElements],
                                                    uint32_t (&weights)[kRows / 16][4], uint32_t rows) {
  const Operand of_rows = column_operand(rows, kRows * kPanelRowBytes);
  fence_products();
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step)
    add_product<T>(sums, weights[step], of_rows + step * kPanelRowBytes);
  commit_products();
}

/// Weights as the A operand of the second product: the accumulator's own layout.
template <class T, int kElements>
__device__ __forceinline__ void round_weights(const float (&scores)[kElements],
                                              uint32_t (&weights)[kElements / 8][4]) {
#pragma unroll
  for (int i = 0; i < kElements / 2; ++i) weights[i / 4][i % 4] = pack<T>(scores[2 * i], scores[2 * i + 1]);
}

/// Address of a chunk of 8 elements of a row in a warp's 16 staged rows: panels as those of a tile,
/// kPanelBytes apart.
template <int kPanelBytes>
__device__ inline uint32_t staged(uint32_t stage, int row, int chunk) {
  return stage + static_cast<uint32_t>(chunk / 8 * kPanelBytes + row * kPanelRowBytes +
                                       ((chunk % 8 ^ (row & 7)) << 4));
}

/// Stages a warp's 16 rows of accumulators, row by row times a factor; a factor of 0 gives zeros.
template <class T, int kPanelBytes, int kElements>
__device__ __forceinline__ void stage_rows(uint32_t stage, const float (&values)[kElements],
                                           const float (&factor)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int chunk = 0; chunk < kElements / 4; ++chunk) {
      const float low = values[4 * chunk + 2 * half] * factor[half];
      const float high = values[4 * chunk + 2 * half + 1] * factor[half];
      store_shared_4(
          staged<kPanelBytes>(stage, lane / 4 + 8 * half, chunk) + static_cast<uint32_t>(lane % 4 * 4),
          factor[half] != 0.0f ? pack<T>(low, high) : 0u);
    }
}

struct RowBlock {
  int head, first_row, num_rows;
};

/// Stores the first rows of a warp's 16 staged ones, 16 bytes a lane.
template <class T, int kDim, int kPanelBytes>
__device__ inline void store_staged(const Params& p, const Sequence& s, Role role, const RowBlock& rows,
                                    uint32_t stage) {
  constexpr int kChunks = kDim / 8;
  const TensorView& t = p[role];
  for (int at = static_cast<int>(threadIdx.x) % 32; at < rows.num_rows * kChunks; at += 32) {
    const int row = at / kChunks, chunk = at % kChunks;
    if (8 * chunk >= t.extent[3]) continue;
    *reinterpret_cast<uint4*>(reinterpret_cast<T*>(t.data) +
                              row_offset(p, s, role, rows.head, rows.first_row + row) + 8 * chunk) =
        load_shared_16(staged<kPanelBytes>(stage, row, chunk));
  }
}

}  // namespace attngraph::cuda
