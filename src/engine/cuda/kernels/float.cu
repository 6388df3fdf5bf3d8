#include <array>

#include "engine/cuda/kernels/float_backward.cuh"
#include "engine/cuda/kernels/float_forward.cuh"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {
namespace {

template <int kDim, bool kExtras>
KernelInstance forward() {
  return {{Family::kFloatForward, DataType::kF32, kDim, kExtras},
          FloatTile::threads,
          reinterpret_cast<const void*>(&float_forward<kDim, kExtras>)};
}

template <int kDim>
KernelInstance backward() {
  return {{Family::kFloatBackward, DataType::kF32, kDim, false},
          FloatTile::threads,
          reinterpret_cast<const void*>(&float_backward<kDim>)};
}

}  // namespace

std::span<const KernelInstance> float_instances() {
  static const std::array rows = {forward<64, false>(), forward<64, true>(), forward<128, false>(),
                                  forward<128, true>(), backward<64>(),      backward<128>()};
  return rows;
}

}  // namespace attngraph::cuda
