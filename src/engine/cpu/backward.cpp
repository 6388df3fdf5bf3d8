#include "engine/cpu/backward.hpp"

#include "base/element.hpp"
#include "base/enum_names.hpp"

namespace attngraph::cpu {
namespace {

/// dq, dk, dv and dalibi_slopes: an item is a part of the keys of one kv head against all query rows
/// of its group.
class BackwardPlan final : public EnginePlan {
 public:
  explicit BackwardPlan(const PlanInput& in)
      : isa_(in.target.isa),
        workers_(std::max(1, in.target.num_threads)),
        executor_(in.executor),
        context_(in.problem, isa_),
        splits_(backward_splits(in.problem, workers_)) {
    const Problem& p = in.problem;
    wanted_.dq = p.has(Role::kDq);
    wanted_.dk = p.has(Role::kDk);
    wanted_.dv = p.has(Role::kDv);
    wanted_.ds = wanted_.dq || wanted_.dk || p.has(Role::kDalibiSlopes);
  }

  Status book(const PlanInput& in);
  Status run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
             void* stream) const override;
  std::string describe() const override {
    return text("isa ", name_of(isa_), ", ", workers_, " threads, ", splits_, " key splits");
  }

 private:
  struct Item {
    int64_t batch, kv_head, split;  ///< of the problem
  };
  struct KeySums {
    const float *dk, *dv;  ///< rows of the keys of one block
  };
  struct QueryRows {
    int64_t head, begin, end;
  };

  const Problem& problem() const { return context_.problem; }
  bool has_slopes() const { return problem().has(Role::kDalibiSlopes); }
  void run_item(const BackwardCall& call, const Item& item, int64_t worker) const;
  void run_block(const BackwardCall& call, const Item& item, KeyRange keys, GradientTile& tile,
                 int64_t worker) const;
  double slope_gradient(const GradientTile& tile) const;
  void write_keys(const Sequence& sequence, const Item& item, KeyRange keys, KeySums sums) const;
  void write_key_padding(const Sequence& sequence, const Item& item, float* zeros) const;
  void sum_dq(const BackwardCall& call, const Sequence& sequence, const QueryRows& rows,
              int64_t worker) const;
  void sum_slopes(const BackwardCall& call) const;
  int64_t row_floats() const { return std::max(context_.qk_cols(), context_.v_cols()); }

  float* dq_rows(const BackwardCall& call, const Item& item, int64_t head, int64_t worker) const {
    if (splits_ == 1)
      return dq_.at<float>(call.workspace, worker) +
             head % problem().group() * problem().q_len * context_.qk_cols();
    return dq_parts_.at<float>(call.workspace) +
           slot(call, item, head) * problem().q_len * context_.qk_cols();
  }
  double* slope_part(const BackwardCall& call, const Item& item, int64_t head) const {
    return slope_parts_.at<double>(call.workspace) + slot(call, item, head);
  }
  /// Counts (split, sequence, head) within the slice.
  int64_t slot(const BackwardCall& call, const Item& item, int64_t head) const {
    return (item.split * call.batches() + item.batch - call.slice.batch_begin) * call.heads() + head -
           call.first_head();
  }

