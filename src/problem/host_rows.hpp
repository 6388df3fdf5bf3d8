#pragma once

#include <cstddef>
#include <cstdint>

#include "problem/buffers.hpp"
#include "problem/layout.hpp"

namespace attngraph {

/// Entry `index` of an int32 or int64 vector in host memory.
int64_t read_int(const std::byte* data, DataType dtype, int64_t index);

/// Lengths of one sequence as every engine must see them: clamped to [0, len], then cut to the
/// rows that lie inside the footprint of every ragged tensor of the side.
struct SequenceLengths {
  int64_t q = 0, kv = 0;
};
SequenceLengths host_lengths(const Problem& problem, const Buffers& buffers, int64_t batch);

/// Where the rows of one tensor of one sequence lie in host memory.
///
/// Units: elements from the tensor's base pointer, which the caller scales by the element size.
struct HostRows {
  int64_t start = 0;
  int64_t head_stride = 0, len_stride = 0, dim_stride = 0;
  const std::byte* page_table = nullptr;  ///< row of the sequence; null: not paged
  int64_t page_table_stride = 0, page_size = 0, num_pages = 0, page_stride = 0;

  /// Element (head, row, 0), or -1 when the row is on a page outside the container.
  int64_t row(int64_t head, int64_t row) const {
    if (page_table == nullptr) return start + head * head_stride + row * len_stride;
    const int64_t page = read_int(page_table, DataType::kI32, row / page_size * page_table_stride);
    if (page < 0 || page >= num_pages) return -1;
    return page * page_stride + head * head_stride + row % page_size * len_stride;
  }
};

/// The rows of `role` in sequence `batch`. Broadcast axes have stride 0.
HostRows host_rows(const Problem& problem, const Buffers& buffers, Role role, int64_t batch);

}  // namespace attngraph
