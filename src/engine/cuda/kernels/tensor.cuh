#pragma once

#include "engine/cuda/kernels/scores.cuh"
#include "engine/cuda/tiles.hpp"

/// Building blocks of the tensor-core kernels: swizzled tiles in shared memory and their products.
///
/// Fragments (PTX ISA, mma.m16n8k16): lane l holds rows l / 4 and l / 4 + 8, columns 2 (l % 4) and
/// the next, of each 16x8 accumulator; element [2 h + e] is row half h, column e. Two neighbouring
/// accumulators, rounded, are the A operand of the next product.
namespace attngraph::cuda {

/// A tile of rows of kDim two-byte elements. Chunk c (16 bytes) of row r lies at c ^ (r % 8), of a row of
/// 64 bytes at c ^ (r / 2 % 4), so that eight rows of one chunk fill all banks.
template <int kDim>
struct SharedTile {
  static constexpr int kChunks = kDim / 8, kPitch = kDim * 2;
  uint32_t base;

  __device__ uint32_t at(int row, int chunk) const {
    const int twist = kChunks < 8 ? row >> 1 & 3 : row & 7;
    return base + static_cast<uint32_t>(row * kPitch + ((chunk ^ twist) << 4));
  }
  /// From at(row, 0 or 1) to the chunk 2 k further: one exclusive or, since bases are multiples of 128.
  __device__ static uint32_t further(uint32_t address, int k) {
    return (address ^ static_cast<uint32_t>(k % 4 << 5)) + static_cast<uint32_t>(k / 4 * 128);
  }
};

/// Starts the copy of kRows rows; element_of(row) < 0 and chunks at or beyond `chunks` become zero.
template <int kRows, int kThreads, int kDim, class ElementOf>
__device__ inline void load_tile(SharedTile<kDim> tile, const TensorView& t, int chunks,
                                 ElementOf element_of) {
  constexpr int kChunks = SharedTile<kDim>::kChunks;
  static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll 2
  for (int n = 0; n < kRows * kChunks / kThreads; ++n) {
    const int index = static_cast<int>(threadIdx.x) + n * kThreads;
    const int row = index / kChunks, chunk = index % kChunks;
    const int64_t element = chunk < chunks ? element_of(row) : int64_t{-1};
    const std::byte* from = element < 0 ? t.data : t.data + (element + chunk * 8) * 2;
    copy_async_16(tile.at(row, chunk), from, element < 0 ? 0 : 16);
  }
}

/// Starts the copy of rows begin .. begin + kRows - 1 of one head; rows at or beyond `count` and chunks
/// at or beyond `dim` become zero, their addresses are formed and not read.
///
/// The address is made anew at each call: kept in registers it would crowd out accumulators.
template <int kRows, int kThreads, int kDim>
__device__ inline void load_rows(SharedTile<kDim> tile, const Params& p, const Sequence& s, Role role,
                                 int head, int begin, int count, int dim) {
  constexpr int kChunks = SharedTile<kDim>::kChunks, kPass = kThreads / kChunks;  // rows copied at once
  static_assert(kRows % kPass == 0);
  const int thread = made_anew(threadIdx.x), row = thread / kChunks, chunk = thread % kChunks;
  const TensorView& t = p[role];
  const std::byte* from = t.data + (row_offset(p, s, role, head, begin + row) + chunk * 8) * 2;
  const int left = chunk * 8 < dim ? count - begin - row : 0;
#pragma unroll
  for (int n = 0; n < kRows / kPass; ++n) {
    copy_async_16(tile.at(row + n * kPass, chunk), from, n * kPass < left ? 16 : 0);
    from += kPass * 2 * t.stride[2];
  }
}

/// Loads a block's packed rows of q or do once: at one stride when heads are not grouped.
template <int kRows, int kThreads, int kDim>
__device__ inline void load_packed_rows(SharedTile<kDim> tile, const Params& p, const Sequence& s,
                                        const PackedRows& rows, Role role, int first_row, int dim) {
  if (p.group == 1) {
    load_rows<kRows, kThreads>(tile, p, s, role, rows.kv_head, first_row, s.q_len, dim);
    return;
  }
  load_tile<kRows, kThreads>(tile, p[role], dim / 8, [&](int r) {
    const int row = first_row + r;
    return row < s.q_len * p.group ? row_offset(p, s, role, rows.head(row), rows.position(row)) : int64_t{-1};
  });
}

/// The same for keys j0 .. j0 + kKeys - 1 of k or v, row by row where they are paged.
template <Role kRole, int kKeys, int kThreads, bool kPages, int kDim>
__device__ inline void load_keys(SharedTile<kDim> tile, const Params& p, const Sequence& s, int kv_head,
                                 int j0) {
  const int dim = kRole == Role::kK ? p.qk_dim : p.v_dim;
  if (kPages && p[kRole == Role::kK ? Role::kPageTableK : Role::kPageTableV].present) {
    load_tile<kKeys, kThreads>(tile, p[kRole], dim / 8, [&](int r) {
      return j0 + r < s.kv_len ? key_offset<kRole>(p, s, kv_head, j0 + r) : int64_t{-1};
    });
  } else {
    load_rows<kKeys, kThreads>(tile, p, s, kRole, kv_head, j0, s.kv_len, dim);
  }
}

/// c[m][n] += A rows . B rows over all columns: A's rows first_a.. (16 each), B's rows first_b.. (8 each).
template <class T, int kM, int kN, class Tile>
__device__ inline void multiply_rows(float (&c)[kM][kN][4], Tile a, int first_a, Tile b, int first_b) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t at_a = a.at(first_a + lane % 16, lane / 16);
  const uint32_t at_b = b.at(first_b + lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < Tile::kChunks / 2; ++k) {
    uint32_t fa[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) load_matrices(fa[m], Tile::further(at_a, k) + 16 * m * Tile::kPitch);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t fb[4];
      load_matrices(fb, Tile::further(at_b, k) + 8 * n * Tile::kPitch);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_accumulate<T>(c[m][n], fa[m], fb[0], fb[1]);
        multiply_accumulate<T>(c[m][n + 1], fa[m], fb[2], fb[3]);
      }
    }
  }
}

