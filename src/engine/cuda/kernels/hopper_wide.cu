#include <array>

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

}  // namespace

std::span<const KernelInstance> hopper_wide_instances() {
  static const std::array rows = {dq<__half, 192>(DataType::kF16),
                                  dq<__half, 256>(DataType::kF16),
                                  dq<__half, 192, true>(DataType::kF16),
                                  dq<__half, 256, true>(DataType::kF16),
                                  dq<__nv_bfloat16, 192>(DataType::kBf16),
                                  dq<__nv_bfloat16, 256>(DataType::kBf16),
                                  dq<__nv_bfloat16, 192, true>(DataType::kBf16),
                                  dq<__nv_bfloat16, 256, true>(DataType::kBf16),
                                  dkdv<__half, 192>(DataType::kF16),
                                  dkdv<__half, 256>(DataType::kF16),
                                  dkdv<__half, 192, true>(DataType::kF16),
                                  dkdv<__half, 256, true>(DataType::kF16),
                                  dkdv<__nv_bfloat16, 192>(DataType::kBf16),
                                  dkdv<__nv_bfloat16, 256>(DataType::kBf16),
                                  dkdv<__nv_bfloat16, 192, true>(DataType::kBf16),
                                  dkdv<__nv_bfloat16, 256, true>(DataType::kBf16)};
  return rows;
}

}  // namespace attngraph::cuda
