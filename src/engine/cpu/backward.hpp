#pragma once

#include "engine/cpu/gradient_tile.hpp"

namespace attngraph::cpu {

/// The elements of dbias that one item sums, and what it sums over.
struct Cell {
  KeyRange batches, heads;  ///< of the problem
  KeyRange rows, keys;
  int64_t row_elems, key_elems;  ///< of dbias: 1 on an axis that is summed
};

/// dbias: every element of it belongs to one item, which walks the sequences, heads, rows and keys that
/// the bias was broadcast over, always in the same order.
class BiasGradient {
 public:
  /// Books a float32 sum for each element only when slices of the batch or the heads add up.
  void book(const GradientContext& context, const SliceShape& shape, Booker& book);
  void run(const BackwardCall& call) const;

 private:
  void run_cell(const BackwardCall& call, const Cell& cell, int64_t worker) const;
  void write_sums(const BackwardCall& call) const;

  PerWorker cell_;
  Shared sums_;
  bool keeps_sums_ = false;
};

/// dsink: one item per head.
class SinkGradient {
 public:
  void book(const GradientContext& context, Booker& book);
  void run(const BackwardCall& call) const;

 private:
  Shared sums_;  ///< double by head
};

}  // namespace attngraph::cpu
