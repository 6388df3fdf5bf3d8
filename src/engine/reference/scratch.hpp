#pragma once

#include "plan/engine.hpp"

namespace attngraph::reference {

/// The regions of a plan, all of them doubles. Sized by the problem's extents, never by strides.
struct Regions {
  RegionId k, v;                         ///< [kv_len, dim]: one kv head of one sequence
  RegionId q, o, dout;                   ///< one row
  RegionId scores;                       ///< one row, forward
  RegionId dq;                           ///< one row
  RegionId dk, dv;                       ///< [kv_len, dim]: sums over the rows and the heads of the group
  RegionId dbias, dsink, dalibi_slopes;  ///< see summed_gradient.hpp
};

/// Books the scratch memory of the problem's pass.
///
/// Errors: kInvalidGraph when a region leaves int64.
Result<Regions> book_regions(const Problem& problem, WorkspaceLayout& workspace);

/// What one launch reads and writes.
struct Launch {
  const Problem& problem;
  const Buffers& buffers;
  const Slice& slice;
  const Regions& regions;
  const PlacedWorkspace& workspace;

  double* doubles(RegionId id) const { return reinterpret_cast<double*>(workspace[id]); }
};

}  // namespace attngraph::reference
