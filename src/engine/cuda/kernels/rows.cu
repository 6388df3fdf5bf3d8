#include <array>

#include "engine/cuda/kernels/rows.cuh"
#include "engine/cuda/kernels/tables.hpp"

namespace attngraph::cuda {
namespace {

KernelInstance instance(Family family, void (*kernel)(Params), DataType io = DataType::kF32) {
  return {{family, io, 0, false}, kRowThreads, reinterpret_cast<const void*>(kernel)};
}

}  // namespace

std::span<const KernelInstance> row_instances() {
  static const std::array table = {
      instance(Family::kDeltaRows, &delta_rows),
      instance(Family::kDeltaRows, &wide_delta_rows<__half>, DataType::kF16),
      instance(Family::kDeltaRows, &wide_delta_rows<__nv_bfloat16>, DataType::kBf16),
      instance(Family::kHeadSums, &head_sums),
      instance(Family::kStoreSums, &store_all_sums),
      instance(Family::kMergeSplits, &merge_splits),
      instance(Family::kStoreDq, &store_float_dq),
      instance(Family::kStoreDq, &store_dq<__half>, DataType::kF16),
      instance(Family::kStoreDq, &store_dq<__nv_bfloat16>, DataType::kBf16),
      instance(Family::kMergePartials, &merge_partials)};
  return table;
}

}  // namespace attngraph::cuda
