#pragma once

#include "attngraph/graph.hpp"

namespace attngraph {

/// Which gradients a training step wants.
struct Gradients {
  bool q = false, k = false, v = false, bias = false, sink = false, alibi_slopes = false;
};

/// A forward graph that emits stats and the backward graph of its gradients. Shared tensors keep
/// their uid, name and layout; `dout` and each gradient have the layout of their primal, so a
/// gradient of an interleaved view is a view of an interleaved buffer.
struct TrainingPair {
  Graph forward, backward;
};

/// Derives the pair from a graph of one sdpa_forward node. `stats` is added to the forward whenever
/// any gradient is wanted, the bias's alone included.
///
/// Errors: kInvalidGraph when the graph is not one forward node, wants no gradient, wants the
///         gradient of an input that it lacks, or has paged k or v.
ATTNGRAPH_API Result<TrainingPair> training_pair(const Graph& forward, const Gradients& wanted);

}  // namespace attngraph
