#include <array>

#include "engine/cuda/kernels/hopper_backward.cuh"
#include "engine/cuda/kernels/hopper_forward.cuh"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {
namespace {

template <class T, int kDim, int kRows = 128, Scores kScores = Scores::kPlain>
KernelInstance forward(DataType io) {
  return {{Family::kHopperForward, io, kDim, kScores != Scores::kPlain, kRows, kScores == Scores::kRead},
          hopper_forward_tile(kDim, kRows, kScores).threads(),
          reinterpret_cast<const void*>(&hopper_forward<T, kDim, kRows, kScores>)};
}

template <class T, int kDim, Scores kScores = Scores::kPlain>
KernelInstance backward(DataType io) {
  return {{Family::kHopperBackward, io, kDim, kScores != Scores::kPlain, 0, kScores == Scores::kRead},
          HopperGradientTile::threads,
          reinterpret_cast<const void*>(&hopper_backward<T, kDim, kScores>)};
}

}  // namespace

std::span<const KernelInstance> hopper_instances() {
  static const std::array rows = {forward<__half, 64>(DataType::kF16),
                                  forward<__half, 64, 192>(DataType::kF16),
                                  forward<__half, 128>(DataType::kF16),
                                  forward<__half, 192>(DataType::kF16),
                                  forward<__half, 256>(DataType::kF16),
                                  forward<__half, 64, 128, Scores::kBent>(DataType::kF16),
                                  forward<__half, 128, 128, Scores::kBent>(DataType::kF16),
                                  forward<__half, 192, 128, Scores::kBent>(DataType::kF16),
                                  forward<__half, 256, 128, Scores::kBent>(DataType::kF16),
                                  forward<__half, 64, 128, Scores::kRead>(DataType::kF16),
                                  forward<__half, 128, 128, Scores::kRead>(DataType::kF16),
                                  forward<__nv_bfloat16, 64>(DataType::kBf16),
                                  forward<__nv_bfloat16, 64, 192>(DataType::kBf16),
                                  forward<__nv_bfloat16, 128>(DataType::kBf16),
                                  forward<__nv_bfloat16, 192>(DataType::kBf16),
                                  forward<__nv_bfloat16, 256>(DataType::kBf16),
                                  forward<__nv_bfloat16, 64, 128, Scores::kBent>(DataType::kBf16),
                                  forward<__nv_bfloat16, 128, 128, Scores::kBent>(DataType::kBf16),
                                  forward<__nv_bfloat16, 192, 128, Scores::kBent>(DataType::kBf16),
                                  forward<__nv_bfloat16, 256, 128, Scores::kBent>(DataType::kBf16),
                                  forward<__nv_bfloat16, 64, 128, Scores::kRead>(DataType::kBf16),
                                  forward<__nv_bfloat16, 128, 128, Scores::kRead>(DataType::kBf16),
                                  backward<__half, 64>(DataType::kF16),
                                  backward<__half, 128>(DataType::kF16),
                                  backward<__half, 128, Scores::kBent>(DataType::kF16),
                                  backward<__half, 128, Scores::kRead>(DataType::kF16),
                                  backward<__nv_bfloat16, 64>(DataType::kBf16),
                                  backward<__nv_bfloat16, 128>(DataType::kBf16),
                                  backward<__nv_bfloat16, 128, Scores::kBent>(DataType::kBf16),
                                  backward<__nv_bfloat16, 128, Scores::kRead>(DataType::kBf16)};
  return rows;
}

}  // namespace attngraph::cuda
