#pragma once

#include <cuda_runtime_api.h>

#include "base/message.hpp"

namespace attngraph::device {

/// Success, or kBackend: "cudaMalloc: cudaErrorMemoryAllocation (2), out of memory; must succeed".
inline Status status_of(const char* call, cudaError_t code) {
  if (code == cudaSuccess) return {};
  return fail(Code::kBackend, call, ": ", cudaGetErrorName(code), " (", static_cast<int>(code), "), ",
              cudaGetErrorString(code), "; must succeed");
}

}  // namespace attngraph::device
