#pragma once

#include <vector>

#include "problem/problem.hpp"

namespace attngraph::test {

/// A problem whose lowering is pinned by the file of its name in test/golden/cudnn.
struct Lowered {
  const char* name;
  Problem problem;
};

/// One problem for each group of operations, all of them taken by the gates on an H200.
std::vector<Lowered> lowered_problems();

/// An H200 with the oldest cuDNN that the engine takes.
constexpr Target h200_with_cudnn() {
  Target target = Target::h200();
  target.cudnn_version = 91900;
  return target;
}

}  // namespace attngraph::test