/// c[m][.] += W B: W the weights of 8 kN columns, held as accumulators, B's rows first_b.. as columns.
template <class T, int kM, int kN, class Tile>
__device__ inline void multiply_weights(float (&c)[kM][Tile::kChunks][4], const float (&weights)[kM][kN][4],
                                        Tile b, int first_b) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t at_b = b.at(first_b + lane % 16, lane / 16);
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
    uint32_t fa[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      fa[m][0] = pack<T>(weights[m][2 * k][0], weights[m][2 * k][1]);
      fa[m][1] = pack<T>(weights[m][2 * k][2], weights[m][2 * k][3]);
      fa[m][2] = pack<T>(weights[m][2 * k + 1][0], weights[m][2 * k + 1][1]);
      fa[m][3] = pack<T>(weights[m][2 * k + 1][2], weights[m][2 * k + 1][3]);
    }
#pragma unroll
    for (int d = 0; d < Tile::kChunks / 2; ++d) {
      uint32_t fb[4];
      load_matrices_transposed(fb, Tile::further(at_b, d) + 16 * k * Tile::kPitch);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_accumulate<T>(c[m][2 * d], fa[m], fb[0], fb[1]);
        multiply_accumulate<T>(c[m][2 * d + 1], fa[m], fb[2], fb[3]);
      }
    }
  }
}

/// c += W^T B: W a tile of weights, kRows by kColumns, of which columns first_column.. (16) become rows; B
/// kRows rows, of which chunks first_chunk.. (kN) become columns.
template <class T, int kRows, int kN, int kColumns, int kDim>
__device__ inline void multiply_transposed(float (&c)[kN][4], SharedTile<kColumns> w, int first_column,
                                           SharedTile<kDim> b, int first_chunk, int lane) {
  using Tile = SharedTile<kDim>;
  const uint32_t at_w = w.at(lane / 16 * 8 + lane % 8, first_column / 8 + lane / 8 % 2);
  const uint32_t at_b = Tile::further(b.at(lane % 16, lane / 16), first_chunk / 2);
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    uint32_t fa[4];
    load_matrices_transposed(fa, at_w + 16 * k * SharedTile<kColumns>::kPitch);
#pragma unroll
    for (int d = 0; d < kN / 2; ++d) {
      uint32_t fb[4];
      load_matrices_transposed(fb, Tile::further(at_b, d) + 16 * k * Tile::kPitch);
      multiply_accumulate<T>(c[2 * d], fa, fb[0], fb[1]);
      multiply_accumulate<T>(c[2 * d + 1], fa, fb[2], fb[3]);
    }
  }
}

