#pragma once

#include <cstdint>

#include "attngraph/status.hpp"
#include "engine/cuda/instances.hpp"
#include "engine/cuda/params.hpp"

namespace attngraph::cuda {

/// Starts `blocks` blocks of a kernel on `stream` (a cudaStream_t); nothing for 0 blocks.
///
/// Errors: kBackend with the call, the code and CUDA's text.
Status launch(const KernelInstance& kernel, int64_t blocks, int64_t shared_bytes, const Params& params,
              void* stream);

}  // namespace attngraph::cuda
