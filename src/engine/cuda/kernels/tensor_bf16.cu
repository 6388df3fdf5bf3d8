#include "engine/cuda/kernels/tensor_instances.cuh"

namespace attngraph::cuda {

std::span<const KernelInstance> tensor_bf16_instances() {
  return tensor_instances<__nv_bfloat16, DataType::kBf16>();
}

}  // namespace attngraph::cuda
