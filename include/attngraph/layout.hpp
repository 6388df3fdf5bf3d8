#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace attngraph {

/// Dims and strides of a tensor, and where its first element lies in the buffer it is a view of.
///
/// Shapes: logical order is always [batch, heads, len, dim], whatever the memory order.
/// Units:  elements.
struct Layout {
  std::vector<int64_t> dims, strides;
  int64_t offset = 0;

  /// From a token to the next: the multiplier with which ragged offsets are token counts.
  int64_t token_stride() const { return strides[2]; }
};

/// Extents of a query-, key- or value-like tensor.
struct Shape {
  int64_t batch = 0, heads = 0, len = 0, dim = 0;
};

/// Memory order batch, heads, len, dim.
inline Layout bhsd(Shape s) {
  return {{s.batch, s.heads, s.len, s.dim}, {s.heads * s.len * s.dim, s.len * s.dim, s.dim, 1}};
}

/// Memory order batch, len, heads, dim.
inline Layout bshd(Shape s) {
  return {{s.batch, s.heads, s.len, s.dim}, {s.len * s.heads * s.dim, s.dim, s.heads * s.dim, 1}};
}

/// Memory order len, batch, heads, dim.
inline Layout sbhd(Shape s) {
  return {{s.batch, s.heads, s.len, s.dim}, {s.heads * s.dim, s.dim, s.batch * s.heads * s.dim, 1}};
}

/// Packed sequences, memory order tokens, heads, dim: for a ragged tensor, with or without gaps
/// between its sequences (the offsets say where each begins). `len` is the longest sequence.
/// Offsets in tokens take the multiplier `heads * dim`, which is `token_stride()`.
inline Layout thd(Shape s) { return bshd(s); }

/// One of `num_parts` equally shaped tensors that share a buffer [batch, len, num_parts, heads, dim]:
/// `interleaved(shape, 3, 1)` is K in an interleaved qkv buffer, `interleaved(shape, 2, 1)` is V in
/// a kv buffer. Packed sequences use the same strides, with multiplier `token_stride()`.
inline Layout interleaved(Shape s, int64_t num_parts, int64_t part) {
  const int64_t token = num_parts * s.heads * s.dim;
  return {{s.batch, s.heads, s.len, s.dim}, {s.len * token, s.dim, token, 1}, part * s.heads * s.dim};
}

/// Heads `first_head` .. `first_head + shape.heads - 1` of a buffer [batch, len, all_heads, dim]:
/// q, k and v of a grouped-query qkv buffer have different head counts.
inline Layout heads_of(Shape s, int64_t all_heads, int64_t first_head) {
  const int64_t token = all_heads * s.dim;
  return {{s.batch, s.heads, s.len, s.dim}, {s.len * token, s.dim, token, 1}, first_head * s.dim};
}

/// Stats [batch, heads, len, 1], dense: padded to the longest sequence.
inline Layout stats_padded(int64_t batch, int64_t heads, int64_t len) { return bhsd({batch, heads, len, 1}); }

/// Ragged stats, memory order tokens, heads; token offsets take the multiplier `heads`.
inline Layout stats_token_major(int64_t batch, int64_t heads, int64_t len) {
  return bshd({batch, heads, len, 1});
}

/// Ragged stats, memory order heads, tokens; `capacity` is the number of token slots of the
/// buffer (`max_total_q`, gaps included). Token offsets take the multiplier 1.
inline Layout stats_head_major(int64_t batch, int64_t heads, int64_t len, int64_t capacity) {
  return {{batch, heads, len, 1}, {len, capacity, 1, 1}};
}

/// A tensor of any rank, last axis fastest.
inline Layout dense(std::vector<int64_t> dims) {
  Layout layout{std::move(dims), {}, 0};
  layout.strides.resize(layout.dims.size());
  int64_t stride = 1;
  for (std::size_t axis = layout.dims.size(); axis-- > 0;) {
    layout.strides[axis] = stride;
    stride *= layout.dims[axis];
  }
  return layout;
}

}  // namespace attngraph
