#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attngraph/graph.hpp"
#include "base/message.hpp"
#include "problem/problem.hpp"

namespace attngraph {

/// The parts of validate(), in the order in which they run. Each is a list of small rules of which
/// the first that fails speaks; nothing is written to a text before that.

/// Extents, band sides and lengths stay below this, so that their sums and differences fit int64.
inline constexpr int64_t kExtentBound = int64_t{1} << 61;

/// Positions of tensors by uid.
class TensorIndex {
 public:
  explicit TensorIndex(const Graph& graph);

  /// Position in Graph::tensors, or -1.
  int find(Uid uid) const;
  /// Errors: kInvalidGraph naming a uid that two tensors bear.
  Status unique() const;

 private:
  std::vector<std::pair<Uid, int>> by_uid_;  ///< ascending
};

/// The nodes that make and read a tensor, as positions in Graph::nodes.
struct Wire {
  static constexpr int kNobody = -1;
  int maker = kNobody, last_reader = kNobody;
};

/// Connects the ports of all nodes.
///
/// Errors: kInvalidGraph on an unknown uid, a tensor with two makers, one that is read before it is
///         made, and a virtual tensor that is not made and then read.
Result<std::vector<Wire>> connect(const Graph& graph, const TensorIndex& index);

/// What can be said of each tensor without its role.
Status check_tensors(const Graph& graph, const TensorIndex& index, const std::vector<Wire>& wires);

/// One node on its way to a Problem.
struct Draft {
  const Graph& graph;
  int node;
  SdpaAttributes attributes;           ///< of a merge: those that it has
  std::array<int, kNumRoles> tensors;  ///< positions in Graph::tensors; -1: the node does without
  std::array<int, kNumRoles> offsets;  ///< of ragged tensors
  Problem problem = {};                ///< filled step by step

  bool has(Role role) const { return tensors[static_cast<size_t>(role)] >= 0; }
  const Tensor& operator[](Role role) const {
    return graph.tensors[static_cast<size_t>(tensors[static_cast<size_t>(role)])];
  }
  const Tensor& offsets_of(Role role) const {
    return graph.tensors[static_cast<size_t>(offsets[static_cast<size_t>(role)])];
  }
  /// True for k or v in pages.
  bool is_paged(Role role) const {
    return (role == Role::kK && has(Role::kPageTableK)) || (role == Role::kV && has(Role::kPageTableV));
  }
};

/// Which tensors a node needs and which exclude each other.
Status check_roles(const Draft& draft);
/// Types, ranks and extents of every tensor; fills operands and sizes.
Status check_shapes(Draft& draft);
/// Scale, softcap, dropout and band.
Status check_attributes(Draft& draft);
/// Capacities, and every footprint inside int64, in elements and in bytes.
Status check_footprints(Draft& draft);
/// No output writes an element twice.
Status check_outputs(const Draft& draft);

/// Extents and strides of `role` on the logical axes: `axes[i]` is where dim i lies. Strides that
/// were left out are dense, last axis fastest; those that are never read become 0.
///
/// Errors: kInvalidGraph when dense strides leave int64.
Status place_operand(Draft& draft, Role role, const std::array<int, 4>& axes);
/// Token slots of a ragged side: `max_total`, or batch * len.
Result<int64_t> infer_slots(const Draft& draft, Side side);
/// The scale that multiplies q.k when none was given.
double default_scale(int64_t qk_dim);

/// "node 0 "attention", k (uid 2 "key")".
std::string where(const Draft& draft, Role role);
/// "node 0 "attention"", for attributes: followed by ", dropout_p".
std::string where(const Graph& graph, int node);
/// "uid 2 "key"".
std::string label(const Tensor& tensor);

/// The tensor whose type and extents all others of the node follow.
constexpr Role leader_of(Pass pass) { return pass == Pass::kMerge ? Role::kOA : Role::kQ; }

/// A refusal that concerns one tensor of a node.
template <class... Parts>
Status refuse(const Draft& draft, Role role, const Parts&... parts) {
  return fail(Code::kInvalidGraph, where(draft, role), ": ", parts...);
}
/// A refusal that concerns an attribute, or a tensor that is not there.
template <class... Parts>
Status refuse(const Draft& draft, std::string_view subject, const Parts&... parts) {
  return fail(Code::kInvalidGraph, where(draft.graph, draft.node), ", ", subject, ": ", parts...);
}

}  // namespace attngraph
