#include "device/error.hpp"
#include "device/fill.hpp"
#include "plan/workspace.hpp"

namespace attngraph::device {
namespace {

constexpr int kThreads = 256;

__device__ int64_t first_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t num_threads() { return int64_t{gridDim.x} * blockDim.x; }

__global__ void write_minus_inf(float* begin, int64_t count) {
  for (int64_t i = first_index(); i < count; i += num_threads()) begin[i] = -__builtin_huge_valf();
}

__global__ void write_guards(std::byte* workspace, int64_t begin, int64_t end) {
  for (int64_t at = begin + first_index(); at < end; at += num_threads()) workspace[at] = guard_byte(at);
}

/// Arguments of one kernel, well below the 4 KiB that any device takes.
struct Floats {
  static constexpr int64_t kMost = 256;
  float values[kMost];
};

__global__ void write_values(float* begin, int64_t count, const __grid_constant__ Floats floats) {
  for (int64_t i = first_index(); i < count; i += num_threads()) begin[i] = floats.values[i];
}

/// A thread an element, up to some waves of any device.
template <class... Arguments>
Status launch(void (*kernel)(Arguments...), int64_t count, void* stream, Arguments... arguments) {
  constexpr int64_t kMaxBlocks = 1024;
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  void* pointers[] = {&arguments...};
  return status_of("cudaLaunchKernel",
                   cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                                    dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks)),
                                    dim3(kThreads), pointers, 0, static_cast<cudaStream_t>(stream)));
}

}  // namespace

Status fill_minus_inf(float* begin, int64_t count, void* stream) {
  return launch(&write_minus_inf, count, stream, begin, count);
}

Status write_floats(float* to, std::span<const float> values, void* stream) {
  while (!values.empty()) {
    Floats floats;
    const int64_t count = values.size() < Floats::kMost ? int64_t(values.size()) : Floats::kMost;
    for (int64_t i = 0; i < count; ++i) floats.values[i] = values[size_t(i)];
    if (Status failed = launch(&write_values, count, stream, to, count, floats); !failed.ok()) return failed;
    to += count, values = values.subspan(size_t(count));
  }
  return {};
}

Status write_guard_bytes(std::byte* workspace, int64_t begin, int64_t end, void* stream) {
  return launch(&write_guards, end - begin, stream, workspace, begin, end);
}

}  // namespace attngraph::device