/// Rounds a warp's accumulators, times a factor a row, into the rows first.. of a tile; only that warp
/// reads those rows before or after.
template <class T, int kM, int kDim>
__device__ inline void stage_rows(SharedTile<kDim> tile, int first, const float (&c)[kM][kDim / 8][4],
                                  const float (&factor)[kM][2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n)
        store_shared_4(tile.at(first + 16 * m + 8 * half + lane / 4, n) + lane % 4 * 4,
                       pack<T>(c[m][n][2 * half] * factor[m][half], c[m][n][2 * half + 1] * factor[m][half]));
  __syncwarp();
}

/// Writes a warp's kCount staged rows; element_of(row) < 0 is not written.
template <int kCount, int kDim, class ElementOf>
__device__ inline void store_rows(SharedTile<kDim> tile, int first, const TensorView& t, int chunks,
                                  ElementOf element_of) {
  constexpr int kChunks = SharedTile<kDim>::kChunks;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int index = lane; index < kCount * kChunks; index += 32) {
    const int row = first + index / kChunks, chunk = index % kChunks;
    if (chunk >= chunks) continue;
    const int64_t element = element_of(row);
    if (element >= 0)
      *reinterpret_cast<uint4*>(t.data + (element + chunk * 8) * 2) = load_shared_16(tile.at(row, chunk));
  }
}

/// A tensor-core instance: element type, tile, and whether it knows bias, mask, ALiBi, softcap, dropout,
/// pages and a scale that does not keep the order of products.
template <class Element, int kHeadDim, bool kWithExtras>
struct Instance {
  using T = Element;
  static constexpr int kDim = kHeadDim;
  static constexpr bool kExtras = kWithExtras;
};

/// Online softmax of a warp's rows: maximum and sum of exp2((scores - maximum) * kappa).
template <int kM>
struct RunningRows {
  float maximum[kM][2], sum[kM][2];

  __device__ RunningRows() {
#pragma unroll
    for (int m = 0; m < kM; ++m) maximum[m][0] = maximum[m][1] = -kInf, sum[m][0] = sum[m][1] = 0.0f;
  }

  /// Turns scores into weights. `maximum` follows the scores lazily: as long as no row of the warp outgrows
  /// its own by 2^8, weights stay far inside every type and `o` needs no rescaling. kappa > 0.
  ///
  /// kAnyScore: scores may be as large as a bias makes them, up to the ends of float32, which times kappa
  /// they would leave; their difference is taken first, at an instruction more.
  template <bool kAnyScore, int kN, int kO>
  __device__ void step(float (&scores)[kM][kN][4], float (&o)[kM][kO][4], float kappa) {
    constexpr float kGrowth = 8.0f;
    float top[kM][2];
    bool grows = false;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        top[m][half] = maximum[m][half];
#pragma unroll
        for (int n = 0; n < kN; ++n)
          top[m][half] = fmaxf(top[m][half], fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        top[m][half] = lanes_max<4>(top[m][half]);
        grows |= (top[m][half] - maximum[m][half]) * kappa > kGrowth;
      }
    if (__any_sync(0xffffffffu, grows)) rescale(top, o, kappa);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float reference = maximum[m][half] == -kInf ? 0.0f
                                : kAnyScore               ? maximum[m][half]
                                                          : maximum[m][half] * kappa;
        float total = sum[m][half];
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& score = scores[m][n][2 * half + e];
            score = exp2_fast(kAnyScore ? (score - reference) * kappa : fmaf(score, kappa, -reference));
            total += score;
          }
        sum[m][half] = total;
      }
  }

 private:
  template <int kO>
  __device__ void rescale(const float (&top)[kM][2], float (&o)[kM][kO][4], float kappa) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float reference = top[m][half] == -kInf ? 0.0f : top[m][half];
        const float shrink = exp2_fast((maximum[m][half] - reference) * kappa);
        maximum[m][half] = top[m][half];
        sum[m][half] *= shrink;
#pragma unroll
        for (int d = 0; d < kO; ++d) o[m][d][2 * half] *= shrink, o[m][d][2 * half + 1] *= shrink;
      }
  }
};

/// Scores of one fragment row pair in natural units, with every feature; see logit().
template <int kM, int kN>
__device__ inline void score_fragment(const Params& p, const QueryRow* rows, const uint8_t* absent,
                                      int first_row, int j0, float (&scores)[kM][kN][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const QueryRow& row = rows[first_row + 16 * m + 8 * half + lane / 4];
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = 8 * n + lane % 4 * 2 + e;
          float& score = scores[m][n][2 * half + e];
          score = absent[column] ? -kInf : logit(p, row, j0 + column, score).x;
        }
    }
}

