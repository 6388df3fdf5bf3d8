#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attngraph/types.hpp"
#include "base/half.hpp"

namespace attngraph {

/// Element `index` of host memory that holds f32, f16 or bf16; exact.
inline double read_real(const std::byte* data, DataType dtype, int64_t index) {
  const std::byte* at = data + index * element_bytes(dtype);
  if (dtype == DataType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return double{value};
  }
  assert(dtype == DataType::kF16 || dtype == DataType::kBf16);
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return double{dtype == DataType::kF16 ? from_f16(bits) : from_bf16(bits)};
}

/// Writes element `index` of host memory that holds f32, f16 or bf16, rounded once to nearest even.
inline void write_real(std::byte* data, DataType dtype, int64_t index, double x) {
  std::byte* at = data + index * element_bytes(dtype);
  if (dtype == DataType::kF32) {
    const float value = static_cast<float>(x);
    std::memcpy(at, &value, sizeof value);
    return;
  }
  assert(dtype == DataType::kF16 || dtype == DataType::kBf16);
  const uint16_t bits = dtype == DataType::kF16 ? to_f16(x) : to_bf16(x);
  std::memcpy(at, &bits, sizeof bits);
}

}  // namespace attngraph
