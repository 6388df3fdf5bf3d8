#include "engine/cuda/tensor_map.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>

#include "base/message.hpp"
#include "problem/layout.hpp"

namespace attngraph::cuda {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) % alignof(CUtensorMap) == 0);

constexpr uint32_t kBoxColumns = 64;  // 128 bytes, the span of the swizzle
// A row of a box. Told to fetch 256 bytes, L2 reads the next box's half, too, and decode's rate falls by 8 %.
constexpr CUtensorMapL2promotion kFetch = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
constexpr uint64_t kAnyStrideBytes = 16;  // of an axis with one index: never used, but checked by the driver
constexpr unsigned kSinceVersion = 12'000;  // CUDA 12.0: cuTensorMapEncodeTiled

CUtensorMapDataType type_of(DataType dtype) {
  return dtype == DataType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

}  // namespace

std::string why_no_map(const Problem& problem, Role role) {
  const Operand& t = problem[role];
  constexpr int64_t kMostStride = int64_t{1} << 39;  // of two bytes: cuTensorMapEncodeTiled takes below 2^40
  const std::pair<int64_t, int64_t> axes[] = {
      {t.ragged ? 1 : batch(t), batch_stride(t)}, {heads(t), head_stride(t)}, {len(t), len_stride(t)}};
  for (const auto& [extent, stride] : axes)
    if (extent > 1 && (stride == 0 || stride >= kMostStride)) return text(role, " has a stride of ", stride);
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();  // a copy's coordinates are 32 bits
  const int64_t slots = side_of(role) == Side::kQ ? problem.q_slots : problem.kv_slots;
  if (t.ragged && slots > kMostRows) return text(role, " has ", slots, " slots");
  if (t.ragged && (len_stride(t) == 0 || t.multiplier % len_stride(t) != 0))
    return text(role, " has offsets in ", t.multiplier, " elements, rows of ", len_stride(t));
  return {};
}

MapEncoder MapEncoder::find() {
  MapEncoder encoder;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  void* function = nullptr;
  const cudaError_t code = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                            kSinceVersion, cudaEnableDefault, &found);
  if (code == cudaSuccess && found == cudaDriverEntryPointSuccess) encoder.function_ = function;
  return encoder;
}

Status MapEncoder::encode(const TensorView& tensor, int32_t box_rows, TensorMap& map) const {
  if (function_ == nullptr) return fail(Code::kBackend, "cuTensorMapEncodeTiled: not found in the driver");
  // Without slots or pages there are no rows: nothing is copied, but the driver wants an extent.
  const auto at_least_1 = [](int64_t n) { return static_cast<cuuint64_t>(std::max<int64_t>(n, 1)); };
  const int64_t batches = tensor.pages > 0 ? tensor.pages : tensor.extent[0];
  const cuuint64_t extents[] = {at_least_1(tensor.extent[3]),
                                at_least_1(tensor.ragged ? tensor.slots : tensor.extent[2]),
                                at_least_1(tensor.extent[1]), at_least_1(tensor.ragged ? 1 : batches)};
  cuuint64_t stride_bytes[3];
  for (size_t i = 0; i < 3; ++i)
    stride_bytes[i] =
        extents[i + 1] == 1 ? kAnyStrideBytes : static_cast<cuuint64_t>(2 * tensor.stride[2 - i]);
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows), 1, 1}, steps[] = {1, 1, 1, 1};
  const auto function = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function_);
  const CUresult code = function(reinterpret_cast<CUtensorMap*>(&map), type_of(tensor.dtype), 4, tensor.data,
                                 extents, stride_bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B, kFetch, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code == CUDA_SUCCESS) return {};
  return fail(Code::kBackend, "cuTensorMapEncodeTiled: code ", static_cast<int>(code));
}

}  // namespace attngraph::cuda
