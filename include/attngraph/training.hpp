#pragma once

#include "attngraph/graph.hpp"

namespace attngraph {

/// Which gradients a training step wants.
struct Gradients {
  bool q = false, k = false, v = false, bias = false, sink = false, alibi_slopes = false;
};

/// A forward graph that emits stats and the backward graph of its gradients. Shared tensors keep
/// their uid, name and layout; strides that were left out are spelled out. `do` has the layout of o
/// and each gradient that of its primal, so a gradient of an interleaved view is a view of an
/// interleaved buffer; where elements of the primal overlap, as in a broadcast bias, it is packed in
/// the primal's memory order. New tensors have uids that are free in both graphs and are called
/// "stats", "do", "dq", "dbias" and so on.
struct TrainingPair {
  Graph forward, backward;
};

/// Derives the pair from a graph of one sdpa_forward node. `stats` is added to the forward whenever
/// any gradient is wanted, the bias's alone included: padded for a dense q, tokens then heads by q's
/// own offsets for a ragged one. Offsets that do not count tokens may have no whole multiplier for
/// that; the stats of such a q are padded, too. Stats that the forward has are kept.
///
/// Errors: kInvalidGraph when the graph is not one forward node, wants no gradient, wants the
///         gradient of an input that it lacks, has paged k or v, or does not validate.
ATTNGRAPH_API Result<TrainingPair> training_pair(const Graph& forward, const Gradients& wanted);

}  // namespace attngraph
