#include "device/error.hpp"
#include "engine/cuda/launch.hpp"

namespace attngraph::cuda {

Status launch(const KernelInstance& kernel, const LaunchShape& shape, const Arguments& arguments,
              void* stream) {
  if (shape.blocks == 0) return {};
  constexpr int64_t kWithoutOptIn = 48 * 1024;  // CUDA C++ programming guide, compute capabilities
  constexpr int64_t kStatic = 8 * 1024;         // at most, of any kernel
  if (shape.shared_bytes + kStatic > kWithoutOptIn)
    ATTNGRAPH_RETURN_IF_ERROR(
        device::status_of("cudaFuncSetAttribute",
                          cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(shape.shared_bytes))));
  // cudaLaunchKernel reads them before it returns
  void* pointers[] = {const_cast<Params*>(&arguments.params), const_cast<HopperCopies*>(&arguments.copies)};
  return device::status_of(
      "cudaLaunchKernel",
      cudaLaunchKernel(kernel.function, dim3(static_cast<unsigned>(shape.blocks)),
                       dim3(static_cast<unsigned>(kernel.threads)), pointers,
                       static_cast<size_t>(shape.shared_bytes), static_cast<cudaStream_t>(stream)));
}

}  // namespace attngraph::cuda
