#pragma once

#include <array>

#include "problem/layout.hpp"
#include "problem/problem.hpp"

namespace attngraph::cudnn {

/// True when the engine makes the bias that cuDNN reads, in its workspace, of the problem's bias, mask and
/// slopes: where there is a mask, where cuDNN would read other values of the bias, and where it would measure
/// the slopes' distance otherwise. Strides decide, so a slice has the answer of the whole problem.
bool makes_bias(const Problem& problem);

/// True when that bias has the slopes' term; else cuDNN adds it. Here, as the order of engines asks also
/// where this engine is not built.
inline bool puts_slopes_in_bias(const Problem& problem) {
  const Operand& slopes = problem[Role::kAlibiSlopes];
  return slopes.present && (problem.band.align == Align::kBottomRight || batch_stride(slopes) != 0);
}

/// The bias that the engine makes: no larger than what it is made of asks for. Its strides fit int64 where
/// its extents are within the engine's limits.
Operand own_bias(const Problem& problem);
std::array<int64_t, 4> own_bias_extent(const Problem& problem);

/// Strides of an array without gaps.
std::array<int64_t, 4> packed_strides(const std::array<int64_t, 4>& extent);

}  // namespace attngraph::cudnn
