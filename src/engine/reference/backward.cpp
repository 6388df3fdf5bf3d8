#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/reference/dropout_draw.hpp"
#include "engine/reference/passes.hpp"
#include "engine/reference/scores.hpp"
#include "engine/reference/summed_gradient.hpp"
#include "engine/reference/vectors.hpp"

namespace attngraph::reference {
namespace {

/// The gradients that sum over heads or sequences, through one launch.
struct Sums {
  SummedGradient dbias, dsink, dalibi_slopes;

  explicit Sums(const Launch& launch)
      : dbias(launch, Role::kDbias, launch.regions.dbias),
        dsink(launch, Role::kDsink, launch.regions.dsink),
        dalibi_slopes(launch, Role::kDalibiSlopes, launch.regions.dalibi_slopes) {}

  template <class Visit>
  void each(Visit&& visit) {
    visit(dbias), visit(dsink), visit(dalibi_slopes);
  }
};

/// One sequence of a backward launch.
class Backward {
 public:
  Backward(const Launch& launch, const DropoutDraw& dropout, Sums& sums, int64_t batch)
      : launch_(launch),
        dropout_(dropout),
        sums_(sums),
        batch_(batch),
        scores_(launch.problem, launch.buffers, batch),
        q_(rows(Role::kQ)),
        k_(rows(Role::kK)),
        v_(rows(Role::kV)),
        o_(rows(Role::kO)),
        dout_(rows(Role::kDo)),
        stats_(rows(Role::kStats)),
        sink_(rows(Role::kSink)),
        dq_(rows(Role::kDq)),
        dk_(rows(Role::kDk)),
        dv_(rows(Role::kDv)) {}

  void kv_head(int64_t kv_head) {
    const Problem& problem = launch_.problem;
    const SequenceLengths lengths = scores_.lengths();
    k_.read_rows(kv_head, lengths.kv, k_rows_);
    v_.read_rows(kv_head, lengths.kv, v_rows_);
    std::fill_n(dk_rows_, lengths.kv * problem.qk_dim, 0.0);
    std::fill_n(dv_rows_, lengths.kv * problem.v_dim, 0.0);
    for (int64_t head = kv_head * problem.group(); head < (kv_head + 1) * problem.group(); ++head) {
      sums_.each([&](SummedGradient& sum) { sum.begin_head(batch_, head); });
      for (int64_t i = 0; i < lengths.q; ++i) row(head, i);
      dq_.fill_padding(head, lengths.q, 0.0);
      sums_.each([&](SummedGradient& sum) { sum.end_head(batch_, head); });
    }
    dk_.write_rows(kv_head, lengths.kv, dk_rows_);
    dv_.write_rows(kv_head, lengths.kv, dv_rows_);
    dk_.fill_padding(kv_head, lengths.kv, 0.0);
    dv_.fill_padding(kv_head, lengths.kv, 0.0);
  }

 private:
  Rows rows(Role role) const { return Rows(launch_.problem, launch_.buffers, role, batch_); }

  void row(int64_t head, int64_t i) {
    const Problem& problem = launch_.problem;
    const double stats = stats_.at(head, i) * (problem.stats_base == StatsBase::k2 ? std::numbers::ln2 : 1.0);
    std::fill_n(dq_row_, problem.qk_dim, 0.0);
    if (!std::isinf(stats)) {
      q_.read_row(head, i, q_row_);
      dout_.read_row(head, i, dout_row_);
      o_.read_row(head, i, o_row_);
      const double delta = dot(dout_row_, o_row_, problem.v_dim);
      bool sees_a_key = false;
      for (int64_t j = 0; j < scores_.lengths().kv; ++j) sees_a_key |= add_key({head, i, j}, stats, delta);
      if (sees_a_key && sink_.present())
        sums_.dsink.add({head, i, 0}, -std::exp(sink_.at(head, 0) - stats) * delta);
    }
    if (dq_.present()) dq_.write_row(head, i, dq_row_);
  }

  /// Adds the terms of one score; false when the row does not see the key.
  bool add_key(Place at, double stats, double delta) {
    if (!scores_.admits(at)) return false;
    const Problem& problem = launch_.problem;
    const double* k_row = k_rows_ + at.key * problem.qk_dim;
    const Score score = scores_.score(at, dot(q_row_, k_row, problem.qk_dim));
    if (score.value == kMinusInfinity) return false;
    const double p = std::exp(score.value - stats), factor = dropout_.factor(batch_, at);
    double dp = 0.0;
    if (factor != 0.0) {
      dp = factor * dot(dout_row_, v_rows_ + at.key * problem.v_dim, problem.v_dim);
      add_scaled(dv_rows_ + at.key * problem.v_dim, p * factor, dout_row_, problem.v_dim);
    }
    const double ds = p * (dp - delta), dx = problem.scale * score.slope * ds;
    add_scaled(dq_row_, dx, k_row, problem.qk_dim);
    add_scaled(dk_rows_ + at.key * problem.qk_dim, dx, q_row_, problem.qk_dim);
    sums_.dbias.add(at, ds);
    sums_.dalibi_slopes.add(at, ds * scores_.distance(at));
    return true;
  }

  const Launch& launch_;
  const DropoutDraw& dropout_;
  Sums& sums_;
  int64_t batch_;
  Scores scores_;
  Rows q_, k_, v_, o_, dout_, stats_, sink_, dq_, dk_, dv_;
  double* const k_rows_ = launch_.doubles(launch_.regions.k);
  double* const v_rows_ = launch_.doubles(launch_.regions.v);
  double* const q_row_ = launch_.doubles(launch_.regions.q);
  double* const o_row_ = launch_.doubles(launch_.regions.o);
  double* const dout_row_ = launch_.doubles(launch_.regions.dout);
  double* const dq_row_ = launch_.doubles(launch_.regions.dq);
  double* const dk_rows_ = launch_.doubles(launch_.regions.dk);
  double* const dv_rows_ = launch_.doubles(launch_.regions.dv);
};

}  // namespace

void backward(const Launch& launch) {
  const DropoutDraw dropout(launch.problem, launch.buffers);
  Sums sums(launch);
  sums.each([](SummedGradient& sum) { sum.begin_slice(); });
  for (int64_t b = launch.slice.batch_begin; b < launch.slice.batch_end; ++b) {
    Backward sequence(launch, dropout, sums, b);
    for (int64_t h = launch.slice.kv_head_begin; h < launch.slice.kv_head_end; ++h) sequence.kv_head(h);
  }
  sums.each([](SummedGradient& sum) { sum.end_slice(); });
}

}  // namespace attngraph::reference
