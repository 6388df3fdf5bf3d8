#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>

#include "attngraph/band.hpp"
#include "attngraph/graph.hpp"
#include "attngraph/types.hpp"
#include "base/enum_names.hpp"
#include "graph/role.hpp"

namespace attngraph {

/// What a node computes.
enum class Pass : uint8_t { kForward, kBackward, kMerge };
template <>
struct EnumNames<Pass> {
  static constexpr std::array table = {std::pair{Pass::kForward, "forward"},
                                       std::pair{Pass::kBackward, "backward"},
                                       std::pair{Pass::kMerge, "merge_partials"}};
};

/// One tensor of a problem: type, extents and strides, no pointer and no uid.
///
/// Shapes: always four axes, batch, heads, len, dim; axes that the role lacks have extent 1.
///         Vectors over the batch (lengths, cu lengths) lie on axis batch, page tables on batch and
///         len, slopes on batch and heads, sinks on heads. Paged k and v: batch counts pages, len
///         is the page size.
/// Units:  elements; the stride of an axis that is never read (extent 1, the batch of a ragged
///         tensor) is 0, so that descriptions that mean the same compare equal.
struct Operand {
  bool present = false;
  DataType dtype = DataType::kF32;
  std::array<int64_t, 4> extent = {0, 0, 0, 0};
  std::array<int64_t, 4> stride = {0, 0, 0, 0};
  int64_t alignment = 16;  ///< bytes
  bool ragged = false;
  int64_t multiplier = 1;  ///< elements per offset unit
  DataType offsets_dtype = DataType::kI32;
  int64_t offsets_stride = 0;
  int64_t offsets_alignment = 16;  ///< bytes
  Role offsets_owner = Role::kQ;   ///< of a ragged tensor: the first role that has the same offset tensor

  friend bool operator==(const Operand&, const Operand&) = default;
};

/// One validated node: sizes, layouts, masks and flags; no pointer, no length.
///
/// Shapes: q [batch, q_heads, q_len, qk_dim], k [batch, kv_heads, kv_len, qk_dim],
///         v [batch, kv_heads, kv_len, v_dim], o [batch, q_heads, q_len, v_dim]. A merge has no keys:
///         kv_len and qk_dim are 0, and kv_heads equals q_heads, so that its slices run over heads.
/// Units:  q_slots and kv_slots are capacities in token slots, gaps included (max_total_q,
///         max_total_kv; batch * len when absent; 0 when no tensor of that side is ragged). scale
///         multiplies q.k and is never absent; softcap 0 means none.
struct Problem {
  Pass pass = Pass::kForward;
  int64_t batch = 0, q_heads = 0, kv_heads = 0, q_len = 0, kv_len = 0, qk_dim = 0, v_dim = 0;
  int64_t q_slots = 0, kv_slots = 0;
  DataType io = DataType::kF32;
  double scale = 1.0, softcap = 0.0, dropout_p = 0.0;
  Band band = {};
  StatsBase stats_base = StatsBase::kE;
  bool deterministic = false;
  std::array<Operand, kNumRoles> operands = {};

  const Operand& operator[](Role role) const { return operands[static_cast<size_t>(role)]; }
  Operand& operator[](Role role) { return operands[static_cast<size_t>(role)]; }
  bool has(Role role) const { return (*this)[role].present; }

  int64_t group() const { return kv_heads == 0 ? 0 : q_heads / kv_heads; }
  bool draws_dropout() const { return dropout_p > 0.0 && dropout_p < 1.0; }

  friend bool operator==(const Problem&, const Problem&) = default;  // the cache key
};

/// True for tensors that the node writes.
bool is_output(const Problem& problem, Role role);

/// The problem in one line: "bf16 backward b2 h8:2 s2048:2048 d128:128 causal ragged gqa".
std::ostream& operator<<(std::ostream& out, const Problem& problem);

}  // namespace attngraph
