#pragma once

#include "engine/cuda/tiles.hpp"

/// Tiles of the row kernels, apart from the others' so that their change compiles nothing else anew.
namespace attngraph::cuda {

/// Rows of 16-byte chunks for which a block computes delta, so many a lane that their loads are under way
/// together: on an H200 at its base clock 32 x 512 tokens of 16 heads take 46.5 us instead of 53.5.
inline constexpr int kDeltaRowsPerLane = 4;
inline constexpr int kDeltaTileRows = kDeltaRowsPerLane * kRowThreads / kWideLanes;

}  // namespace attngraph::cuda
