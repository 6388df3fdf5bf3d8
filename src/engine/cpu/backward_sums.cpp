#include <algorithm>
#include <array>
#include <cmath>

#include "base/element.hpp"
#include "engine/cpu/backward.hpp"

namespace attngraph::cpu {
namespace {

/// The part `index` of an axis cut into `unit`s; the whole when the axis is summed.
KeyRange part(int64_t extent, int64_t index, int64_t unit) {
  return {index * unit, std::min(extent, (index + 1) * unit)};
}

/// How dbias is cut into cells.
class Cells {
 public:
  explicit Cells(const BackwardCall& call) : call_(call), t_(call.context.problem[Role::kDbias]) {
    const Problem& p = call.context.problem;
    batches_ = batch(t_) > 1 ? call.batches() : 1;
    heads_ = heads(t_) > 1 ? call.heads() : 1;
    row_parts_ = len(t_) > 1 ? ceil_div(p.q_len, kBackwardRows) : 1;
    key_parts_ = dim(t_) > 1 ? ceil_div(p.kv_len, kBackwardKeys) : 1;
  }

  int64_t count() const { return batches_ * heads_ * row_parts_ * key_parts_; }

  Cell operator[](int64_t index) const {
    const Problem& p = call_.context.problem;
    Cell cell{};
    const int64_t key = index % key_parts_, row = index / key_parts_ % row_parts_;
    const int64_t head = index / key_parts_ / row_parts_ % heads_;
    const int64_t b = index / key_parts_ / row_parts_ / heads_;
    cell.batches = {call_.slice.batch_begin, call_.slice.batch_end};
    if (batch(t_) > 1) cell.batches = {cell.batches.begin + b, cell.batches.begin + b + 1};
    cell.heads = {call_.first_head(), call_.first_head() + call_.heads()};
    if (heads(t_) > 1) cell.heads = {cell.heads.begin + head, cell.heads.begin + head + 1};
    cell.rows = len(t_) > 1 ? part(p.q_len, row, kBackwardRows) : KeyRange{0, p.q_len};
    cell.keys = dim(t_) > 1 ? part(p.kv_len, key, kBackwardKeys) : KeyRange{0, p.kv_len};
    cell.row_elems = len(t_) > 1 ? cell.rows.end - cell.rows.begin : 1;
    cell.key_elems = dim(t_) > 1 ? cell.keys.end - cell.keys.begin : 1;
    return cell;
  }

