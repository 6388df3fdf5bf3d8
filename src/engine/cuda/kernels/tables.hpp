#pragma once

#include <span>

#include "engine/cuda/instances.hpp"

/// The parts of the instance table, one a translation unit.
namespace attngraph::cuda {

std::span<const KernelInstance> hopper_instances();
std::span<const KernelInstance> hopper_backward_instances();
std::span<const KernelInstance> hopper_wide_instances();
std::span<const KernelInstance> hopper_decode_instances();
std::span<const KernelInstance> tensor_forward_f16_instances();
std::span<const KernelInstance> tensor_forward_bf16_instances();
std::span<const KernelInstance> tensor_backward_f16_instances();
std::span<const KernelInstance> tensor_backward_bf16_instances();
std::span<const KernelInstance> float_instances();
std::span<const KernelInstance> general_instances();
std::span<const KernelInstance> row_instances();

}  // namespace attngraph::cuda
