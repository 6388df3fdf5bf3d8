#pragma once

#include <cstdint>

#include "attngraph/export.hpp"

namespace attngraph {

/// Identity of a tensor in its graph; names are labels and may repeat.
using Uid = int64_t;

enum class DataType : uint8_t { kF32, kF16, kBf16, kFp8E4m3, kFp8E5m2, kI32, kI64, kBool };

/// Bytes of one element; a bool takes one byte.
constexpr int64_t element_bytes(DataType type) {
  switch (type) {
    case DataType::kI64:
      return 8;
    case DataType::kF32:
    case DataType::kI32:
      return 4;
    case DataType::kF16:
    case DataType::kBf16:
      return 2;
    case DataType::kFp8E4m3:
    case DataType::kFp8E5m2:
    case DataType::kBool:
      return 1;
  }
  return 0;
}

enum class MemoryKind : uint8_t { kHost, kCuda };

/// Instruction sets that the cpu engine has kernels for, in ascending order.
enum class CpuIsa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16 };

/// What a plan is made for: a value, read from a machine once or written by hand, so that
/// planning for any device works on any machine.
///
/// Units: sizes in bytes, sm_version 90 for sm_90, cudnn_version as cuDNN counts (91900 for 9.19.0).
struct Target {
  MemoryKind memory = MemoryKind::kHost;
  CpuIsa isa = CpuIsa::kPortable;  ///< host only
  int num_threads = 1;             ///< host only
  int sm_version = 0, sm_count = 0, cudnn_version = 0;
  int64_t shared_memory_bytes = 0, l2_bytes = 0;

  /// A host with `num_threads` threads.
  static constexpr Target cpu(int num_threads, CpuIsa isa = CpuIsa::kPortable) {
    Target target;
    target.isa = isa;
    target.num_threads = num_threads;
    return target;
  }
  /// NVIDIA's data sheets and `cudaGetDeviceProperties`: SMs, shared memory a block may take, L2.
  static constexpr Target a100() { return cuda(80, 108, 166'912, 41'943'040); }
  static constexpr Target h100() { return cuda(90, 132, 232'448, 52'428'800); }
  static constexpr Target h200() { return cuda(90, 132, 232'448, 62'914'560); }
  static constexpr Target b200() { return cuda(100, 148, 232'448, 132'644'864); }

  static constexpr Target cuda(int sm_version, int sm_count, int64_t shared_memory_bytes, int64_t l2_bytes) {
    Target target;
    target.memory = MemoryKind::kCuda;
    target.isa = CpuIsa::kPortable;
    target.num_threads = 0;
    target.sm_version = sm_version;
    target.sm_count = sm_count;
    target.shared_memory_bytes = shared_memory_bytes;
    target.l2_bytes = l2_bytes;
    return target;
  }
};

/// A member added to Target and not bound here does not compile.
inline bool operator==(const Target& x, const Target& y) {
  const auto& [x_memory, x_isa, x_threads, x_sm, x_sms, x_cudnn, x_shared, x_l2] = x;
  const auto& [y_memory, y_isa, y_threads, y_sm, y_sms, y_cudnn, y_shared, y_l2] = y;
  return x_memory == y_memory && x_isa == y_isa && x_threads == y_threads && x_sm == y_sm && x_sms == y_sms &&
         x_cudnn == y_cudnn && x_shared == y_shared && x_l2 == y_l2;
}
inline bool operator!=(const Target& x, const Target& y) { return !(x == y); }

}  // namespace attngraph
