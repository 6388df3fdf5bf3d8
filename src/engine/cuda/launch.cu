#include "device/error.hpp"
#include "engine/cuda/launch.hpp"

namespace attngraph::cuda {

Status launch(const KernelInstance& kernel, int64_t blocks, int64_t shared_bytes, const Params& params,
              void* stream) {
  if (blocks == 0) return {};
  constexpr int64_t kWithoutOptIn = 48 * 1024;  // CUDA C++ programming guide, compute capabilities
  constexpr int64_t kStatic = 8 * 1024;         // at most, of any kernel
  if (shared_bytes + kStatic > kWithoutOptIn)
    ATTNGRAPH_RETURN_IF_ERROR(
        device::status_of("cudaFuncSetAttribute",
                          cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(shared_bytes))));
  void* arguments[] = {const_cast<Params*>(&params)};  // cudaLaunchKernel reads them before it returns
  return device::status_of(
      "cudaLaunchKernel",
      cudaLaunchKernel(kernel.function, dim3(static_cast<unsigned>(blocks)),
                       dim3(static_cast<unsigned>(kernel.threads)), arguments,
                       static_cast<size_t>(shared_bytes), static_cast<cudaStream_t>(stream)));
}

}  // namespace attngraph::cuda
