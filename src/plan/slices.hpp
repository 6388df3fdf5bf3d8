#pragma once

#include <algorithm>

#include "base/checked.hpp"
#include "plan/engine.hpp"

namespace attngraph {

/// Slices of a whole node that runs `batch` sequences: how many along each axis, at least one.
struct SliceCounts {
  int64_t batch = 1, kv_heads = 1;
  int64_t total() const { return batch * kv_heads; }
};

inline SliceCounts count_slices(const SliceShape& shape, int64_t batch, int64_t kv_heads) {
  const auto pieces = [](int64_t extent, int64_t piece) { return extent <= 0 ? 1 : ceil_div(extent, piece); };
  return {pieces(batch, shape.batch), pieces(kv_heads, shape.kv_heads)};
}

/// Slice `index` of `counts.total()`: sequences ascending, heads ascending within them. A node
/// without sequences or heads has one empty slice, which writes the sums that are outputs as 0.
inline Slice slice_at(int64_t index, const SliceCounts& counts, const SliceShape& shape, int64_t batch,
                      int64_t kv_heads) {
  Slice slice;
  slice.batch_begin = index / counts.kv_heads * shape.batch;
  slice.batch_end = std::min(slice.batch_begin + shape.batch, batch);
  slice.kv_head_begin = index % counts.kv_heads * shape.kv_heads;
  slice.kv_head_end = std::min(slice.kv_head_begin + shape.kv_heads, kv_heads);
  slice.is_first = index == 0;
  slice.is_last = index == counts.total() - 1;
  return slice;
}

}  // namespace attngraph
