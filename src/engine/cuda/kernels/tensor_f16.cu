#include "engine/cuda/kernels/tensor_instances.cuh"

namespace attngraph::cuda {

std::span<const KernelInstance> tensor_f16_instances() { return tensor_instances<__half, DataType::kF16>(); }

}  // namespace attngraph::cuda
