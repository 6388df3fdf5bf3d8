#include "engine/cuda/kernels/tables.hpp"
#include "engine/cuda/kernels/tensor_forward_instances.cuh"

namespace attngraph::cuda {

std::span<const KernelInstance> tensor_forward_f16_instances() {
  return tensor_forward_instances<__half, DataType::kF16>();
}

}  // namespace attngraph::cuda
