#include <array>

#include "engine/cuda/kernels/general.cuh"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {
namespace {

template <int kTile>
KernelInstance instance(Family family, void (*kernel)(Params)) {
  return {
      {family, DataType::kF32, kTile, true}, General<kTile>::kThreads, reinterpret_cast<const void*>(kernel)};
}

}  // namespace

std::span<const KernelInstance> general_instances() {
  static const std::array table = {instance<16>(Family::kGeneralForward, &general_forward<16>),
                                   instance<32>(Family::kGeneralForward, &general_forward<32>),
                                   instance<16>(Family::kGeneralDq, &general_dq<16>),
                                   instance<32>(Family::kGeneralDq, &general_dq<32>),
                                   instance<16>(Family::kGeneralDkdv, &general_dkdv<16>),
                                   instance<32>(Family::kGeneralDkdv, &general_dkdv<32>),
                                   instance<16>(Family::kGeneralDbias, &general_dbias<16>),
                                   instance<32>(Family::kGeneralDbias, &general_dbias<32>)};
  return table;
}

}  // namespace attngraph::cuda
