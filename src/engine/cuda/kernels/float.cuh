#pragma once

#include "engine/cuda/float_tiles.hpp"
#include "engine/cuda/kernels/tensor.cuh"

/// Building blocks of the float32 kernels: tiles in shared memory and their products by plain multiply-adds.
///
/// A thread owns 8 rows of a block's 64 and 4 of every 64 columns: its products need 12 loads of 16 bytes for
/// 128 multiply-adds. 16 lanes share 8 rows, so that what a row sums up stays within a warp.
namespace attngraph::cuda {

inline constexpr int kFloatRows = 8;  ///< of a thread

/// Which rows and columns of a tile a thread owns.
///
/// Neighbouring lanes share their rows and the next ones their columns, so that eight lanes of a 16-byte load
/// ask for what eight others do: the whole warp's then takes two cycles, not four.
struct FloatPlace {
  int row_group, column_group;  ///< of 8 and of 16

  __device__ FloatPlace()
      : row_group(static_cast<int>(threadIdx.x) / 32 * 2 + (static_cast<int>(threadIdx.x) >> 1 & 1)),
        column_group((static_cast<int>(threadIdx.x) & 1) | static_cast<int>(threadIdx.x) % 32 >> 2 << 1) {}
  /// Of the own side, n = 0 .. 7; all of them, like all others, are twisted alike.
  __device__ int row(int n) const { return row_group + 8 * n; }
  /// Rows of the other side, which are columns of products.
  __device__ int other(int n) const { return column_group + 16 * n; }
  /// Columns of either side: four neighbours of every 64.
  __device__ int dim(int n) const { return 4 * column_group + n % 4 + n / 4 * 64; }
};
/// Over the lanes that share a row.
__device__ inline float row_max(float value) {
  for (const int step : {1, 4, 8, 16}) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}
__device__ inline float row_sum(float value) {
  for (const int step : {1, 4, 8, 16}) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

/// Rows of kDim floats. Chunk c (16 bytes) of row r lies at c ^ (r % 8), so that eight neighbouring rows'
/// chunks c fill all banks.
template <int kDim>
struct FloatRows {
  static constexpr int kChunks = kDim / 4;
  float* base;

  __device__ float4& at(int row, int chunk) const {
    return reinterpret_cast<float4*>(base)[row * kChunks + (chunk ^ (row & 7))];
  }
};

/// Starts the copy of kCount rows; element_of(row) < 0 and columns at or beyond `dim` become zero. Whole
/// chunks that lie so are copied as such, others float by float.
template <int kCount, int kDim, class ElementOf>
__device__ inline void load_float_rows(FloatRows<kDim> tile, const TensorView& t, int dim,
                                       ElementOf element_of) {
  constexpr int kChunks = FloatRows<kDim>::kChunks, kPass = FloatTile::threads / kChunks;
  const int thread = made_anew(threadIdx.x), chunk = thread % kChunks;
  const int num_columns = min(max(dim - 4 * chunk, 0), 4);
#pragma unroll 2
  for (int row = thread / kChunks; row < kCount; row += kPass) {
    const int64_t element = element_of(row);
    const int count = element < 0 ? 0 : num_columns;
    const uint32_t to = shared_address(&tile.at(row, chunk));
    const std::byte* const from = t.data + 4 * (element + 4 * chunk * t.stride[3]);
    if (count == 0) {
      store_shared_16(to, uint4{});
    } else if (count == 4 && t.stride[3] == 1 && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
      copy_async_16(to, from, 16);
    } else {
      for (int i = 0; i < 4; ++i)
        copy_async_4(to + 4 * i, i < count ? from + 4 * i * t.stride[3] : t.data, i < count ? 4 : 0);
    }
  }
}

/// The same for keys j0 .. of k or v; a key on a page outside the container is zero.
template <Role kRole, int kKeys, int kDim>
__device__ inline void load_float_keys(FloatRows<kDim> tile, const Params& p, const Sequence& s, int kv_head,
                                       int j0) {
  load_float_rows<kKeys>(tile, p[kRole], kRole == Role::kK ? p.qk_dim : p.v_dim, [&](int r) {
    return j0 + r < s.kv_len ? key_offset<kRole>(p, s, kv_head, j0 + r) : int64_t{-1};
  });
}

/// products += a's rows . b's rows: of a those that the thread owns, of b its columns.
template <int kColumns, int kDim>
__device__ inline void multiply_float_rows(float (&products)[kFloatRows][kColumns], FloatRows<kDim> a,
                                           FloatRows<kDim> b) {
  const FloatPlace place;
#pragma unroll 4
  for (int chunk = 0; chunk < FloatRows<kDim>::kChunks; ++chunk) {
    float4 y[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) y[c] = b.at(place.other(c), chunk);
#pragma unroll
    for (int r = 0; r < kFloatRows; ++r) {
      const float4 x = a.at(place.row(r), chunk);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float& sum = products[r][c];
        sum = fmaf(x.x, y[c].x, sum), sum = fmaf(x.y, y[c].y, sum);
        sum = fmaf(x.z, y[c].z, sum), sum = fmaf(x.w, y[c].w, sum);
      }
    }
  }
}

__device__ inline void add_float_columns(float* sums, float weight, float4 values) {
  sums[0] = fmaf(weight, values.x, sums[0]), sums[1] = fmaf(weight, values.y, sums[1]);
  sums[2] = fmaf(weight, values.z, sums[2]), sums[3] = fmaf(weight, values.w, sums[3]);
}

/// sums += weights b: weights of the thread's rows, the thread's columns of b's rows.
template <int kOther, int kDim>
__device__ inline void multiply_float_weights(float (&sums)[kFloatRows][kDim / 16], FloatRows<kOther> weights,
                                              FloatRows<kDim> b) {
  const FloatPlace place;
#pragma unroll 2
  for (int four = 0; four < kOther / 4; ++four) {
    float4 y[4][kDim / 64];
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int part = 0; part < kDim / 64; ++part)
        y[j][part] = b.at(4 * four + j, place.column_group + 16 * part);
#pragma unroll
    for (int r = 0; r < kFloatRows; ++r) {
      const float4 x = weights.at(place.row(r), four);
#pragma unroll
      for (int part = 0; part < kDim / 64; ++part) {
        add_float_columns(&sums[r][4 * part], x.x, y[0][part]);
        add_float_columns(&sums[r][4 * part], x.y, y[1][part]);
        add_float_columns(&sums[r][4 * part], x.z, y[2][part]);
        add_float_columns(&sums[r][4 * part], x.w, y[3][part]);
      }
    }
  }
}

/// Leaves the thread's elements of a tile of weights.
template <int kOther>
__device__ inline void store_float_weights(FloatRows<kOther> to,
                                           const float (&weights)[kFloatRows][kOther / 16]) {
  const FloatPlace place;
#pragma unroll
  for (int r = 0; r < kFloatRows; ++r)
#pragma unroll
    for (int c = 0; c < kOther / 16; ++c) {
      const int column = place.other(c);
      reinterpret_cast<float*>(&to.at(place.row(r), column / 4))[column % 4] = weights[r][c];
    }
}

/// Writes the thread's columns of a row times a factor; a factor of 0 gives zeros.
template <int kColumns>
__device__ inline void store_float_row(const TensorView& t, int64_t element, const float (&values)[kColumns],
                                       float factor) {
  const FloatPlace place;
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    if (const int column = place.dim(c); column < t.extent[3])
      store_element(t, element + column * t.stride[3], factor == 0.0f ? 0.0f : values[c] * factor);
}

}  // namespace attngraph::cuda
