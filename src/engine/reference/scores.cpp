#include "engine/reference/scores.hpp"

#include <cmath>

namespace attngraph::reference {

Scores::Scores(const Problem& problem, const Buffers& buffers, int64_t batch)
    : problem_(problem),
      lengths_(host_lengths(problem, buffers, batch)),
      diagonal_(problem.band.align == Align::kBottomRight ? lengths_.kv - lengths_.q : 0),
      k_(problem, buffers, Role::kK, batch),
      v_(problem, buffers, Role::kV, batch),
      bias_(problem, buffers, Role::kBias, batch),
      mask_(problem, buffers, Role::kMask, batch),
      slopes_(problem, buffers, Role::kAlibiSlopes, batch) {}

bool Scores::admits(Place at) const {
  if (at.key >= lengths_.kv) return false;
  const int64_t right_of_diagonal = at.key - at.row - diagonal_;
  if (problem_.band.left && right_of_diagonal < -*problem_.band.left) return false;
  if (problem_.band.right && right_of_diagonal > *problem_.band.right) return false;
  const int64_t kv_head = at.head / problem_.group();
  if (!k_.holds(kv_head, at.key) || !v_.holds(kv_head, at.key)) return false;
  return !mask_.present() || mask_.is_true(at.head, at.row, at.key);
}

Score Scores::score(Place at, double dot) const {
  Score score{problem_.scale * dot, 1.0};
  if (problem_.softcap > 0) {
    const double capped = std::tanh(score.value / problem_.softcap);
    score = {problem_.softcap * capped, 1.0 - capped * capped};
  }
  if (bias_.present()) score.value += bias_.at(at.head, at.row, at.key);
  if (slopes_.present()) score.value += slopes_.at(at.head, 0) * distance(at);
  return score;
}

}  // namespace attngraph::reference