 private:
  const BackwardCall& call_;
  const Operand& t_;
  int64_t batches_, heads_, row_parts_, key_parts_;
};

/// Adds a tile of ds to the cell's elements, rows at kBackwardKeys floats.
void add_tile(const GradientTile& tile, const Cell& cell, float* sums) {
  for (int64_t r = 0; r < tile.rows(); ++r) {
    const float* ds = tile.ds() + r * GradientTile::row_stride;
    float* row = sums + (cell.row_elems > 1 ? (tile.first_row() + r - cell.rows.begin) * kBackwardKeys : 0);
    if (cell.key_elems > 1) {
      row += tile.key() - cell.keys.begin;
      for (int64_t j = 0; j < tile.cols(); ++j) row[j] += ds[j];
      continue;
    }
    float sum = 0.0F;
    for (int64_t j = 0; j < tile.cols(); ++j) sum += ds[j];
    *row += sum;
  }
}

/// Adds every tile of one sequence and head.
void add_head(GradientTile& tile, const Cell& cell, int64_t head, float* sums) {
  const Problem& p = tile.sequence().problem;
  const int64_t keys_end = std::min(cell.keys.end, tile.sequence().kv_len);
  const int64_t rows_end = std::min(cell.rows.end, tile.sequence().q_len);
  for (int64_t key = cell.keys.begin; key < keys_end; key += kBackwardKeys) {
    tile.load_keys(head / p.group(), key, std::min(kBackwardKeys, keys_end - key));
    for (int64_t row = cell.rows.begin, count; row < rows_end; row += count) {
      count = tile.tile_rows(row, rows_end);
      if (!tile.load_queries(head, row, count)) continue;
      tile.compute();
      add_tile(tile, cell, sums);
    }
  }
}

/// Element (b, head, i, j) of a tensor with the strides and extents of dbias, where an axis that was summed
/// has the one index 0.
int64_t element(const Operand& t, const std::array<int64_t, 4>& stride, const std::array<int64_t, 4>& index) {
  int64_t at = 0;
  for (size_t axis = 0; axis < 4; ++axis)
    if (t.extent[axis] > 1) at += index[axis] * stride[axis];
  return at;
}

/// Strides of the sums: dense.
std::array<int64_t, 4> dense_strides(const Operand& t) {
  return {heads(t) * len(t) * dim(t), len(t) * dim(t), dim(t), 1};
}

int64_t num_elems(const Operand& t) { return batch(t) * heads(t) * len(t) * dim(t); }

}  // namespace

void BiasGradient::book(const GradientContext& context, const SliceShape& shape, Booker& book) {
  const Problem& p = context.problem;
  const Operand& t = p[Role::kDbias];
  cell_ = book.per_worker<float>("dbias cell", {kBackwardRows, kBackwardKeys});
  keeps_sums_ = (batch(t) == 1 && shape.batch < p.batch) || (heads(t) == 1 && shape.kv_heads < p.kv_heads);
  if (keeps_sums_) sums_ = book.shared<float>("dbias sums", {batch(t), heads(t), len(t), dim(t)});
}

void BiasGradient::run(const BackwardCall& call) const {
  const Operand& t = call.context.problem[Role::kDbias];
  if (num_elems(t) == 0) return;
  float* sums = sums_.at<float>(call.workspace);
  if (keeps_sums_ && call.slice.is_first) std::fill(sums, sums + num_elems(t), 0.0F);
  const Cells cells(call);
  for_each_item(call.executor, call.workers, cells.count(),
                [&](int64_t index, int64_t worker) { run_cell(call, cells[index], worker); });
  if (keeps_sums_ && call.slice.is_last) write_sums(call);
}

void BiasGradient::run_cell(const BackwardCall& call, const Cell& cell, int64_t worker) const {
  const Operand& t = call.context.problem[Role::kDbias];
  float* sums = cell_.at<float>(call.workspace, worker);
  const auto first_of_row = [&](int64_t r) -> std::array<int64_t, 4> {
    return {cell.batches.begin, cell.heads.begin, cell.rows.begin + r, cell.keys.begin};
  };
  const auto kept_row = [&](int64_t r) {
    return sums_.at<float>(call.workspace) + element(t, dense_strides(t), first_of_row(r));
  };
  std::fill(sums, sums + kBackwardRows * kBackwardKeys, 0.0F);
  for (int64_t r = 0; keeps_sums_ && r < cell.row_elems; ++r)
    std::copy_n(kept_row(r), cell.key_elems, sums + r * kBackwardKeys);

  GradientTile::Wanted wanted;
  wanted.ds = true;
  for (int64_t b = cell.batches.begin; b < cell.batches.end; ++b) {
    const Sequence sequence(call.context.problem, call.buffers, b);
    GradientTile tile(call, sequence, wanted, worker);
    for (int64_t head = cell.heads.begin; head < cell.heads.end; ++head) add_head(tile, cell, head, sums);
  }
  for (int64_t r = 0; r < cell.row_elems; ++r) {
    const float* row = sums + r * kBackwardKeys;
    if (keeps_sums_) {
      std::copy_n(row, cell.key_elems, kept_row(r));
      continue;
    }
    std::byte* out =
        call.buffers[Role::kDbias] + element(t, t.stride, first_of_row(r)) * element_bytes(t.dtype);
    call.context.kernels.store(row, cell.key_elems, 1.0F, out, t.dtype, dim_stride(t));
  }
}

void BiasGradient::write_sums(const BackwardCall& call) const {
  const Operand& t = call.context.problem[Role::kDbias];
  const float* sum = sums_.at<float>(call.workspace);
  for (int64_t b = 0; b < batch(t); ++b)
    for (int64_t head = 0; head < heads(t); ++head)
      for (int64_t i = 0; i < len(t); ++i)
        for (int64_t j = 0; j < dim(t); ++j)
          write_real(call.buffers[Role::kDbias], t.dtype, element(t, t.stride, {b, head, i, j}), *sum++);
}

void SinkGradient::book(const GradientContext& context, Booker& book) {
  sums_ = book.shared<double>("dsink sums", {context.problem.q_heads});
}

void SinkGradient::run(const BackwardCall& call) const {
  const Problem& p = call.context.problem;
  double* sums = sums_.at<double>(call.workspace);
  if (call.slice.is_first) std::fill(sums, sums + p.q_heads, 0.0);
  const double to_base_e = p.stats_base == StatsBase::k2 ? kLn2 : 1.0;
  for_each_item(call.executor, call.workers, call.heads(), [&](int64_t index, int64_t) {
    const int64_t head = call.first_head() + index;
    for (int64_t b = call.slice.batch_begin; b < call.slice.batch_end; ++b) {
      const Sequence sequence(p, call.buffers, b);
      const double sink = sequence.float_at(Role::kSink, head, 0);
      const float* delta = call.row_factors(call.context.scratch.delta, b, head);
      for (int64_t i = 0; i < sequence.q_len; ++i) {
        const double stats = sequence.float_at(Role::kStats, head, i) * to_base_e;
        const KeyRange keys = p.band.keys(i, sequence.q_len, sequence.kv_len);
        if (keys.begin >= keys.end || std::isinf(stats)) continue;  // the row sees nothing
        sums[head] -= std::exp(sink - stats) * delta[i];
      }
    }
  });
  if (!call.slice.is_last) return;
  const Operand& t = p[Role::kDsink];
  for (int64_t head = 0; head < p.q_heads; ++head)
    write_real(call.buffers[Role::kDsink], t.dtype, head * head_stride(t), sums[head]);
}

}  // namespace attngraph::cpu
