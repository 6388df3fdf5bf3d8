#include <algorithm>
#include <variant>

#include "base/enum_names.hpp"
#include "graph/fields.hpp"
#include "problem/validate.hpp"

namespace attngraph {
namespace {

struct Subject {
  const Graph& graph;
  const TensorIndex& index;
  const Tensor& tensor;
  bool is_made;  ///< the output of a node
};

/// The tensor as its first user knows it, or by its label alone when no node uses it.
std::string where(const Subject& s) {
  std::string first;
  for (int node = 0; node < static_cast<int>(s.graph.nodes.size()); ++node) {
    const auto visit = [&](Role role, const Port& port, bool) {
      if (!first.empty() || !port) return;
      const Tensor& user = s.graph.tensors[static_cast<size_t>(s.index.find(*port))];
      if (&user == &s.tensor) first = text(where(s.graph, node), ", ", role, " (", label(s.tensor), ')');
      if (user.ragged && user.ragged->offsets == s.tensor.uid)
        first = text(where(s.graph, node), ", offsets of ", role, " (", label(s.tensor), ')');
    };
    std::visit([&](const auto& n) { ports(n, visit); }, s.graph.nodes[static_cast<size_t>(node)]);
  }
  return first.empty() ? text("tensor (", label(s.tensor), ')') : first;
}

template <class... Parts>
Status refuse(const Subject& s, const Parts&... parts) {
  return fail(Code::kInvalidGraph, where(s), ": ", parts...);
}

Status type_is_covered(const Subject& s) {
  if (s.tensor.dtype != DataType::kFp8E4m3 && s.tensor.dtype != DataType::kFp8E5m2) return {};
  return refuse(s, "dtype is ", s.tensor.dtype, "; must be another type: fp8 is not covered by the contract");
}

Status dims_are_counts(const Subject& s) {
  for (size_t axis = 0; axis < s.tensor.dims.size(); ++axis) {
    const int64_t dim = s.tensor.dims[axis];
    if (dim < 0) return refuse(s, "dims[", axis, "] is ", dim, "; must not be negative");
    if (dim >= kExtentBound)
      return refuse(s, "dims[", axis, "] is ", dim, "; must be below 2^61, so that sizes fit int64");
  }
  return {};
}

Status strides_match_dims(const Subject& s) {
  const size_t rank = s.tensor.dims.size(), given = s.tensor.strides.size();
  if (given == rank || (given == 0 && s.is_made)) return {};
  if (given == 0)
    return refuse(s, "strides are absent; an input must have one for each of its ", rank, " dims");
  return refuse(s, "strides have rank ", given, "; must have rank ", rank, ", as the dims");
}

Status strides_are_distances(const Subject& s) {
  for (size_t axis = 0; axis < s.tensor.strides.size(); ++axis)
    if (s.tensor.strides[axis] < 0)
      return refuse(s, "strides[", axis, "] is ", s.tensor.strides[axis], "; must not be negative");
  return {};
}

Status alignment_fits(const Subject& s) {
  const int64_t bytes = s.tensor.alignment, element = element_bytes(s.tensor.dtype);
  if (bytes <= 0 || (bytes & (bytes - 1)) != 0)
    return refuse(s, "alignment is ", bytes, "; must be a positive power of two, in bytes");
  if (bytes < element)
    return refuse(s, "alignment is ", bytes, "; must be at least ", element, ", the bytes of one ",
                  s.tensor.dtype);
  return {};
}

Status offsets_exist(const Subject& s) {
  if (!s.tensor.ragged) return {};
  if (s.index.find(s.tensor.ragged->offsets) < 0)
    return refuse(s, "ragged offsets are uid ", s.tensor.ragged->offsets,
                  ", no tensor of the graph; must be the uid of one");
  if (s.tensor.ragged->multiplier < 0)
    return refuse(s, "ragged multiplier is ", s.tensor.ragged->multiplier, "; must be positive");
  return {};
}

constexpr Status (*kRules[])(const Subject&) = {type_is_covered,       dims_are_counts, strides_match_dims,
                                                strides_are_distances, alignment_fits,  offsets_exist};

}  // namespace

Status check_tensors(const Graph& graph, const TensorIndex& index, const std::vector<Wire>& wires) {
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Subject subject{graph, index, graph.tensors[i], wires[i].maker != Wire::kNobody};
    for (const auto rule : kRules) ATTNGRAPH_RETURN_IF_ERROR(rule(subject));
  }
  return {};
}

}  // namespace attngraph
