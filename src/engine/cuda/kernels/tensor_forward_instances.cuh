#pragma once

#include "engine/cuda/kernels/tensor_forward.cuh"
#include "engine/cuda/kernels/tensor_instances.cuh"

namespace attngraph::cuda {

/// Forward kernels on tensor cores of one element type.
template <class T, DataType kIo>
std::span<const KernelInstance> tensor_forward_instances() {
  static const auto table = [] {
    std::vector<KernelInstance> rows;
    each_tensor_instance<T, Instance>([&]<class I>(I) {
      const auto key = [](Family family) { return InstanceKey{family, kIo, I::kDim, I::kExtras}; };
      rows.push_back(
          instance(key(Family::kTensorForward), forward_tile(I::kDim).threads(), &tensor_forward<I>));
      if constexpr (I::kExtras)
        rows.push_back(
            instance(key(Family::kTensorDecode), decode_tile(I::kDim).threads(), &tensor_decode<I>));
    });
    return rows;
  }();
  return table;
}

}  // namespace attngraph::cuda
