#include "device/check.hpp"
#include "device/device.hpp"
#include "device/error.hpp"

namespace attngraph::device {
namespace {

constexpr int kThreads = 256;

struct ReadInt {
  __host__ __device__ int64_t operator()(const std::byte* data, DataType dtype, int64_t index) const {
    if (dtype == DataType::kI32) return reinterpret_cast<const int32_t*>(data)[index];
    return reinterpret_cast<const int64_t*>(data)[index];
  }
};

/// One block looks at all entries of one check, unless an earlier check has found a wrong one.
__global__ void check_entries(const __grid_constant__ EntryCheck check, int32_t number, WrongEntry* found) {
  __shared__ unsigned long long first;
  constexpr unsigned long long kNone = ~0ull;
  const bool is_decided = found->fault != EntryFault::kNone;
  if (threadIdx.x == 0) first = kNone;
  __syncthreads();
  if (is_decided) return;
  WrongEntry own;
  unsigned long long own_entry = kNone;
  for (int64_t entry = threadIdx.x; entry < check.count && own_entry == kNone; entry += kThreads) {
    own = check_entry(check, entry, ReadInt{});
    if (own.fault != EntryFault::kNone) own_entry = static_cast<unsigned long long>(entry);
  }
  if (own_entry != kNone) atomicMin(&first, own_entry);
  __syncthreads();
  if (own_entry == kNone || own_entry != first) return;
  own.check = number;
  *found = own;
}

}  // namespace

Result<WrongEntry> first_wrong_entry(std::span<const EntryCheck> checks, std::byte* scratch, void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  auto* found = reinterpret_cast<WrongEntry*>(scratch);
  ATTNGRAPH_RETURN_IF_ERROR(
      check_not_captured(stream, "validate_bindings", "the check waits for its answer"));
  ATTNGRAPH_RETURN_IF_ERROR(
      status_of("cudaMemsetAsync", cudaMemsetAsync(found, 0, sizeof *found, cuda_stream)));
  for (size_t i = 0; i < checks.size(); ++i) {
    EntryCheck check = checks[i];
    auto number = static_cast<int32_t>(i);
    void* arguments[] = {&check, &number, &found};
    ATTNGRAPH_RETURN_IF_ERROR(
        status_of("cudaLaunchKernel", cudaLaunchKernel(reinterpret_cast<const void*>(&check_entries), dim3(1),
                                                       dim3(kThreads), arguments, 0, cuda_stream)));
  }
  WrongEntry answer;
  ATTNGRAPH_RETURN_IF_ERROR(
      status_of("cudaMemcpyAsync",
                cudaMemcpyAsync(&answer, found, sizeof answer, cudaMemcpyDeviceToHost, cuda_stream)));
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaStreamSynchronize", cudaStreamSynchronize(cuda_stream)));
  return answer;
}

}  // namespace attngraph::device
