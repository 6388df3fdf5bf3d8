#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "plan/engine.hpp"

namespace attngraph {

/// Splits of a node in rising fineness: first the batch in 1, 2, 3 .. pieces, then, at one sequence
/// a slice, its kv heads. Pieces are as even as their number allows.
class SplitLadder {
 public:
  SplitLadder(int64_t batch, int64_t kv_heads) : batch_(batch), kv_heads_(kv_heads) {}

  /// Number of rungs; rung 0 is the whole node, the last one a sequence's single kv head.
  int64_t num_rungs() const;
  SliceShape shape(int64_t rung) const;

 private:
  int64_t batch_, kv_heads_;
};

/// First rung in [begin, end) that `fits`, which once true must stay true; `end` when there is none. Asks
/// O(log) times, close to `begin` first.
int64_t first_fitting(int64_t begin, int64_t end, const std::function<bool(int64_t)>& fits);

/// First row whose count exceeds its bound, or null.
const Limit* exceeded_limit(const Engine& engine, const Problem& problem, const SliceShape& shape);

}  // namespace attngraph
