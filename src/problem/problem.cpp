#include "problem/problem.hpp"

#include "base/enum_names.hpp"

namespace attngraph {
namespace {

void print_band(std::ostream& out, const Band& band) {
  if (band == Band{}) return;
  out << " band(" << band.align;
  if (band.left) out << " left " << *band.left;
  if (band.right) out << " right " << *band.right;
  out << ')';
}

}  // namespace

bool is_output(const Problem& problem, Role role) {
  if (problem.pass == Pass::kForward) return role == Role::kO || role == Role::kStats;
  return role >= Role::kDq;
}

std::ostream& operator<<(std::ostream& out, const Problem& p) {
  out << p.io << (p.pass == Pass::kForward ? " forward" : " backward");
  out << " b" << p.batch << " h" << p.q_heads << ':' << p.kv_heads;
  out << " s" << p.q_len << ':' << p.kv_len << " d" << p.qk_dim << ':' << p.v_dim;
  print_band(out, p.band);
  if (p.softcap > 0) out << " softcap " << p.softcap;
  if (p.dropout_p > 0) out << " dropout " << p.dropout_p;
  if (p.deterministic) out << " deterministic";
  if (p.q_slots > 0 || p[Role::kQ].ragged) out << " q_slots " << p.q_slots;
  if (p.kv_slots > 0 || p[Role::kK].ragged) out << " kv_slots " << p.kv_slots;
  for (size_t i = static_cast<size_t>(Role::kBias); i < kNumRoles; ++i)
    if (p.operands[i].present) out << ' ' << static_cast<Role>(i);
  if (p.pass == Pass::kForward && p.has(Role::kStats)) out << " stats";
  return out;
}

}  // namespace attngraph
