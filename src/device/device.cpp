#include "device/device.hpp"

#include <utility>

#include "device/error.hpp"
#include "device/fill.hpp"

namespace attngraph::device {

Result<Target> cuda_target() {
  const auto none = [](const char* why) {
    return fail(Code::kUnsupported, "no CUDA device: ", why,
                "; needs a driver and a device of sm_80 or newer");
  };
  int device = 0, sms = 0, major = 0, minor = 0, shared = 0, l2 = 0;
  if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess)
    return none(cudaGetErrorString(code));
  const std::pair<cudaDeviceAttr, int*> wanted[] = {{cudaDevAttrMultiProcessorCount, &sms},
                                                    {cudaDevAttrComputeCapabilityMajor, &major},
                                                    {cudaDevAttrComputeCapabilityMinor, &minor},
                                                    {cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared},
                                                    {cudaDevAttrL2CacheSize, &l2}};
  for (const auto& [attribute, value] : wanted)
    if (const cudaError_t code = cudaDeviceGetAttribute(value, attribute, device); code != cudaSuccess)
      return none(cudaGetErrorString(code));
  return Target::cuda(10 * major + minor, sms, shared, l2);
}

Result<std::string> description() {
  int device = 0, driver = 0, runtime = 0;
  cudaDeviceProp properties = {};
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaGetDevice", cudaGetDevice(&device)));
  ATTNGRAPH_RETURN_IF_ERROR(
      status_of("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device)));
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaDriverGetVersion", cudaDriverGetVersion(&driver)));
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaRuntimeGetVersion", cudaRuntimeGetVersion(&runtime)));
  const auto version = [](int number) { return text(number / 1000, '.', number % 1000 / 10); };
  return text(properties.name, ", CUDA driver ", version(driver), ", runtime ", version(runtime));
}

Result<int> current() {
  int device = 0;
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaGetDevice", cudaGetDevice(&device)));
  return device;
}

Result<int> sm_version() {
  int major = 0, minor = 0;
  const Result<int> device = current();
  ATTNGRAPH_RETURN_IF_ERROR(device.status());
  for (const auto& [attribute, value] :
       {std::pair{cudaDevAttrComputeCapabilityMajor, &major}, {cudaDevAttrComputeCapabilityMinor, &minor}})
    ATTNGRAPH_RETURN_IF_ERROR(
        status_of("cudaDeviceGetAttribute", cudaDeviceGetAttribute(value, attribute, *device)));
  return 10 * major + minor;
}

Status fill(std::byte* begin, int64_t bytes, Fill what, void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  if (what == Fill::kNone || bytes == 0) return {};
  if (what == Fill::kZero)
    return status_of("cudaMemsetAsync", cudaMemsetAsync(begin, 0, static_cast<size_t>(bytes), cuda_stream));
  return fill_minus_inf(reinterpret_cast<float*>(begin), bytes / int64_t{sizeof(float)}, stream);
}

Status write_guard(std::byte* workspace, int64_t begin, int64_t end, void* stream) {
  return begin < end ? write_guard_bytes(workspace, begin, end, stream) : Status();
}

Status copy(std::byte* to, const std::byte* from, int64_t bytes, void* stream) {
  return status_of("cudaMemcpyAsync",
                   cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                   static_cast<cudaStream_t>(stream)));
}

Status write(float* to, std::span<const float> values, void* stream) {
  return write_floats(to, values, stream);
}

namespace {

/// Destroyed at the end of a scope.
struct CaptureStream {
  cudaStream_t stream = nullptr;
  ~CaptureStream() {
    if (stream != nullptr) static_cast<void>(cudaStreamDestroy(stream));
  }
};

/// The launches as a graph; the capture ends also when the launch fails.
Result<cudaGraph_t> capture(const std::function<Status(void*)>& launch) {
  CaptureStream capturing;
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaStreamCreateWithFlags",
                                      cudaStreamCreateWithFlags(&capturing.stream, cudaStreamNonBlocking)));
  ATTNGRAPH_RETURN_IF_ERROR(status_of(
      "cudaStreamBeginCapture", cudaStreamBeginCapture(capturing.stream, cudaStreamCaptureModeThreadLocal)));
  const Status launched = launch(capturing.stream);
  cudaGraph_t graph = nullptr;
  const Status ended = status_of("cudaStreamEndCapture", cudaStreamEndCapture(capturing.stream, &graph));
  if (launched.ok() && ended.ok()) return graph;
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  return launched.ok() ? ended : launched;
}

/// The one child graph of `graph`.
Result<cudaGraphNode_t> only_child(cudaGraph_t graph, size_t num_nodes) {
  cudaGraphNode_t child = nullptr;
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  size_t count = 1;
  if (num_nodes == 1) {
    ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaGraphGetNodes", cudaGraphGetNodes(graph, &child, &count)));
    ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaGraphNodeGetType", cudaGraphNodeGetType(child, &type)));
  }
  if (num_nodes != 1 || type != cudaGraphNodeTypeGraph)
    return fail(Code::kBadBinding, "cuda graph: has ", num_nodes,
                " nodes; must have the one child graph that was recorded before");
  return child;
}

}  // namespace

