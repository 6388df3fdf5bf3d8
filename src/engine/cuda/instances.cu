#include <vector>

#include "engine/cuda/instances.hpp"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {

std::span<const KernelInstance> instances() {
  static const std::vector<KernelInstance> all = [] {
    std::vector<KernelInstance> rows;
    for (const auto part :
         {hopper_instances(), hopper_backward_instances(), hopper_wide_instances(), hopper_dbias_instances(),
          hopper_decode_instances(), tensor_forward_f16_instances(), tensor_forward_bf16_instances(),
          tensor_backward_f16_instances(), tensor_backward_bf16_instances(), float_instances(),
          general_instances(), row_instances()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return all;
}

const KernelInstance* find_instance(const InstanceKey& key) {
  for (const KernelInstance& row : instances())
    if (row.key == key) return &row;
  return nullptr;
}

}  // namespace attngraph::cuda
