#include "engine/cuda/kernels/hopper_forward.cuh"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {
namespace {

template <class T, int kDim, Scores kScores = Scores::kPlain>
KernelInstance forward(DataType io) {
  return {{Family::kHopperForward, io, kDim, kScores != Scores::kPlain, kScores == Scores::kRead},
          hopper_forward_tile(kDim, kScores).threads,
          reinterpret_cast<const void*>(&hopper_forward<T, kDim, kScores>)};
}

/// The instances of one element type.
template <class T>
std::vector<KernelInstance> instances(T, DataType io) {
  return {forward<T, 64>(io),
          forward<T, 128>(io),
          forward<T, 192>(io),
          forward<T, 256>(io),
          forward<T, 64, Scores::kBent>(io),
          forward<T, 128, Scores::kBent>(io),
          forward<T, 192, Scores::kBent>(io),
          forward<T, 256, Scores::kBent>(io),
          forward<T, 64, Scores::kRead>(io),
          forward<T, 128, Scores::kRead>(io)};
}

}  // namespace

std::span<const KernelInstance> hopper_instances() {
  static const std::vector rows = of_both_halves([](auto type, DataType io) { return instances(type, io); });
  return rows;
}

}  // namespace attngraph::cuda
