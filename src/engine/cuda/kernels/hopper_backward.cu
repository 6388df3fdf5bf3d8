#include "engine/cuda/kernels/hopper_backward.cuh"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {
namespace {

template <class T, int kDim, Scores kScores = Scores::kPlain>
KernelInstance backward(DataType io) {
  return {{Family::kHopperBackward, io, kDim, kScores != Scores::kPlain, kScores == Scores::kRead},
          HopperGradientTile::threads,
          reinterpret_cast<const void*>(&hopper_backward<T, kDim, kScores>)};
}

/// The instances of one element type.
template <class T>
std::vector<KernelInstance> instances(T, DataType io) {
  return {backward<T, 64>(io),  backward<T, 64, Scores::kBent>(io),  backward<T, 64, Scores::kRead>(io),
          backward<T, 128>(io), backward<T, 128, Scores::kBent>(io), backward<T, 128, Scores::kRead>(io)};
}

}  // namespace

std::span<const KernelInstance> hopper_backward_instances() {
  static const std::vector rows = of_both_halves([](auto type, DataType io) { return instances(type, io); });
  return rows;
}

}  // namespace attngraph::cuda
