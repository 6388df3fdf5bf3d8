#include "engine/cpu/sequence.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "plan/engine.hpp"

namespace attngraph::cpu {
namespace {

bool has_rows(Role role) {
  return side_of(role) != Side::kNone || role == Role::kBias || role == Role::kMask ||
         role == Role::kAlibiSlopes || role == Role::kSink || role == Role::kDbias;
}

}  // namespace

Sequence::Sequence(const Problem& the_problem, const Buffers& the_buffers, int64_t the_batch)
    : problem(the_problem), buffers(the_buffers), batch(the_batch), q_len(0), kv_len(0), rows() {
  const SequenceLengths lengths = host_lengths(problem, buffers, batch);
  q_len = lengths.q;
  kv_len = lengths.kv;
  for (size_t i = 0; i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    if (problem.has(role) && has_rows(role)) rows[i] = host_rows(problem, buffers, role, batch);
  }
}

std::byte* Sequence::at(Role role, int64_t head, int64_t row) const {
  const int64_t element = rows[static_cast<size_t>(role)].row(head, row);
  return element < 0 ? nullptr : buffers[role] + element * element_bytes(problem[role].dtype);
}

float Sequence::float_at(Role role, int64_t head, int64_t row) const {
  float value = 0;
  std::memcpy(&value, at(role, head, row), sizeof value);
  return value;
}

Rows Sequence::gather(Role role, int64_t head, KeyRange range, const std::byte** addresses) const {
  const HostRows& lie = rows[static_cast<size_t>(role)];
  const int64_t count = range.end - range.begin;
  if (lie.page_table == nullptr) {
    const std::byte* first = at(role, head, range.begin);
    const int64_t step = lie.len_stride * element_bytes(problem[role].dtype);
    for (int64_t r = 0; r < count; ++r) addresses[r] = first + r * step;
  } else {
    for (int64_t r = 0; r < count; ++r) addresses[r] = at(role, head, range.begin + r);
  }
  return {addresses, count, dim(problem[role]), lie.dim_stride, problem[role].dtype};
}

Rows Sequence::one(Role role, int64_t head, int64_t row, const std::byte*& address) const {
  return gather(role, head, {row, row + 1}, &address);
}

void Sequence::write(const Kernels& kernels, Role role, int64_t head, int64_t row, const float* x,
                     float factor) const {
  kernels.store(x, dim(problem[role]), factor, at(role, head, row), problem[role].dtype,
                rows[static_cast<size_t>(role)].dim_stride);
}

void TileKeys::add(KeyRange row) {
  if (row.begin < row.end) {
    any.begin = std::min(any.begin, row.begin);
    any.end = std::max(any.end, row.end);
  }
  all.begin = std::max(all.begin, row.begin);
  all.end = std::min(all.end, row.end);
}

Scores::Scores(const Problem& problem, const Kernels& kernels)
    : problem_(problem),
      kernels_(kernels),
      plain_(keeps_order_of_products(problem) && problem.softcap == 0 && !problem.has(Role::kBias) &&
             !problem.has(Role::kMask) && !problem.has(Role::kAlibiSlopes)),
      to_natural_(plain_ ? static_cast<float>(problem.scale) : 1.0F),
      to_base_2_(static_cast<float>(plain_ ? problem.scale * kLog2E : kLog2E)) {}

/// Columns that the band keeps.
KeyRange Scores::kept(const Sequence& sequence, const Row& row) const {
  const KeyRange keys = problem_.band.keys(row.i, sequence.q_len, sequence.kv_len);
  return {std::clamp<int64_t>(keys.begin - row.first_key, 0, row.count),
          std::clamp<int64_t>(keys.end - row.first_key, 0, row.count)};
}

void Scores::hide(const Sequence& sequence, const Row& row) const {
  const KeyRange columns = kept(sequence, row);
  std::fill(row.x, row.x + columns.begin, -INFINITY);
  std::fill(row.x + columns.end, row.x + row.padded, -INFINITY);
  for (int64_t j = columns.begin; row.present != nullptr && j < columns.end; ++j)
    if (row.present[j] == std::byte{0}) row.x[j] = -INFINITY;
}

void Scores::apply(const Sequence& sequence, const Row& row) const {
  ScoreRow out;
  out.x = row.x;
  out.padded = row.padded;
  const KeyRange columns = kept(sequence, row);
  out.keep_begin = columns.begin;
  out.keep_end = columns.end;
  out.scale = static_cast<float>(problem_.scale);
  if (problem_.softcap > 0) {
    out.scale = static_cast<float>(problem_.scale / problem_.softcap);
    out.softcap = static_cast<float>(problem_.softcap);
    out.softcap_slope = row.softcap_slope;
  }
  if (problem_.has(Role::kBias)) {
    const std::byte* address = nullptr;
    Rows bias = sequence.one(Role::kBias, row.head, row.i, address);
    address += row.first_key * bias.dim_stride * element_bytes(bias.dtype);
    bias.dim = row.count;
    kernels_.widen(bias, row.bias_scratch, row.padded);
    out.bias = row.bias_scratch;
  }
  if (problem_.has(Role::kAlibiSlopes)) {
    const int64_t distance = row.first_key - row.i - problem_.band.offset(sequence.q_len, sequence.kv_len);
    out.slope = sequence.float_at(Role::kAlibiSlopes, row.head, 0);
    out.distance = static_cast<float>(distance);
  }
  if (problem_.has(Role::kMask) || row.present != nullptr) {
    const std::byte* mask = problem_.has(Role::kMask) ? sequence.at(Role::kMask, row.head, row.i) : nullptr;
    const int64_t stride = sequence.rows[static_cast<size_t>(Role::kMask)].dim_stride;
    for (int64_t j = 0; j < row.count; ++j) {
      const bool kept = (mask == nullptr || mask[(row.first_key + j) * stride] != std::byte{0}) &&
                        (row.present == nullptr || row.present[j] != std::byte{0});
      row.mask_scratch[j] = static_cast<std::byte>(kept);
    }
    out.mask = row.mask_scratch;
  }
  kernels_.score(out);
}

Dropout dropout_of(const Problem& problem, const Buffers& buffers) {
  Dropout dropout;
  if (!problem.draws_dropout()) return dropout;
  const auto value = [&](Role role) {
    return problem.has(role) ? static_cast<uint64_t>(read_int(buffers[role], problem[role].dtype, 0)) : 0;
  };
  dropout.seed = value(Role::kDropoutSeed);
  dropout.offset = value(Role::kDropoutOffset);
  dropout.threshold = Dropout::threshold_of(problem.dropout_p);
  return dropout;
}

void draw(const Kernels& kernels, const Problem& problem, const Dropout& dropout, const DropoutRows& rows) {
  DropoutTile tile;
  tile.seed = dropout.seed;
  tile.offset = dropout.offset;
  tile.threshold = dropout.threshold;
  tile.head_index = static_cast<uint32_t>(rows.head_index);
  tile.i = rows.i;
  tile.count = rows.count;
  tile.j = rows.j;
  tile.factor = static_cast<float>(1.0 / (1.0 - problem.dropout_p));
  tile.kept = rows.kept;
  tile.kept_row = rows.kept_row;
  tile.padded = rows.padded;
  kernels.dropout(tile);
}

}  // namespace attngraph::cpu
