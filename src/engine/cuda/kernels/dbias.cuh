#pragma once

#include "engine/cuda/kernels/sequence.cuh"

/// What kernels of backward share besides scores: the sums of rows that went before, and tiles of dbias, what
/// each sums and how it leaves.
namespace attngraph::cuda {

/// lse and delta of one query row; an empty row's when it is beyond the length.
struct RowSums {
  float lse, delta;
};
__device__ inline RowSums row_sums(const Params& p, const Sequence& s, int head, int position) {
  if (position >= s.q_len) return {kInf, 0.0f};
  const PackedRows rows{p, head / p.group};
  const int64_t index = rows.index(s, position * p.group + head % p.group);
  return {p.scratch.lse[index], p.scratch.delta[index]};
}

/// Where a plane of dbias goes: to the tensor, or to sums that it is added to, those of the slices before.
struct DbiasPlane {
  std::byte* data;
  int64_t first, row_stride, key_stride;  ///< elements
  DataType dtype;
  bool adds;

  /// Calls of(value of the element type) with it.
  template <class Of>
  __device__ __forceinline__ void with_type(Of&& of) const {
    if (dtype == DataType::kF32)
      of(float{});
    else if (dtype == DataType::kF16)
      of(__half{});
    else
      of(__nv_bfloat16{});
  }
  template <class T>
  __device__ __forceinline__ T* at(int i, int j) const {
    return reinterpret_cast<T*>(data) + (first + i * row_stride + j * key_stride);
  }
  template <class T>
  __device__ __forceinline__ void put(T* to, float sum) const {
    *to = static_cast<T>(adds ? static_cast<float>(*to) + sum : sum);
  }
};

/// Tile `index` of dbias, keys fastest, and the sequences and query heads of the slice that it sums.
struct DbiasTile {
  int tile_i, tile_j, out_head, out_batch;
  int batch_begin, batch_end, head_begin, head_end;

  __device__ DbiasTile(const Params& p, int tile, unsigned index) {
    const TensorView& out = p[Role::kDbias];
    const auto split = [&index](int count) {
      const int at = static_cast<int>(index % static_cast<unsigned>(count));
      index /= static_cast<unsigned>(count);
      return at;
    };
    tile_j = split((out.extent[3] + tile - 1) / tile), tile_i = split((out.extent[2] + tile - 1) / tile);
    out_head = split(out.extent[1]), out_batch = static_cast<int>(index);

    // A broadcast axis is walked whole; the others give one value.
    const bool all_batches = out.extent[0] == 1, all_heads = out.extent[1] == 1;
    const int slice_head_begin = p.kv_head_begin * p.group,
              slice_head_end = slice_head_begin + p.kv_head_count * p.group;
    batch_begin = all_batches ? p.batch_begin : max(out_batch, p.batch_begin);
    batch_end = min(all_batches ? p.batch : out_batch + 1, p.batch_begin + p.batch_count);
    head_begin = all_heads ? slice_head_begin : max(out_head, slice_head_begin);
    head_end = min(all_heads ? p.q_heads : out_head + 1, slice_head_end);
  }

  __device__ DbiasPlane plane(const Params& p) const {
    const TensorView& out = p[Role::kDbias];
    if (p.scratch.dbias == nullptr)
      return {out.data,      out_batch * out.stride[0] + out_head * out.stride[1],
              out.stride[2], out.stride[3],
              out.dtype,     false};
    const int64_t plane = int64_t{out_batch} * out.extent[1] + out_head;
    return {reinterpret_cast<std::byte*>(p.scratch.dbias),
            plane * out.extent[2] * out.extent[3],
            out.extent[3],
            1,
            DataType::kF32,
            true};
  }
};

}  // namespace attngraph::cuda
