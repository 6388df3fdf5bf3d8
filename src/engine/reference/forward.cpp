#include <cmath>
#include <numbers>

#include "engine/reference/dropout_draw.hpp"
#include "engine/reference/passes.hpp"
#include "engine/reference/scores.hpp"
#include "engine/reference/vectors.hpp"

namespace attngraph::reference {
namespace {

/// One sequence of a forward launch.
class Forward {
 public:
  Forward(const Launch& launch, const DropoutDraw& dropout, int64_t batch)
      : problem_(launch.problem),
        dropout_(dropout),
        batch_(batch),
        scores_(problem_, launch.buffers, batch),
        q_(problem_, launch.buffers, Role::kQ, batch),
        k_(problem_, launch.buffers, Role::kK, batch),
        v_(problem_, launch.buffers, Role::kV, batch),
        sink_(problem_, launch.buffers, Role::kSink, batch),
        o_(problem_, launch.buffers, Role::kO, batch),
        stats_(problem_, launch.buffers, Role::kStats, batch),
        k_rows_(launch.doubles(launch.regions.k)),
        v_rows_(launch.doubles(launch.regions.v)),
        q_row_(launch.doubles(launch.regions.q)),
        x_(launch.doubles(launch.regions.scores)),
        o_row_(launch.doubles(launch.regions.o)) {}

  void kv_head(int64_t kv_head) {
    k_.read_rows(kv_head, scores_.lengths().kv, k_rows_);
    v_.read_rows(kv_head, scores_.lengths().kv, v_rows_);
    for (int64_t head = kv_head * problem_.group(); head < (kv_head + 1) * problem_.group(); ++head) {
      for (int64_t i = 0; i < scores_.lengths().q; ++i) row(head, i);
      o_.fill_padding(head, scores_.lengths().q, 0.0);
      stats_.fill_padding(head, scores_.lengths().q, kMinusInfinity);
    }
  }

 private:
  void row(int64_t head, int64_t i) {
    q_.read_row(head, i, q_row_);
    double largest = kMinusInfinity;
    bool sees_a_key = false;
    for (int64_t j = 0; j < scores_.lengths().kv; ++j) {
      const Place at{head, i, j};
      x_[j] = kMinusInfinity;
      if (!scores_.admits(at)) continue;
      x_[j] = scores_.score(at, dot(q_row_, k_rows_ + j * problem_.qk_dim, problem_.qk_dim)).value;
      if (x_[j] == kMinusInfinity) continue;
      sees_a_key = true;
      if (x_[j] > largest) largest = x_[j];
    }
    if (!sees_a_key) {
      o_.fill_row(head, i, 0.0);
      write_stats(head, i, sink_.present() ? sink_.at(head, 0) : kMinusInfinity);
      return;
    }
    softmax(head, i, largest);
  }

  void softmax(int64_t head, int64_t i, double largest) {
    double sum = 0.0;
    if (sink_.present()) {
      const double sink = sink_.at(head, 0);
      if (sink > largest) largest = sink;
      sum = std::exp(sink - largest);
    }
    std::fill_n(o_row_, problem_.v_dim, 0.0);
    for (int64_t j = 0; j < scores_.lengths().kv; ++j) {
      if (x_[j] == kMinusInfinity) continue;
      const double p = std::exp(x_[j] - largest), factor = dropout_.factor(batch_, {head, i, j});
      sum += p;
      if (factor != 0.0) add_scaled(o_row_, p * factor, v_rows_ + j * problem_.v_dim, problem_.v_dim);
    }
    for (int64_t d = 0; d < problem_.v_dim; ++d) o_row_[d] /= sum;
    o_.write_row(head, i, o_row_);
    write_stats(head, i, largest + std::log(sum));
  }

  void write_stats(int64_t head, int64_t i, double stats) const {
    if (!stats_.present()) return;
    stats_.put(head, i, 0, problem_.stats_base == StatsBase::k2 ? stats / std::numbers::ln2 : stats);
  }

  const Problem& problem_;
  const DropoutDraw& dropout_;
  int64_t batch_;
  Scores scores_;
  Rows q_, k_, v_, sink_, o_, stats_;
  double *k_rows_, *v_rows_, *q_row_, *x_, *o_row_;
};

}  // namespace

void forward(const Launch& launch) {
  const DropoutDraw dropout(launch.problem, launch.buffers);
  for (int64_t b = launch.slice.batch_begin; b < launch.slice.batch_end; ++b) {
    Forward sequence(launch, dropout, b);
    for (int64_t h = launch.slice.kv_head_begin; h < launch.slice.kv_head_end; ++h) sequence.kv_head(h);
  }
}

}  // namespace attngraph::reference
