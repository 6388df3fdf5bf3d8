#pragma once

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "attngraph/context.hpp"
#include "device/device.hpp"

namespace attngraph::test {

/// Prints "skipped: no CUDA device: ..." and is true when there is none.
inline bool skips_without_device() {
  const auto target = device::cuda_target();
  if (target.ok()) return false;
  std::cout << "skipped: " << target.status().message() << std::endl;
  return true;
}

/// Prints "skipped: ..." and is true when this build or this machine lacks the engine.
inline bool skips_without_engine(const Context& context, const std::string& engine) {
  const std::vector<std::string> built = context.engines();
  const bool is_built = std::find(built.begin(), built.end(), engine) != built.end();
  if (is_built && (engine != "cudnn" || context.target_of(engine).value().cudnn_version > 0)) return false;
  std::cout << "skipped: no engine " << engine << std::endl;
  return true;
}

}  // namespace attngraph::test
