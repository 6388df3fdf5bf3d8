#pragma once

#include <cstdint>
#include <string>

#include "attngraph/status.hpp"
#include "engine/cuda/params.hpp"
#include "problem/problem.hpp"

namespace attngraph::cuda {

/// The first reason why the copy engine cannot address q, k, v or do in boxes; empty: it can.
std::string why_no_map(const Problem& problem, Role role);

/// The driver's encoder of tensor maps, found when a plan is made: nothing links libcuda.
class MapEncoder {
 public:
  /// Without a driver every encode() fails.
  static MapEncoder find();

  /// The map of q, k or v in boxes of 64 columns by `box_rows` rows, at (column, row, head, batch). A ragged
  /// tensor has all its slots as rows of one batch, a paged container its pages as batches.
  ///
  /// Errors: kBackend with the driver's code.
  Status encode(const TensorView& tensor, int32_t box_rows, TensorMap& map) const;

 private:
  void* function_ = nullptr;
};

}  // namespace attngraph::cuda
