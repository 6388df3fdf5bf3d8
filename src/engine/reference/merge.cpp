#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/reference/passes.hpp"
#include "engine/reference/rows.hpp"
#include "engine/reference/scores.hpp"

namespace attngraph::reference {
namespace {

/// One sequence of a merge.
class Merge {
 public:
  Merge(const Problem& problem, const Buffers& buffers, int64_t batch)
      : problem_(problem),
        len_(host_lengths(problem, buffers, batch).q),
        a_{{problem, buffers, Role::kOA, batch}, {problem, buffers, Role::kStatsA, batch}},
        b_{{problem, buffers, Role::kOB, batch}, {problem, buffers, Role::kStatsB, batch}},
        o_(problem, buffers, Role::kO, batch),
        stats_(problem, buffers, Role::kStats, batch) {}

  void head(int64_t head) const {
    for (int64_t i = 0; i < len_; ++i) row(head, i);
    o_.fill_padding(head, len_, 0.0);
    stats_.fill_padding(head, len_, kMinusInfinity);
  }

 private:
  struct Part {
    Rows o, stats;
  };

  void row(int64_t head, int64_t i) const {
    const double to_base_e = problem_.stats_base == StatsBase::k2 ? std::numbers::ln2 : 1.0;
    const double a = a_.stats.at(head, i) * to_base_e, b = b_.stats.at(head, i) * to_base_e;
    const double largest = std::max(std::isinf(a) ? kMinusInfinity : a, std::isinf(b) ? kMinusInfinity : b);
    const double e_a = weight(a, largest), e_b = weight(b, largest), sum = e_a + e_b;
    for (int64_t d = 0; d < problem_.v_dim; ++d) {
      double o = 0.0;
      if (e_a != 0.0) o += e_a / sum * a_.o.at(head, i, d);
      if (e_b != 0.0) o += e_b / sum * b_.o.at(head, i, d);
      o_.put(head, i, d, o);
    }
    const double stats = sum == 0.0 ? kMinusInfinity : largest + std::log(sum);
    if (stats_.present()) stats_.put(head, i, 0, stats / to_base_e);
  }

  /// An infinite one says that the side saw no key.
  static double weight(double stats, double largest) {
    return std::isinf(stats) ? 0.0 : std::exp(stats - largest);
  }

  const Problem& problem_;
  int64_t len_;
  Part a_, b_;
  Rows o_, stats_;
};

}  // namespace

void merge(const Launch& launch) {
  for (int64_t b = launch.slice.batch_begin; b < launch.slice.batch_end; ++b) {
    const Merge sequence(launch.problem, launch.buffers, b);
    for (int64_t h = launch.slice.kv_head_begin; h < launch.slice.kv_head_end; ++h) sequence.head(h);
  }
}

}  // namespace attngraph::reference
