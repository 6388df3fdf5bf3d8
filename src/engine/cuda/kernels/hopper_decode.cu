#include <array>

#include "engine/cuda/kernels/hopper_decode.cuh"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {
namespace {

template <class T, int kDim>
KernelInstance decode(DataType io) {
  return {{Family::kHopperDecode, io, kDim, false},
          hopper_decode_tile(kDim).threads(),
          reinterpret_cast<const void*>(&hopper_decode<T, kDim>),
          true};
}

}  // namespace

std::span<const KernelInstance> hopper_decode_instances() {
  static const std::array rows = {decode<__half, 64>(DataType::kF16), decode<__half, 128>(DataType::kF16),
                                  decode<__nv_bfloat16, 64>(DataType::kBf16),
                                  decode<__nv_bfloat16, 128>(DataType::kBf16)};
  return rows;
}

}  // namespace attngraph::cuda
