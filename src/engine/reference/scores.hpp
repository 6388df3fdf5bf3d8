#pragma once

#include <cstdint>
#include <limits>

#include "engine/reference/rows.hpp"

namespace attngraph::reference {

inline constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// One element of the score matrix of a sequence; row and key count within it.
struct Place {
  int64_t head = 0, row = 0, key = 0;
};

struct Score {
  double value = kMinusInfinity;  ///< -inf: the key is not kept
  double slope = 1.0;             ///< derivative of value with respect to scale * (q . k)
};

/// The scores of one sequence.
///
/// Source: contract section 3, steps 1 to 5.
class Scores {
 public:
  Scores(const Problem& problem, const Buffers& buffers, int64_t batch);

  SequenceLengths lengths() const { return lengths_; }
  /// Step 5 without the rule for scores of -inf; nothing but the mask and the page tables is read.
  bool admits(Place at) const;
  /// Steps 1 to 4 for an admitted key.
  Score score(Place at, double dot) const;
  /// How far a key lies to the right of its row's diagonal.
  double distance(Place at) const { return static_cast<double>(at.key - at.row - diagonal_); }

 private:
  const Problem& problem_;
  SequenceLengths lengths_;
  int64_t diagonal_;  ///< key of row 0 on the diagonal of the band
  Rows k_, v_, bias_, mask_, slopes_;
};

}  // namespace attngraph::reference
