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
  cudaLaunchAttribute attributes[2]{};
  unsigned num_attributes = 0;
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[num_attributes++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  if (kernel.awaits_previous) {
    cudaLaunchAttribute& overlap = attributes[num_attributes++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes, config.numAttrs = num_attributes;
  // the launch reads them before it returns
  void* pointers[] = {const_cast<Params*>(&arguments.params), const_cast<HopperCopies*>(&arguments.copies)};
  return device::status_of("cudaLaunchKernelExC", cudaLaunchKernelExC(&config, kernel.function, pointers));
}

}  // namespace attngraph::cuda
