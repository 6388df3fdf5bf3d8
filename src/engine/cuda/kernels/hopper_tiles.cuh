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

/// The tile of a block's turn. Blocks take tiles in order in one turn and in reverse in the next: a block
/// that had the longest of one gets the shortest of the other.
__device__ inline int tile_of_turn(int turn, int block = static_cast<int>(blockIdx.x)) {
  const int blocks = static_cast<int>(gridDim.x);
  return turn * blocks + (turn % 2 == 0 ? block : blocks - 1 - block);
}

/// Tile `index` of the launch: sections of heads one after the other, in a section neighbouring blocks on
/// different heads. Where a band gives tiles different numbers of keys, these fall in the last section and
/// in turn rise and fall in those before: no step between sections, which would fall on some blocks only.
struct HopperPlace {
  int tile = 0, head = -1, batch = 0;

  HopperPlace() = default;
  __device__ HopperPlace(const Params& p, const HopperCopies& copies, int heads, int first_head, int index) {
    const int all = heads * p.batch_count;
    const int section = index / (copies.heads_together * p.row_tiles);
    const int first = section * copies.heads_together, count = min(copies.heads_together, all - first);
    const int rest = index - first * p.row_tiles, lane = first + rest % count;
    const int sections_after = (all - 1) / copies.heads_together - section;
    tile = rest / count;
    if (p.from_last && sections_after % 2 == 0) tile = p.row_tiles - 1 - tile;
    head = first_head + lane % heads;
    batch = p.batch_begin + lane / heads;
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
#pragma unroll 1  // seldom, and registers are few
  for (int panel = 0; panel < kDim / kPanelColumns; ++panel)
#pragma unroll 1
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

/// Brings a tile by `copy(barrier)`, zero from row `num_rows` on; the whole warp calls it. `parity` is that
/// of the cleared barrier.
template <int kDim, int kRows, class Copy>
__device__ inline void bring_tile(const TileArrival& at, int num_rows, uint32_t& parity, const Copy& copy) {
  const bool has_tail = num_rows < kRows;
  copy(has_tail ? at.cleared : at.full);
  if (!has_tail) return;
  wait(at.cleared, parity);
  parity ^= 1;
  clear_rows<kDim, kRows>(at.to, num_rows);
  if (threadIdx.x % 32 == 0) arrive(at.full);
}
/// The same for rows `row` .. of one head.
template <int kDim, int kRows>
__device__ inline void bring_tile(const TileArrival& at, const TensorMap& map, MapPlace place, int row,
                                  int head, int num_rows, Keep keep, uint32_t& parity) {
  bring_tile<kDim, kRows>(at, num_rows, parity, [&](uint32_t barrier) {
    __syncwarp();  // none still waits when the leader lets the phase after this one end
    if (threadIdx.x % 32 != 0) return;
    arrive_expecting(barrier, kRows * kDim * 2);
    copy_panels<kDim, kRows>(at.to, map, place, row, head, barrier, keep);
  });
}

/// Where k or v of a key lies in its container; page -1, outside of it, for a key that is absent.
template <Role kRole>
__device__ inline PageRow key_page(const Params& p, const Sequence& s, int key) {
  if (key < 0 || key >= s.kv_len) return {-1, 0};  // behind the last the tables may hold anything, or end
  // A weight of 0 must not meet v where k is absent; k where v is absent is masked.
  if (kRole == Role::kV && page_row<Role::kK>(p, s, key).page < 0) return {-1, 0};
  return page_row<kRole>(p, s, key);
}

/// Pages of k or v for tiles on the way to the first key, a lane a piece: looked up for each tile alone, they
/// kept the copying warp from its copies.
template <Role kRole>
struct PageWindow {
  int first_tile = 0;  ///< of those that lanes know; behind all that are asked for at first
  PageRow of_lane{};

  /// Where the lane's piece of a tile of so many pieces of `rows` rows lies.
  __device__ PageRow find(const Params& p, const Sequence& s, int tile, int pieces, int rows) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (tile < first_tile) {
      first_tile = tile + 1 - 32 / pieces;
      of_lane = key_page<kRole>(p, s, (first_tile * pieces + lane) * rows);
    }
    const int from = (tile - first_tile) * pieces + lane;
    return {__shfl_sync(0xffffffffu, of_lane.page, from), __shfl_sync(0xffffffffu, of_lane.row, from)};
  }
};

/// A tile that comes in pieces, a lane a piece: lane l's is the l-th of `rows` rows.
struct PieceArrival {
  uint32_t to, full;  ///< as in TileArrival
  int rows;
};
template <int kDim, int kRows>
__device__ inline void copy_pieces(const PieceArrival& pieces, const TensorMap& map, PageRow at, int head,
                                   Keep keep) {
  if (elect()) arrive_expecting(pieces.full, kRows * kDim * 2);
  uint32_t to = pieces.to;
#pragma unroll 1
  for (int piece = 0, first = 0; first < kRows; ++piece, first += pieces.rows) {
    const int page = __shfl_sync(0xffffffffu, at.page, piece), row = __shfl_sync(0xffffffffu, at.row, piece);
    if (elect())
#pragma unroll
      for (int panel = 0; panel < kDim / kPanelColumns; ++panel)
        copy_box(to + panel * kRows * kPanelRowBytes, &map, panel * kPanelColumns, row, head, page,
                 pieces.full, keep);
    to += pieces.rows * kPanelRowBytes;
  }
  __syncwarp();
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

/// Makes scores in units of log2 of products, through softcap or by any scale, and multiplies `factors` by
/// their slopes with respect to the scaled products.
template <int kElements>
__device__ __forceinline__ void bend_scores(const Params& p, float (&scores)[kElements],
                                            float (&factors)[kElements]) {
  if (p.softcap > 0.0f) {
    const Softcap softcap(p.softcap, p.scale_log2);
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const float share = softcap.share(scores[i]);
      scores[i] = softcap.score(share), factors[i] *= Softcap::slope(share);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kElements; ++i) scores[i] *= p.scale_log2;
  }
}

/// Of a query head; 0 without slopes.
__device__ inline float alibi_slope(const Params& p, const Sequence& s, int head) {
  const TensorView& t = p[Role::kAlibiSlopes];
  if (!t.present) return 0.0f;
  return load_element(t, s.start[static_cast<size_t>(Role::kAlibiSlopes)] + head * t.stride[1]);
}

/// The elements of a part of an accumulator's columns.
template <int kPart, class Element, int kElements>
__device__ __forceinline__ Element (&part_of(Element (&values)[kElements], int part))[kPart] {
  return reinterpret_cast<Element(&)[kPart]>(values[part * kPart]);
}

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

/// Starts sums += weights times kPart rows, from `first` on, of a tile of kRows.
template <class T, int kRows, int kPart = kRows, int kElements>
__device__ __forceinline__ void start_weighted_rows(float (&sums)[kElements],
                                                    uint32_t (&weights)[kPart / 16][4], uint32_t rows,
                                                    int first = 0) {
  const Operand of_rows = column_operand(rows + first * kPanelRowBytes, kRows * kPanelRowBytes);
  fence_products();
#pragma unroll
  for (int step = 0; step < kPart / 16; ++step)
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
                                           const float (&factor)[2],
                                           int lane = static_cast<int>(threadIdx.x) % 32) {
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

/// Stores columns `first_column` .. of the first rows of a warp's 16 staged ones, 16 bytes a lane, kTogether
/// of them before it waits.
template <class T, int kDim, int kPanelBytes, int kTogether = 1>
__device__ inline void store_staged(const Params& p, const Sequence& s, Role role, const RowBlock& rows,
                                    uint32_t stage, int first_column = 0,
                                    int lane = static_cast<int>(threadIdx.x) % 32) {
  constexpr int kChunks = kDim / 8;
  const TensorView& t = p[role];
  for (int first = lane; first < rows.num_rows * kChunks; first += 32 * kTogether) {
    uint4 pieces[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = first + 32 * i;
      pieces[i] = load_shared_16(staged<kPanelBytes>(stage, at / kChunks, at % kChunks));
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = first + 32 * i, row = at / kChunks, column = first_column + 8 * (at % kChunks);
      if (row < rows.num_rows && column < t.extent[3])
        *reinterpret_cast<uint4*>(reinterpret_cast<T*>(t.data) +
                                  row_offset(p, s, role, rows.head, rows.first_row + row) + column) =
            pieces[i];
    }
  }
}

/// Stores rows of a warp's 16 from their accumulators, row by row times a factor; a factor of 0 gives zeros.
/// Neighbouring lanes exchange halves of two chunks of 8 columns, so that a quad writes 32 bytes of a row.
template <class T, int kElements>
__device__ __forceinline__ void store_fragments(const Params& p, const Sequence& s, Role role,
                                                const RowBlock& rows, const float (&values)[kElements],
                                                const float (&factor)[2]) {
  const auto lane = static_cast<int>(made_anew(threadIdx.x) % 32u);  // or addresses stay in registers
  const bool is_odd = lane % 2 != 0;
  const int column = is_odd * 8 + lane % 4 / 2 * 4;
  const TensorView& t = p[role];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + 8 * half;
    T* const to =
        reinterpret_cast<T*>(t.data) + row_offset(p, s, role, rows.head, rows.first_row + row) + column;
    const int columns = row < rows.num_rows ? t.extent[3] - column : 0;
#pragma unroll
    for (int first = 0; first < 2 * kElements; first += 16) {
      const float* const from = values + first / 2 + 2 * half;
      uint32_t low = pack<T>(from[0] * factor[half], from[1] * factor[half]);
      uint32_t high = pack<T>(from[4] * factor[half], from[5] * factor[half]);
      if (factor[half] == 0.0f) low = high = 0;
      const uint32_t other = __shfl_xor_sync(0xffffffffu, is_odd ? low : high, 1);
      if (first < columns)
        *reinterpret_cast<uint2*>(to + first) = is_odd ? uint2{other, high} : uint2{low, other};
    }
  }
}

/// Stores zeros in a warp's rows.
template <class T>
__device__ inline void store_zero_rows(const Params& p, const Sequence& s, Role role, const RowBlock& rows) {
  const TensorView& t = p[role];
  const int chunks = t.extent[3] / 8;
  for (int at = static_cast<int>(threadIdx.x) % 32; at < rows.num_rows * chunks; at += 32)
    *reinterpret_cast<uint4*>(reinterpret_cast<T*>(t.data) +
                              row_offset(p, s, role, rows.head, rows.first_row + at / chunks) +
                              8 * (at % chunks)) = uint4{};
}

}  // namespace attngraph::cuda