Status record(void* into, bool replaces, const std::function<Status(void* stream)>& launch) {
  const auto graph = static_cast<cudaGraph_t>(into);
  size_t num_nodes = 0;
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaGraphGetNodes", cudaGraphGetNodes(graph, nullptr, &num_nodes)));
  cudaGraphNode_t old = nullptr, made = nullptr;
  if (replaces) {
    const Result<cudaGraphNode_t> child = only_child(graph, num_nodes);
    ATTNGRAPH_RETURN_IF_ERROR(child.status());
    old = *child;
  } else if (num_nodes != 0) {
    return fail(Code::kBadBinding, "cuda graph: has ", num_nodes, " nodes; must be empty");
  }
  const Result<cudaGraph_t> recorded = capture(launch);
  ATTNGRAPH_RETURN_IF_ERROR(recorded.status());
  Status done = status_of("cudaGraphAddChildGraphNode",
                          cudaGraphAddChildGraphNode(&made, graph, nullptr, 0, *recorded));
  static_cast<void>(cudaGraphDestroy(*recorded));  // the node has a copy
  if (done.ok() && old != nullptr) done = status_of("cudaGraphDestroyNode", cudaGraphDestroyNode(old));
  return done;
}

Result<Replay> Replay::record(const std::function<Status(void* stream)>& launch) {
  const Result<cudaGraph_t> recorded = capture(launch);
  ATTNGRAPH_RETURN_IF_ERROR(recorded.status());
  cudaGraphExec_t launches = nullptr;
  const Status made = status_of("cudaGraphInstantiate", cudaGraphInstantiate(&launches, *recorded, 0));
  static_cast<void>(cudaGraphDestroy(*recorded));
  ATTNGRAPH_RETURN_IF_ERROR(made);
  Replay replay;
  replay.launches_ = launches;
  return replay;
}

Replay::Replay(Replay&& other) noexcept : launches_(std::exchange(other.launches_, nullptr)) {}
Replay& Replay::operator=(Replay&& other) noexcept {
  std::swap(launches_, other.launches_);
  return *this;
}
Replay::~Replay() {
  // What is under way ends first: CUDA frees it then.
  if (launches_ != nullptr) static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(launches_)));
}

Status Replay::launch(void* stream) const {
  return status_of("cudaGraphLaunch", cudaGraphLaunch(static_cast<cudaGraphExec_t>(launches_),
                                                      static_cast<cudaStream_t>(stream)));
}

Status synchronize() { return status_of("cudaDeviceSynchronize", cudaDeviceSynchronize()); }

Status read(const std::byte* from, std::span<std::byte> to) {
  ATTNGRAPH_RETURN_IF_ERROR(synchronize());
  if (to.empty()) return {};
  return status_of("cudaMemcpy", cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDeviceToHost));
}

Result<double> elapsed_seconds(const std::function<Status()>& launch, void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  struct Event {
    cudaEvent_t event = nullptr;
    ~Event() { static_cast<void>(cudaEventDestroy(event)); }
  } begin, end;
  for (Event* e : {&begin, &end})
    ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaEventCreate", cudaEventCreate(&e->event)));
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaEventRecord", cudaEventRecord(begin.event, cuda_stream)));
  ATTNGRAPH_RETURN_IF_ERROR(launch());
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaEventRecord", cudaEventRecord(end.event, cuda_stream)));
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaEventSynchronize", cudaEventSynchronize(end.event)));
  float milliseconds = 0;
  ATTNGRAPH_RETURN_IF_ERROR(
      status_of("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, begin.event, end.event)));
  return 1e-3 * static_cast<double>(milliseconds);
}

Result<bool> is_captured(void* stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  ATTNGRAPH_RETURN_IF_ERROR(
      status_of("cudaStreamIsCapturing", cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &capture)));
  return capture != cudaStreamCaptureStatusNone;
}

Status check_not_captured(void* stream, const char* what, const char* why) {
  const Result<bool> captured = is_captured(stream);
  ATTNGRAPH_RETURN_IF_ERROR(captured.status());
  if (!*captured) return {};
  return fail(Code::kUnsupported, what, ": the stream is being captured; must not be, as ", why);
}

Result<Memory> Memory::allocate(int64_t bytes) {
  if (bytes == 0) return Memory();
  void* data = nullptr;
  ATTNGRAPH_RETURN_IF_ERROR(status_of("cudaMalloc", cudaMalloc(&data, static_cast<size_t>(bytes))));
  return Memory(static_cast<std::byte*>(data), bytes);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Memory::~Memory() {
  if (data_ != nullptr) static_cast<void>(cudaFree(data_));
}

Status Memory::copy_in(const std::byte* from) {
  ATTNGRAPH_RETURN_IF_ERROR(synchronize());
  if (bytes_ == 0) return {};
  return status_of("cudaMemcpy",
                   cudaMemcpy(data_, from, static_cast<size_t>(bytes_), cudaMemcpyHostToDevice));
}

Status Memory::copy_out(std::byte* to) const { return read(data_, {to, static_cast<size_t>(bytes_)}); }

}  // namespace attngraph::device
