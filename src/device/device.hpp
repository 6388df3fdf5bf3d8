#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "attngraph/status.hpp"
#include "attngraph/types.hpp"
#include "plan/workspace.hpp"

/// What the library asks of a CUDA device outside its attention kernels. Streams are cudaStream_t. Without
/// the toolkit in the build every call fails with "no CUDA device: ...".
namespace attngraph::device {

/// The current device as a target.
///
/// Errors: kUnsupported "no CUDA device: <why>; needs a driver and a device of sm_80 or newer".
Result<Target> cuda_target();

/// The current device and its software in words: "NVIDIA H200, CUDA driver 13.0, runtime 13.0".
Result<std::string> description();

/// Number of the current device.
Result<int> current();
/// 90 for sm_90: of the current device. Takes a fraction of a microsecond.
Result<int> sm_version();

/// Fills device memory on `stream`; nothing for Fill::kNone.
Status fill(std::byte* begin, int64_t bytes, Fill what, void* stream);

/// Writes guard_byte() into workspace bytes begin .. end-1 on `stream`.
Status write_guard(std::byte* workspace, int64_t begin, int64_t end, void* stream);

/// Copies device memory on `stream`.
Status copy(std::byte* to, const std::byte* from, int64_t bytes, void* stream);

/// Writes floats into device memory on `stream`; they are read before the call returns.
Status write(float* to, std::span<const float> values, void* stream);

/// Makes what `launch` puts on the stream that it is given the one child graph of the cudaGraph_t `graph`: of
/// an empty one, or with `replaces` in place of the child that an earlier call made.
///
/// Errors: kBadBinding when the graph holds something else; those of `launch`.
Status record(void* graph, bool replaces, const std::function<Status(void* stream)>& launch);

/// Launches that were recorded as one CUDA graph, to be launched again.
class Replay {
 public:
  /// Records what `launch` puts on the stream that it is given.
  static Result<Replay> record(const std::function<Status(void* stream)>& launch);
  Replay() = default;
  Replay(Replay&& other) noexcept;
  Replay& operator=(Replay&& other) noexcept;
  ~Replay();

  bool is_recorded() const { return launches_ != nullptr; }
  /// Thread: one at a time.
  Status launch(void* stream) const;

 private:
  void* launches_ = nullptr;  ///< a cudaGraphExec_t
};

/// Copies to host memory, after all work of the device.
Status read(const std::byte* from, std::span<std::byte> to);

/// Waits for the device.
///
/// Errors: kBackend with the first failure of the work before.
Status synchronize();

/// Seconds that the work which `launch` puts on `stream` takes there.
Result<double> elapsed_seconds(const std::function<Status()>& launch, void* stream = nullptr);

/// Whether work put on the stream is recorded, not run.
Result<bool> is_captured(void* stream);
/// Errors: kUnsupported "<what>: the stream is being captured; must not be, as <why>".
Status check_not_captured(void* stream, const char* what, const char* why);

/// Device memory of one owner, for programs and tests: execute itself allocates nothing.
class Memory {
 public:
  /// Errors: kBackend when the device has no such memory.
  static Result<Memory> allocate(int64_t bytes);
  Memory() = default;
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  /// Copies all bytes and waits for all work of the device.
  Status copy_in(const std::byte* from);
  Status copy_out(std::byte* to) const;

 private:
  Memory(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace attngraph::device
