#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/enum_names.hpp"
#include "engine/cpu/passes.hpp"

namespace attngraph::cpu {
namespace {

/// What the two sides of a row weigh, and the stats of both: a side whose stats are infinite saw no key.
struct Weights {
  float a = 0.0F, b = 0.0F, stats = -INFINITY;
};

/// Stats in base e or 2, whichever `exp` and `log` are to.
template <class Exp, class Log>
Weights weights_of(float a, float b, Exp exp, Log log) {
  if (std::isinf(a) || std::isinf(b)) {
    if (!std::isinf(a)) return {1.0F, 0.0F, a};
    if (!std::isinf(b)) return {0.0F, 1.0F, b};
    return {};
  }
  const float larger = std::max(a, b), smaller = exp(-std::fabs(a - b)), sum = 1.0F + smaller;
  const float of_larger = 1.0F / sum, of_smaller = smaller / sum;
  return {a >= b ? of_larger : of_smaller, a >= b ? of_smaller : of_larger, larger + log(sum)};
}

class MergePlan final : public EnginePlan {
 public:
  explicit MergePlan(const PlanInput& in)
      : problem_(in.problem),
        isa_(in.target.isa),
        workers_(std::max(1, in.target.num_threads)),
        executor_(in.executor),
        kernels_(cpu::kernels(in.target.isa)) {}

  Status run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace&, void*) const override {
    ATTNGRAPH_RETURN_IF_ERROR(check_isa(isa_));
    const KeyRange heads{slice.kv_head_begin, slice.kv_head_end};
    const int64_t chunk_rows = chunk_rows_of(heads.end - heads.begin);
    const int64_t chunks = ceil_div(problem_.q_len, chunk_rows);
    const int64_t items = (slice.batch_end - slice.batch_begin) * chunks;
    for_each_item(executor_, workers_, items, [&](int64_t item, int64_t) {
      const int64_t first = item % chunks * chunk_rows;
      const Sequence sequence(problem_, buffers, slice.batch_begin + item / chunks);
      merge_chunk(sequence, heads, {first, std::min(problem_.q_len, first + chunk_rows)});
    });
    return {};
  }

  std::string describe() const override {
    return text("isa ", name_of(isa_), ", ", workers_, " threads, chunks of ",
                chunk_rows_of(problem_.q_heads), " rows");
  }

 private:
  static int64_t chunk_rows_of(int64_t heads) {
    return std::max<int64_t>(1, kMergeRows / std::max<int64_t>(heads, 1));
  }

  /// In the order of memory.
  void merge_chunk(const Sequence& s, KeyRange heads, KeyRange rows) const {
    const Operand& o = problem_[Role::kO];
    if (head_stride(o) < len_stride(o)) {
      for (int64_t i = rows.begin; i < rows.end; ++i)
        for (int64_t h = heads.begin; h < heads.end; ++h) merge_row(s, h, i);
      return;
    }
    for (int64_t h = heads.begin; h < heads.end; ++h)
      for (int64_t i = rows.begin; i < rows.end; ++i) merge_row(s, h, i);
  }

  /// A row at or beyond the length is written where the output is dense.
  void merge_row(const Sequence& s, int64_t head, int64_t i) const {
    const bool is_padding = i >= s.q_len;
    const Weights w = is_padding ? Weights{} : weights(s, head, i);
    if (!is_padding || !problem_[Role::kO].ragged) write_o(s, head, i, w);
    if (problem_.has(Role::kStats) && (!is_padding || !problem_[Role::kStats].ragged))
      std::memcpy(s.at(Role::kStats, head, i), &w.stats, sizeof w.stats);
  }

  Weights weights(const Sequence& s, int64_t head, int64_t i) const {
    const float a = s.float_at(Role::kStatsA, head, i), b = s.float_at(Role::kStatsB, head, i);
    if (problem_.stats_base == StatsBase::k2)
      return weights_of(
          a, b, [](float x) { return std::exp2(x); }, [](float x) { return std::log2(x); });
    return weights_of(
        a, b, [](float x) { return std::exp(x); }, [](float x) { return std::log(x); });
  }

  void write_o(const Sequence& s, int64_t head, int64_t i, const Weights& w) const {
    const auto stride = [&](Role role) { return s.rows[static_cast<size_t>(role)].dim_stride; };
    WeightedPair pair;
    if (w.a != 0.0F) pair.a = s.at(Role::kOA, head, i);  // a side without weight may hold NaN
    if (w.b != 0.0F) pair.b = s.at(Role::kOB, head, i);
    pair.out = s.at(Role::kO, head, i);
    pair.a_stride = stride(Role::kOA), pair.b_stride = stride(Role::kOB), pair.out_stride = stride(Role::kO);
    pair.a_weight = w.a, pair.b_weight = w.b;
    pair.count = problem_.v_dim;
    pair.dtype = problem_.io;
    kernels_.weighted_pair(pair);
  }

  const Problem problem_;
  const CpuIsa isa_;
  const int64_t workers_;
  Executor& executor_;
  const Kernels& kernels_;
};

}  // namespace

Result<std::unique_ptr<const EnginePlan>> plan_merge(const PlanInput& input) {
  return std::unique_ptr<const EnginePlan>(std::make_unique<MergePlan>(input));
}

}  // namespace attngraph::cpu
