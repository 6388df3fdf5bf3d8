#pragma once

#include <iostream>

#include "device/device.hpp"

namespace attngraph::test {

/// Prints "skipped: no CUDA device: ..." and is true when there is none.
inline bool skips_without_device() {
  const auto target = device::cuda_target();
  if (target.ok()) return false;
  std::cout << "skipped: " << target.status().message() << std::endl;
  return true;
}

}  // namespace attngraph::test
