#include "engine/cuda/kernels/hopper_dbias.cuh"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {
namespace {

template <class T, int kDim>
KernelInstance dbias(DataType io) {
  return {{Family::kHopperDbias, io, kDim, false},
          hopper_dbias_tile(kDim).scores.threads,
          reinterpret_cast<const void*>(&hopper_dbias<T, kDim>)};
}

/// The instances of one element type.
template <class T>
std::vector<KernelInstance> instances(T, DataType io) {
  return {dbias<T, 64>(io), dbias<T, 128>(io)};
}

}  // namespace

std::span<const KernelInstance> hopper_dbias_instances() {
  static const std::vector rows = of_both_halves([](auto type, DataType io) { return instances(type, io); });
  return rows;
}

}  // namespace attngraph::cuda
