#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

namespace attngraph {

/// Every place that a tensor can take in a node; kDq and later are gradients.
enum class Role : uint8_t {
  kQ,
  kK,
  kV,
  kO,
  kDo,
  kStats,
  kBias,
  kMask,
  kAlibiSlopes,
  kSink,
  kSeqLenQ,
  kSeqLenKv,
  kCuSeqLenQ,
  kCuSeqLenKv,
  kPageTableK,
  kPageTableV,
  kDropoutSeed,
  kDropoutOffset,
  kOA,
  kStatsA,
  kOB,
  kStatsB,
  kDq,
  kDk,
  kDv,
  kDbias,
  kDsink,
  kDalibiSlopes,
};
inline constexpr size_t kNumRoles = 28;

/// The role's name in graph files: "q", "do", "seq_len_kv".
std::string_view name_of(Role role);
inline std::ostream& operator<<(std::ostream& out, Role role) { return out << name_of(role); }

/// Which lengths and which capacity bound a tensor's sequence axis; kNone for tensors that cannot
/// be ragged.
enum class Side : uint8_t { kNone, kQ, kKv };
Side side_of(Role role);

/// The input whose gradient this is; none for every role that backward does not write.
std::optional<Role> primal_of(Role role);

}  // namespace attngraph
