#include "graph/role.hpp"

#include <array>

namespace attngraph {
namespace {

struct RoleRow {
  Role role;
  const char* name;
  Side side;
};

constexpr std::array<RoleRow, kNumRoles> kRoles = {{
    {Role::kQ, "q", Side::kQ},
    {Role::kK, "k", Side::kKv},
    {Role::kV, "v", Side::kKv},
    {Role::kO, "o", Side::kQ},
    {Role::kDo, "do", Side::kQ},
    {Role::kStats, "stats", Side::kQ},
    {Role::kBias, "bias", Side::kNone},
    {Role::kMask, "mask", Side::kNone},
    {Role::kAlibiSlopes, "alibi_slopes", Side::kNone},
    {Role::kSink, "sink", Side::kNone},
    {Role::kSeqLenQ, "seq_len_q", Side::kNone},
    {Role::kSeqLenKv, "seq_len_kv", Side::kNone},
    {Role::kCuSeqLenQ, "cu_seq_len_q", Side::kNone},
    {Role::kCuSeqLenKv, "cu_seq_len_kv", Side::kNone},
    {Role::kPageTableK, "page_table_k", Side::kNone},
    {Role::kPageTableV, "page_table_v", Side::kNone},
    {Role::kDropoutSeed, "dropout_seed", Side::kNone},
    {Role::kDropoutOffset, "dropout_offset", Side::kNone},
    {Role::kOA, "o_a", Side::kQ},
    {Role::kStatsA, "stats_a", Side::kQ},
    {Role::kOB, "o_b", Side::kQ},
    {Role::kStatsB, "stats_b", Side::kQ},
    {Role::kDq, "dq", Side::kQ},
    {Role::kDk, "dk", Side::kKv},
    {Role::kDv, "dv", Side::kKv},
    {Role::kDbias, "dbias", Side::kNone},
    {Role::kDsink, "dsink", Side::kNone},
    {Role::kDalibiSlopes, "dalibi_slopes", Side::kNone},
}};

constexpr bool rows_follow_the_enum() {
  for (size_t i = 0; i < kNumRoles; ++i)
    if (static_cast<size_t>(kRoles[i].role) != i) return false;
  return true;
}
static_assert(rows_follow_the_enum());

const RoleRow& row(Role role) { return kRoles[static_cast<size_t>(role)]; }

}  // namespace

std::string_view name_of(Role role) { return row(role).name; }
Side side_of(Role role) { return row(role).side; }

std::optional<Role> primal_of(Role role) {
  switch (role) {
    case Role::kDq:
      return Role::kQ;
    case Role::kDk:
      return Role::kK;
    case Role::kDv:
      return Role::kV;
    case Role::kDbias:
      return Role::kBias;
    case Role::kDsink:
      return Role::kSink;
    case Role::kDalibiSlopes:
      return Role::kAlibiSlopes;
    default:
      return std::nullopt;
  }
}

}  // namespace attngraph
