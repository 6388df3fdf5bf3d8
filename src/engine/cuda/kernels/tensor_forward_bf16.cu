#include "engine/cuda/kernels/tables.hpp"
#include "engine/cuda/kernels/tensor_forward_instances.cuh"

namespace attngraph::cuda {

std::span<const KernelInstance> tensor_forward_bf16_instances() {
  return tensor_forward_instances<__nv_bfloat16, DataType::kBf16>();
}

}  // namespace attngraph::cuda
