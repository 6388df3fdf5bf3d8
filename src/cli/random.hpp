#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attngraph::cli {

/// Random words that depend on (seed, stream) alone: the same on every machine and standard
/// library, unlike the distributions of <random>.
///
/// Source: Philox4x32-10 with counter (block, 0, stream), key seed.
class Words {
 public:
  Words(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  uint32_t next();
  /// Uniform in 0 .. bound-1; bound is at least 1. Biased by less than bound / 2^64.
  int64_t below(int64_t bound);
  /// Uniform in first .. last.
  int64_t between(int64_t first, int64_t last) { return first + below(last - first + 1); }
  /// True once in `n` draws on average.
  bool one_in(int64_t n) { return below(n) == 0; }

 private:
  uint64_t seed_, stream_;
  uint32_t block_ = 0;
  std::array<uint32_t, 4> words_ = {};
  size_t used_ = 4;
};

/// 0 .. count-1 in random order.
std::vector<int64_t> shuffled(int64_t count, Words& words);

/// Number `index` of the sequence of standard normal numbers that `seed` names.
///
/// Every value is an odd multiple of 2^-21, so that it is rounded once, to the tensor's type; it is
/// computed by comparisons and exactly rounded operations alone.
/// Source: C. F. F. Karney, "Sampling exactly from the normal distribution", ACM TOMS 42 (2016),
///         algorithm N.
double normal(uint64_t seed, uint64_t index);

}  // namespace attngraph::cli
