#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attngraph/graph.hpp"
#include "graph/role.hpp"

namespace attngraph {

/// Tensors that the library adds to a graph, with the layouts of the caller's. Nothing here fails: a
/// layout that leaves int64 is left without strides, a caller's tensor of wrong rank without a
/// companion's raggedness, and validate() answers for both.

/// A tensor like `like` in type, alignment and memory order, with other dims and without gaps; no
/// uid, no name.
///
/// When `like` is ragged the new tensor is, too, by the same offsets: its token stride is the
/// smallest for which they have a whole multiplier, which is the packed one when they count tokens.
/// `slots` is the capacity of that side, read when heads lie outside tokens.
Tensor packed_like(const Tensor& like, std::vector<int64_t> dims, int64_t slots);

/// An output shaped as `tensor`, such as its gradient: in the very layout of it, or packed where elements
/// of it overlap, as those of a broadcast input do and those of an output may not.
Tensor sibling_of(const Tensor& tensor, int64_t slots);

/// Stats [batch, heads, len, 1], padded.
Tensor padded_stats(const Tensor& q);
/// Ragged stats, tokens then heads, by q's offsets; padded when q is, or when q's offsets have no
/// whole multiplier for a token of `heads` elements, so that no further offsets are needed.
Tensor token_major_stats(const Tensor& q);

/// Token slots of a side: the capacity given, or batch * len of the tensor.
int64_t slots_of(const std::optional<int64_t>& max_total, const Tensor& tensor);

/// The capacity attribute that bounds the tensor of this role.
const std::optional<int64_t>& max_total_of(const SdpaAttributes& attributes, Role role);

}  // namespace attngraph
