#pragma once

#include <array>
#include <cstdint>

#include "engine/reference/scores.hpp"
#include "engine/reference/scratch.hpp"

namespace attngraph::reference {

/// A gradient of a primal that is broadcast over the scores (dbias, dsink, dalibi_slopes): the sum of its
/// terms over the broadcast axes, in double.
///
/// One tile [len, dim] is one head of one sequence. A gradient with neither axis broadcast is complete
/// with its tile, so one tile of accumulators serves them all. Otherwise every tile of the gradient has
/// accumulators until the last slice, and one that is summed over the batch keeps its heads apart
/// until then: slices come with the sequences of a head in order, and with the heads of a sequence in
/// order, so each accumulator sees its terms in the same order whatever the split.
class SummedGradient {
 public:
  /// Extents of the accumulators: batch, heads, len, dim.
  static std::array<int64_t, 4> accumulators(const Problem& problem, Role role);

  SummedGradient(const Launch& launch, Role role, RegionId region);

  /// Before the first head of a slice.
  void begin_slice();
  void begin_head(int64_t batch, int64_t head);
  void add(Place at, double term);
  void end_head(int64_t batch, int64_t head);
  /// After the last head of a slice.
  void end_slice();

 private:
  double* tile(int64_t batch, int64_t head) const;
  void write_tile(int64_t batch, int64_t head);

  const Launch& launch_;
  Role role_;
  bool wanted_, complete_with_head_;
  std::array<int64_t, 4> extent_;
  double* sums_;
  double* tile_ = nullptr;  ///< of the present head
};

}  // namespace attngraph::reference
