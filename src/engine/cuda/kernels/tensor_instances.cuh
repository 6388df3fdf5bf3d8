#pragma once

#include <array>
#include <vector>

#include "engine/cuda/instances.hpp"

namespace attngraph::cuda {

template <class Kernel>
KernelInstance instance(const InstanceKey& key, int threads, Kernel* kernel) {
  return {key, threads, reinterpret_cast<const void*>(kernel)};
}

/// Calls `of(Instance{})` for every padded head dim of one element type, without and with extras.
template <class T, template <class, int, bool> class Instance, class Of>
void each_tensor_instance(Of&& of) {
  of(Instance<T, 64, false>{}), of(Instance<T, 64, true>{});
  of(Instance<T, 128, false>{}), of(Instance<T, 128, true>{});
  of(Instance<T, 256, false>{}), of(Instance<T, 256, true>{});
}

}  // namespace attngraph::cuda
