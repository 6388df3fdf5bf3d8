#include <array>

#include "engine/cuda/kernels/hopper_backward.cuh"
#include "engine/cuda/kernels/hopper_forward.cuh"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {
namespace {

template <class T, int kDim, int kRows = 128, bool kExtras = false>
KernelInstance forward(DataType io) {
  return {{Family::kHopperForward, io, kDim, kExtras, kRows},
          hopper_forward_tile(kDim, kRows).threads(),
          reinterpret_cast<const void*>(&hopper_forward<T, kDim, kRows, kExtras>)};
}

template <class T, int kDim, bool kExtras = false>
KernelInstance backward(DataType io) {
  return {{Family::kHopperBackward, io, kDim, kExtras},
          HopperGradientTile::threads,
          reinterpret_cast<const void*>(&hopper_backward<T, kDim, kExtras>)};
}

}  // namespace

std::span<const KernelInstance> hopper_instances() {
  static const std::array rows = {forward<__half, 64>(DataType::kF16),
                                  forward<__half, 64, 192>(DataType::kF16),
                                  forward<__half, 128>(DataType::kF16),
                                  forward<__half, 192>(DataType::kF16),
                                  forward<__half, 256>(DataType::kF16),
                                  forward<__half, 64, 128, true>(DataType::kF16),
                                  forward<__half, 128, 128, true>(DataType::kF16),
                                  forward<__half, 192, 128, true>(DataType::kF16),
                                  forward<__half, 256, 128, true>(DataType::kF16),
                                  forward<__nv_bfloat16, 64>(DataType::kBf16),
                                  forward<__nv_bfloat16, 64, 192>(DataType::kBf16),
                                  forward<__nv_bfloat16, 128>(DataType::kBf16),
                                  forward<__nv_bfloat16, 192>(DataType::kBf16),
                                  forward<__nv_bfloat16, 256>(DataType::kBf16),
                                  forward<__nv_bfloat16, 64, 128, true>(DataType::kBf16),
                                  forward<__nv_bfloat16, 128, 128, true>(DataType::kBf16),
                                  forward<__nv_bfloat16, 192, 128, true>(DataType::kBf16),
                                  forward<__nv_bfloat16, 256, 128, true>(DataType::kBf16),
                                  backward<__half, 64>(DataType::kF16),
                                  backward<__half, 128>(DataType::kF16),
                                  backward<__half, 128, true>(DataType::kF16),
                                  backward<__nv_bfloat16, 64>(DataType::kBf16),
                                  backward<__nv_bfloat16, 128>(DataType::kBf16),
                                  backward<__nv_bfloat16, 128, true>(DataType::kBf16)};
  return rows;
}

}  // namespace attngraph::cuda
