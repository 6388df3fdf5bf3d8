#pragma once

#include <array>

#include "engine/cuda/kernels/tables.hpp"
#include "engine/cuda/kernels/tensor_backward.cuh"
#include "engine/cuda/kernels/tensor_forward.cuh"

namespace attngraph::cuda {

template <class Kernel>
KernelInstance instance(const InstanceKey& key, int threads, Kernel* kernel) {
  return {key, threads, reinterpret_cast<const void*>(kernel)};
}

/// All tensor-core kernels of one element type.
template <class T, DataType kIo>
std::span<const KernelInstance> tensor_instances() {
  const auto of = []<class I>(I, auto&& add) {
    const auto key = [](Family family) { return InstanceKey{family, kIo, I::kDim, I::kExtras}; };
    add(instance(key(Family::kTensorForward), forward_tile(I::kDim).threads(), &tensor_forward<I>));
    if constexpr (I::kExtras)
      add(instance(key(Family::kTensorDecode), decode_tile(I::kDim).threads(), &tensor_decode<I>));
    add(instance(key(Family::kTensorDq), dq_tile(I::kDim).threads(), &tensor_dq<I>));
    constexpr int kThreads = dkdv_tile(I::kDim).threads();
    if constexpr (dkdv_in_one_launch(I::kDim)) {
      add(instance(key(Family::kTensorDkdv), kThreads, &tensor_dkdv<I, true, true>));
    } else {
      add(instance(key(Family::kTensorDk), kThreads, &tensor_dkdv<I, true, false>));
      add(instance(key(Family::kTensorDv), kThreads, &tensor_dkdv<I, false, true>));
    }
  };
  static const auto table = [&] {
    std::array<KernelInstance, 23> rows;
    size_t count = 0;
    const auto add = [&](const KernelInstance& row) { rows.at(count++) = row; };
    of(Instance<T, 64, false>{}, add), of(Instance<T, 64, true>{}, add);
    of(Instance<T, 128, false>{}, add), of(Instance<T, 128, true>{}, add);
    of(Instance<T, 256, false>{}, add), of(Instance<T, 256, true>{}, add);
    return rows;
  }();
  return table;
}

}  // namespace attngraph::cuda
