#pragma once

#include "engine/cuda/kernels/tensor_backward.cuh"
#include "engine/cuda/kernels/tensor_instances.cuh"

namespace attngraph::cuda {

/// Backward kernels on tensor cores of one element type.
template <class T, DataType kIo>
std::span<const KernelInstance> tensor_backward_instances() {
  static const auto table = [] {
    std::vector<KernelInstance> rows;
    each_tensor_instance<T, Instance>([&]<class I>(I) {
      const auto key = [](Family family) { return InstanceKey{family, kIo, I::kDim, I::kExtras}; };
      constexpr int kThreads = dkdv_tile(I::kDim).threads();
      rows.push_back(instance(key(Family::kTensorDq), dq_tile(I::kDim).threads(), &tensor_dq<I>));
      if constexpr (dkdv_in_one_launch(I::kDim)) {
        rows.push_back(instance(key(Family::kTensorDkdv), kThreads, &tensor_key_side<I, true, true>));
      } else {
        rows.push_back(instance(key(Family::kTensorDk), kThreads, &tensor_key_side<I, true, false>));
        rows.push_back(instance(key(Family::kTensorDv), kThreads, &tensor_key_side<I, false, true>));
      }
      if constexpr (!I::kExtras && I::kDim <= kMaxOnePassDim)
        rows.push_back(instance(key(Family::kTensorBackward), one_pass_tile(I::kDim).threads(),
                                &tensor_key_side<I, true, true, true>));
    });
    return rows;
  }();
  return table;
}

}  // namespace attngraph::cuda