/// Zeroes the weights that dropout drops.
template <int kM, int kN>
__device__ inline void drop_fragment(const Params& p, const Sequence& s, const QueryRow* rows, int first_row,
                                     int j0, float (&weights)[kM][kN][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Dropout dropout{s.seed, s.offset, p.dropout_threshold};
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const QueryRow& row = rows[first_row + 16 * m + 8 * half + lane / 4];
      const int word = row.position >> 3 & 1;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const auto words =
            dropout.words(int64_t{s.batch} * p.q_heads + row.head, row.position, j0 + 8 * n + lane % 4 * 2);
        if ((word ? words[2] : words[0]) < dropout.threshold) weights[m][n][2 * half] = 0.0f;
        if ((word ? words[3] : words[1]) < dropout.threshold) weights[m][n][2 * half + 1] = 0.0f;
      }
    }
}

/// Marks the keys of a tile whose page is outside the container.
template <int kKeys>
__device__ inline void mark_absent(const Params& p, const Sequence& s, int kv_head, int j0, uint8_t* absent) {
  for (int n = static_cast<int>(threadIdx.x); n < kKeys; n += static_cast<int>(blockDim.x)) {
    const bool paged = p[Role::kPageTableK].present || p[Role::kPageTableV].present;
    absent[n] = paged && j0 + n < s.kv_len && is_absent(p, s, kv_head, j0 + n);
  }
}

/// What a block works on, in shared memory: in registers it would crowd out accumulators.
struct BlockWork {
  int head, split, first_row;
  int tile, tile_end;      ///< first, and one past the last, tile of the streamed side
  int all_begin, all_end;  ///< streamed rows that every own row meets: their tiles need no comparison
};

/// Tiles of one split of a span.
__device__ inline void set_tiles(const Params& p, BlockWork& work, KeySpan span, int tile) {
  const int first = span.begin / tile, last = span.end > span.begin ? (span.end + tile - 1) / tile : first;
  const int share = (last - first + p.num_splits - 1) / p.num_splits;
  work.tile = min(first + work.split * share, last);
  work.tile_end = min(work.tile + share, last);
}

/// Work of a block that owns `count` packed query rows of one kv head; one thread calls it.
__device__ inline void set_work(const Params& p, const Sequence& s, const Block& block, int count, int tile,
                                BlockWork& work) {
  const PackedRows rows{p, block.head};
  work.head = block.head, work.split = block.split, work.first_row = block.tile * count;
  const int first = rows.position(work.first_row), last = rows.position(work.first_row + count - 1);
  set_tiles(p, work, span_seen(p, s, first, last), tile);
  work.all_begin = static_cast<int>(band_keys(p, s, max(min(last, s.q_len - 1), 0)).begin);
  work.all_end = static_cast<int>(band_keys(p, s, first).end);
}

/// The same for the whole block, which may read `work` on return.
__device__ inline void load_work(const Params& p, const Sequence& s, const Block& block, int count, int tile,
                                 BlockWork& work) {
  if (threadIdx.x == 0) set_work(p, s, block, count, tile, work);
  __syncthreads();
}

/// Query rows that see key `j`; none behind the last.
__device__ inline KeyRange rows_seeing(const Params& p, const Sequence& s, int j) {
  return j < s.kv_len ? p.band.transposed().keys(j, s.kv_len, s.q_len) : KeyRange{0, 0};
}

/// Work of a block that owns `count` keys of one kv head: tiles of query rows stream. The whole block calls
/// it.
__device__ inline void load_key_work(const Params& p, const Sequence& s, const Block& block, int count,
                                     int tile, BlockWork& work) {
  if (threadIdx.x == 0) {
    work.head = block.head, work.split = 0, work.first_row = block.tile * count;
    const int last = work.first_row + count - 1;
    set_tiles(p, work, span_seeing(p, s, work.first_row, last), tile);
    work.all_begin = static_cast<int>(rows_seeing(p, s, last).begin);
    // Keys behind the last one are masked: very negative stats would make inf of their scores of 0.
    work.all_end = last < s.kv_len ? static_cast<int>(rows_seeing(p, s, work.first_row).end) : 0;
  }
  __syncthreads();
}

}  // namespace attngraph::cuda