  const CpuIsa isa_;
  const int64_t workers_;
  Executor& executor_;
  GradientContext context_;
  const int64_t splits_;
  GradientTile::Wanted wanted_;
  PerWorker dk_, dv_, dq_, row_;
  Shared dq_parts_, slope_parts_, slope_sums_;
  BiasGradient bias_;
  SinkGradient sink_;
};

Status BackwardPlan::book(const PlanInput& in) {
  Booker book(in.workspace, workers_);
  const Problem& p = problem();
  context_.book(in.shape, book);
  dk_ = book.per_worker<float>("dk sums", {wanted_.dk ? kBackwardKeys : 0, context_.qk_cols()});
  dv_ = book.per_worker<float>("dv sums", {wanted_.dv ? kBackwardKeys : 0, context_.v_cols()});
  row_ = book.per_worker<float>("row of a gradient", {row_floats()});
  const int64_t batches = in.shape.batch, kv_heads = in.shape.kv_heads, group = p.group();
  if (wanted_.dq && splits_ == 1)
    dq_ = book.per_worker<float>("dq sums", {group, p.q_len, context_.qk_cols()});
  else if (wanted_.dq)
    dq_parts_ =
        book.shared<float>("dq parts", {splits_, batches, kv_heads, group, p.q_len, context_.qk_cols()});
  if (has_slopes()) {
    slope_parts_ = book.shared<double>("dalibi_slopes parts", {splits_, batches, kv_heads, group});
    const Operand& slopes = p[Role::kDalibiSlopes];
    slope_sums_ = book.shared<double>("dalibi_slopes sums", {batch(slopes), heads(slopes)});
  }
  if (p.has(Role::kDbias)) bias_.book(context_, in.shape, book);
  if (p.has(Role::kDsink)) sink_.book(context_, book);
  return book.status();
}

void BackwardPlan::run_item(const BackwardCall& call, const Item& item, int64_t worker) const {
  const Problem& p = problem();
  const Sequence sequence(p, call.buffers, item.batch);
  const int64_t first_head = item.kv_head * p.group();
  for (int64_t head = first_head; head < first_head + p.group(); ++head) {
    if (wanted_.dq) {
      float* dq = dq_rows(call, item, head, worker);
      std::fill(dq, dq + sequence.q_len * context_.qk_cols(), 0.0F);
    }
    if (has_slopes()) *slope_part(call, item, head) = 0.0;
  }
  GradientTile tile(call, sequence, wanted_, worker);
  // Parts take blocks in turn, since under a causal band the first blocks cost the most.
  for (int64_t key = item.split * kBackwardKeys; key < sequence.kv_len; key += splits_ * kBackwardKeys)
    run_block(call, item, {key, std::min(key + kBackwardKeys, sequence.kv_len)}, tile, worker);
  if (item.split == 0) write_key_padding(sequence, item, row_.at<float>(call.workspace, worker));
  if (wanted_.dq && splits_ == 1)
    for (int64_t head = first_head; head < first_head + p.group(); ++head)
      sum_dq(call, sequence, {head, 0, p.q_len}, worker);
}

void BackwardPlan::run_block(const BackwardCall& call, const Item& item, KeyRange keys, GradientTile& tile,
                             int64_t worker) const {
  float *dk = dk_.at<float>(call.workspace, worker), *dv = dv_.at<float>(call.workspace, worker);
  const int64_t count = keys.end - keys.begin;
  if (wanted_.dk) std::fill(dk, dk + count * context_.qk_cols(), 0.0F);
  if (wanted_.dv) std::fill(dv, dv + count * context_.v_cols(), 0.0F);
  tile.load_keys(item.kv_head, keys.begin, count);
  const int64_t group = problem().group(), q_len = tile.sequence().q_len;
  for (int64_t head = item.kv_head * group; head < (item.kv_head + 1) * group; ++head)
    for (int64_t row = 0, num_rows; row < q_len; row += num_rows) {
      num_rows = tile.tile_rows(row, q_len);
      if (!tile.load_queries(head, row, num_rows)) continue;
      tile.compute();
      if (wanted_.dv) tile.add_dv(dv);
      if (has_slopes()) *slope_part(call, item, head) += slope_gradient(tile);
      tile.through_softcap();
      if (wanted_.dk) tile.add_dk(dk);
      if (wanted_.dq) tile.add_dq(dq_rows(call, item, head, worker) + row * context_.qk_cols());
    }
  write_keys(tile.sequence(), item, keys, {dk, dv});
}

double BackwardPlan::slope_gradient(const GradientTile& tile) const {
  const Sequence& sequence = tile.sequence();
  const int64_t offset = problem().band.offset(sequence.q_len, sequence.kv_len);
  double sum = 0.0;
  for (int64_t r = 0; r < tile.rows(); ++r) {
    const int64_t distance = tile.key() - tile.first_row() - r - offset;
    const float* ds = tile.ds() + r * GradientTile::row_stride;
    for (int64_t j = 0; j < tile.cols(); ++j) sum += double{ds[j]} * static_cast<double>(distance + j);
  }
  return sum;
}

void BackwardPlan::write_keys(const Sequence& sequence, const Item& item, KeyRange keys, KeySums sums) const {
  const float scale = static_cast<float>(problem().scale);
  for (int64_t r = 0; r < keys.end - keys.begin; ++r) {
    const int64_t j = keys.begin + r;
    if (wanted_.dk)
      sequence.write(context_.kernels, Role::kDk, item.kv_head, j, sums.dk + r * context_.qk_cols(), scale);
    if (wanted_.dv)
      sequence.write(context_.kernels, Role::kDv, item.kv_head, j, sums.dv + r * context_.v_cols(), 1.0F);
  }
}

/// Keys at and beyond the length, where the gradients are dense.
void BackwardPlan::write_key_padding(const Sequence& sequence, const Item& item, float* zeros) const {
  std::fill(zeros, zeros + row_floats(), 0.0F);
  for (const Role role : {Role::kDk, Role::kDv}) {
    if (!problem().has(role) || problem()[role].ragged) continue;
    for (int64_t j = sequence.kv_len; j < problem().kv_len; ++j)
      sequence.write(context_.kernels, role, item.kv_head, j, zeros, 1.0F);
  }
}

/// Writes rows of dq, summed over the parts of the keys in their order; 0 beyond the length.
void BackwardPlan::sum_dq(const BackwardCall& call, const Sequence& sequence, const QueryRows& rows,
                          int64_t worker) const {
  float* sum = row_.at<float>(call.workspace, worker);
  const int64_t cols = context_.qk_cols();
  const int64_t end = problem()[Role::kDq].ragged ? std::min(rows.end, sequence.q_len) : rows.end;
  for (int64_t i = rows.begin; i < end; ++i) {
    std::fill(sum, sum + cols, 0.0F);
    for (int64_t split = 0; i < sequence.q_len && split < splits_; ++split) {
      const float* part = dq_rows(call, {sequence.batch, 0, split}, rows.head, worker) + i * cols;
      for (int64_t d = 0; d < cols; ++d) sum[d] += part[d];
    }
    sequence.write(context_.kernels, Role::kDq, rows.head, i, sum, static_cast<float>(problem().scale));
  }
}

/// Adds the slice's parts to the sums of dalibi_slopes: sequences, then parts of keys, in their order.
void BackwardPlan::sum_slopes(const BackwardCall& call) const {
  const Operand& t = problem()[Role::kDalibiSlopes];
  double* sums = slope_sums_.at<double>(call.workspace);
  const auto sum_of = [&](int64_t b, int64_t head) -> double& {
    return sums[(batch(t) > 1 ? b : 0) * problem().q_heads + head];
  };
  if (call.slice.is_first) std::fill(sums, sums + batch(t) * heads(t), 0.0);
  for (int64_t head = call.first_head(); head < call.first_head() + call.heads(); ++head)
    for (int64_t b = call.slice.batch_begin; b < call.slice.batch_end; ++b)
      for (int64_t split = 0; split < splits_; ++split)
        sum_of(b, head) += *slope_part(call, {b, 0, split}, head);
  if (!call.slice.is_last) return;
  for (int64_t b = 0; b < batch(t); ++b)
    for (int64_t head = 0; head < heads(t); ++head)
      write_real(call.buffers[Role::kDalibiSlopes], t.dtype, b * batch_stride(t) + head * head_stride(t),
                 sum_of(b, head));
}

Status BackwardPlan::run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
                         void*) const {
  ATTNGRAPH_RETURN_IF_ERROR(check_isa(isa_));
  const BackwardCall call{context_, buffers, slice, workspace, executor_, workers_};
  compute_row_factors(call);
  if (wanted_.dv || wanted_.ds)
    for_each_item(executor_, workers_, call.batches() * call.kv_heads() * splits_,
                  [&](int64_t index, int64_t worker) {
                    const int64_t lane = index / splits_;
                    run_item(call,
                             {slice.batch_begin + lane / call.kv_heads(),
                              slice.kv_head_begin + lane % call.kv_heads(), index % splits_},
                             worker);
                  });
  if (wanted_.dq && splits_ > 1) {
    const int64_t tiles = ceil_div(problem().q_len, kBackwardRows);
    for_each_item(
        executor_, workers_, call.batches() * call.heads() * tiles, [&](int64_t index, int64_t worker) {
          const int64_t lane = index / tiles, row = index % tiles * kBackwardRows;
          const Sequence sequence(problem(), buffers, slice.batch_begin + lane / call.heads());
          sum_dq(
              call, sequence,
              {call.first_head() + lane % call.heads(), row, std::min(row + kBackwardRows, problem().q_len)},
              worker);
        });
  }
  if (has_slopes()) sum_slopes(call);
  if (problem().has(Role::kDbias)) bias_.run(call);
  if (problem().has(Role::kDsink)) sink_.run(call);
  return {};
}

}  // namespace

Result<std::unique_ptr<const EnginePlan>> plan_backward(const PlanInput& input) {
  auto plan = std::make_unique<BackwardPlan>(input);
  ATTNGRAPH_RETURN_IF_ERROR(plan->book(input));
  return std::unique_ptr<const EnginePlan>(std::move(plan));
}

}  // namespace attngraph::cpu
