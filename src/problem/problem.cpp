#include "problem/problem.hpp"

#include "base/message.hpp"

namespace attngraph {
namespace {

void print_band(std::ostream& out, const Band& band) {
  if (band == Band{}) return;
  out << " band(" << band.align;
  if (band.left) out << " left " << *band.left;
  if (band.right) out << " right " << *band.right;
  out << ')';
}

void print_extents(std::ostream& out, const Problem& p) {
  if (p.pass == Pass::kMerge) {
    out << " h" << p.q_heads << " s" << p.q_len << " d" << p.v_dim;
    return;
  }
  out << " h" << p.q_heads << ':' << p.kv_heads << " s" << p.q_len << ':' << p.kv_len;
  out << " d" << p.qk_dim << ':' << p.v_dim;
}

/// A tensor that every merge has says nothing.
bool always_there(Role role) { return role >= Role::kOA && role <= Role::kStatsB; }

}  // namespace

bool is_output(const Problem& problem, Role role) {
  if (problem.pass == Pass::kBackward) return role >= Role::kDq;
  return role == Role::kO || role == Role::kStats;
}

std::ostream& operator<<(std::ostream& out, const Problem& p) {
  out << p.io << ' ' << p.pass << " b" << p.batch;
  print_extents(out, p);
  print_band(out, p.band);
  if (p.softcap > 0) out << " softcap " << shortest(p.softcap);
  if (p.dropout_p > 0) out << " dropout " << shortest(p.dropout_p);
  if (p.deterministic) out << " deterministic";
  if (p.q_slots > 0 || p[Role::kQ].ragged || p[Role::kOA].ragged) out << " q_slots " << p.q_slots;
  if (p.kv_slots > 0 || p[Role::kK].ragged) out << " kv_slots " << p.kv_slots;
  for (size_t i = static_cast<size_t>(Role::kBias); i < kNumRoles; ++i)
    if (p.operands[i].present && !always_there(static_cast<Role>(i))) out << ' ' << static_cast<Role>(i);
  if (p.pass != Pass::kBackward && p.has(Role::kStats)) out << " stats";
  return out;
}

}  // namespace attngraph
