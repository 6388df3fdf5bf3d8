#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <span>
#include <vector>

#include "engine/cuda/instances.hpp"

/// The parts of the instance table, one a translation unit.
namespace attngraph::cuda {

/// What `of_type(value, io)` lists for a value of f16 and for one of bf16.
template <class OfType>
std::vector<KernelInstance> of_both_halves(OfType&& of_type) {
  std::vector<KernelInstance> all = of_type(__half{}, DataType::kF16);
  const std::vector<KernelInstance> others = of_type(__nv_bfloat16{}, DataType::kBf16);
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::span<const KernelInstance> hopper_instances();
std::span<const KernelInstance> hopper_backward_instances();
std::span<const KernelInstance> hopper_wide_instances();
std::span<const KernelInstance> hopper_dbias_instances();
std::span<const KernelInstance> hopper_decode_instances();
std::span<const KernelInstance> tensor_forward_f16_instances();
std::span<const KernelInstance> tensor_forward_bf16_instances();
std::span<const KernelInstance> tensor_backward_f16_instances();
std::span<const KernelInstance> tensor_backward_bf16_instances();
std::span<const KernelInstance> float_instances();
std::span<const KernelInstance> general_instances();
std::span<const KernelInstance> row_instances();

}  // namespace attngraph::cuda
