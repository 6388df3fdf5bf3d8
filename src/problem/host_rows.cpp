#include "problem/host_rows.hpp"

#include <algorithm>
#include <cstring>

namespace attngraph {
namespace {

int64_t bound_len(const Problem& problem, const Buffers& buffers, Side side, int64_t batch) {
  const Role plain = side == Side::kQ ? Role::kSeqLenQ : Role::kSeqLenKv;
  const Role cumulative = side == Side::kQ ? Role::kCuSeqLenQ : Role::kCuSeqLenKv;
  const int64_t declared = side == Side::kQ ? problem.q_len : problem.kv_len;
  const auto entry = [&](Role role, int64_t index) {
    return read_int(buffers[role], problem[role].dtype, index * batch_stride(problem[role]));
  };
  if (problem.has(plain)) return clamped_len(entry(plain, batch), declared);
  if (!problem.has(cumulative)) return declared;
  return clamped_difference(entry(cumulative, batch), entry(cumulative, batch + 1), declared);
}

int64_t ragged_offset(const Problem& problem, const Buffers& buffers, Role role, int64_t batch) {
  const Operand& t = problem[role];
  return read_int(buffers.offsets[static_cast<size_t>(role)], t.offsets_dtype, batch * t.offsets_stride);
}

}  // namespace

int64_t read_int(const std::byte* data, DataType dtype, int64_t index) {
  if (dtype == DataType::kI32) {
    int32_t value = 0;
    std::memcpy(&value, data + index * element_bytes(dtype), sizeof value);
    return value;
  }
  int64_t value = 0;
  std::memcpy(&value, data + index * element_bytes(dtype), sizeof value);
  return value;
}

SequenceLengths host_lengths(const Problem& problem, const Buffers& buffers, int64_t batch) {
  SequenceLengths lengths{bound_len(problem, buffers, Side::kQ, batch),
                          bound_len(problem, buffers, Side::kKv, batch)};
  for (size_t i = 0; i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    if (!problem[role].ragged) continue;
    int64_t& side = side_of(role) == Side::kQ ? lengths.q : lengths.kv;
    side = std::min(side, rows_inside(problem[role], buffers.bounds.slots(side_of(role)),
                                      ragged_offset(problem, buffers, role, batch)));
  }
  return lengths;
}

HostRows host_rows(const Problem& problem, const Buffers& buffers, Role role, int64_t batch) {
  const Operand& t = problem[role];
  HostRows rows;
  rows.head_stride = head_stride(t);
  rows.len_stride = len_stride(t);
  rows.dim_stride = dim_stride(t);
  const Role table = role == Role::kK ? Role::kPageTableK : Role::kPageTableV;
  if ((role == Role::kK || role == Role::kV) && problem.has(table)) {
    rows.page_table = buffers[table] + batch * batch_stride(problem[table]) * element_bytes(DataType::kI32);
    rows.page_table_stride = len_stride(problem[table]);
    rows.page_size = len(t);
    rows.num_pages = role == Role::kK ? buffers.bounds.k_pages : buffers.bounds.v_pages;
    rows.page_stride = batch_stride(t);
  } else if (t.ragged) {
    // host_lengths() gives 0 rows where this product would overflow, so the wrapped value is not used.
    const int64_t offset = ragged_offset(problem, buffers, role, batch);
    rows.start = static_cast<int64_t>(static_cast<uint64_t>(offset) * static_cast<uint64_t>(t.multiplier));
  } else {
    rows.start = batch * batch_stride(t);
  }
  return rows;
}

}  // namespace attngraph
