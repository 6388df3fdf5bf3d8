#include "engine/cuda/kernels/hopper_dkdv.cuh"
#include "engine/cuda/kernels/hopper_dq.cuh"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {
namespace {

template <class T, int kDim, bool kExtras = false>
KernelInstance dq(DataType io) {
  return {{Family::kHopperDq, io, kDim, kExtras},
          HopperDqTile::threads,
          reinterpret_cast<const void*>(&hopper_dq<T, kDim, kExtras>),
          true};
}

template <class T, int kDim, bool kExtras = false>
KernelInstance dkdv(DataType io) {
  return {{Family::kHopperDkdv, io, kDim, kExtras},
          HopperDkdvTile::threads,
          reinterpret_cast<const void*>(&hopper_dkdv<T, kDim, kExtras>)};
}

/// The instances of one element type.
template <class T>
std::vector<KernelInstance> instances(T, DataType io) {
  return {dq<T, 192>(io),   dq<T, 256>(io),   dq<T, 192, true>(io),   dq<T, 256, true>(io),
          dkdv<T, 192>(io), dkdv<T, 256>(io), dkdv<T, 192, true>(io), dkdv<T, 256, true>(io)};
}

}  // namespace

std::span<const KernelInstance> hopper_wide_instances() {
  static const std::vector rows = of_both_halves([](auto type, DataType io) { return instances(type, io); });
  return rows;
}

}  // namespace attngraph::cuda
