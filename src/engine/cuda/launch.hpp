#pragma once

#include <cstdint>

#include "attngraph/status.hpp"
#include "engine/cuda/instances.hpp"
#include "engine/cuda/params.hpp"

namespace attngraph::cuda {

struct LaunchShape {
  int64_t blocks = 0, shared_bytes = 0;
  int32_t cluster = 1;  ///< neighbouring blocks that share their memory, a divisor of `blocks`
};

/// A kernel's arguments; it takes as many as its signature has.
struct Arguments {
  const Params& params;
  const HopperCopies& copies;
};

/// Starts `blocks` blocks of a kernel on `stream` (a cudaStream_t); nothing for 0 blocks.
///
/// Errors: kBackend with the call, the code and CUDA's text.
Status launch(const KernelInstance& kernel, const LaunchShape& shape, const Arguments& arguments,
              void* stream);

}  // namespace attngraph::cuda
