// Stands in for the calls of CUDA and cuDNN that cudnn-frontend's SDPA samples make, so that they run on host
// memory: see cudnn_frontend_samples.sh. It says sm_90 and cuDNN 9.19, whose path the samples then take. CUDA
// graphs do nothing here.
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "attngraph/compat/frontend.hpp"

struct cudnnContext {};

namespace {

using attngraph::Result;
using attngraph::compat::Program;
using attngraph::compat::ProgramOptions;
using attngraph::compat::Translated;

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// What the linker's --wrap makes of Program::make: a graph that names no target is planned for the host.
Result<Program> wrapped(Translated translated, const ProgramOptions& given) __asm__(
    "__wrap__ZN9attngraph6compat7Program4makeENS0_10TranslatedERKNS0_14ProgramOptionsE");
Result<Program> original(Translated translated, const ProgramOptions& options) __asm__(
    "__real__ZN9attngraph6compat7Program4makeENS0_10TranslatedERKNS0_14ProgramOptionsE");

Result<Program> wrapped(Translated translated, const ProgramOptions& given) {
  ProgramOptions options = given;
  if (!options.target) options.target = options.context->host_target();
  return original(std::move(translated), options);
}

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  constexpr size_t kAlign = 256;
  *data = std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
  return *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* data) { return std::free(data), cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  properties->major = 9;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error of a stand-in"; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return *event = reinterpret_cast<cudaEvent_t>(new double(0)), cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  return *reinterpret_cast<double*>(event) = now_ms(), cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* elapsed_ms, cudaEvent_t begin, cudaEvent_t end) {
  *elapsed_ms = static_cast<float>(*reinterpret_cast<double*>(end) - *reinterpret_cast<double*>(begin));
  return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) { return *graph = nullptr, cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* launches, cudaGraph_t, unsigned long long) {
  return *launches = nullptr, cudaSuccess;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return *handle = new cudnnContext, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t, cudaStream_t* stream) {
  return *stream = nullptr, CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion() { return 91900; }
size_t cudnnGetCudartVersion() { return 13000; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error of a stand-in"; }

}  // extern "C"
