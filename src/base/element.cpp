#include "base/element.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace attngraph {
namespace {

template <class T>
T read_as(const std::byte* data, int64_t index) {
  T value{};
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

template <class T>
void write_as(std::byte* data, int64_t index, T value) {
  std::memcpy(data + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

/// Bits of a 16-bit binary format with `fraction_bits` fraction bits.
uint16_t round_to_16_bits(double value, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
  const uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  uint32_t magnitude = infinity;
  if (std::isnan(value)) {
    magnitude |= 1u << (fraction_bits - 1);
  } else if (value == 0) {
    magnitude = 0;
  } else if (std::fabs(value) < std::ldexp(1.0, bias + 1)) {
    const int exponent = std::max(std::ilogb(value), 1 - bias);
    const double significand = std::nearbyint(std::ldexp(std::fabs(value), fraction_bits - exponent));
    // The significand's leading one, or its carry, adds to the exponent field; a subnormal has none.
    magnitude =
        (static_cast<uint32_t>(exponent + bias - 1) << fraction_bits) + static_cast<uint32_t>(significand);
  }
  return static_cast<uint16_t>(sign | magnitude);
}

}  // namespace

float f16_to_float(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  if (magnitude >= 0x0f800000u) return std::bit_cast<float>(sign | magnitude | 0x7f800000u);  // inf, NaN
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;  // from bias 127 to bias 15
  return sign != 0 ? -value : value;
}

float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t to_f16(double value) { return round_to_16_bits(value, 10); }
uint16_t to_bf16(double value) { return round_to_16_bits(value, 7); }

double read_real(const std::byte* data, DataType dtype, int64_t index) {
  switch (dtype) {
    case DataType::kF32:
      return static_cast<double>(read_as<float>(data, index));
    case DataType::kF16:
      return static_cast<double>(f16_to_float(read_as<uint16_t>(data, index)));
    case DataType::kBf16:
      return static_cast<double>(bf16_to_float(read_as<uint16_t>(data, index)));
    case DataType::kI32:
      return read_as<int32_t>(data, index);
    case DataType::kI64:
      return static_cast<double>(read_as<int64_t>(data, index));
    case DataType::kBool:
      return read_as<uint8_t>(data, index) != 0 ? 1.0 : 0.0;
    case DataType::kFp8E4m3:
    case DataType::kFp8E5m2:
      break;  // refused by validate()
  }
  return std::nan("");
}

void write_real(std::byte* data, DataType dtype, int64_t index, double value) {
  switch (dtype) {
    case DataType::kF32:
      return write_as(data, index, static_cast<float>(value));
    case DataType::kF16:
      return write_as(data, index, to_f16(value));
    case DataType::kBf16:
      return write_as(data, index, to_bf16(value));
    case DataType::kI32:
      return write_as(data, index, static_cast<int32_t>(value));
    case DataType::kI64:
      return write_as(data, index, static_cast<int64_t>(value));
    case DataType::kBool:
      return write_as(data, index, static_cast<uint8_t>(value != 0));
    case DataType::kFp8E4m3:
    case DataType::kFp8E5m2:
      return;  // refused by validate()
  }
}

}  // namespace attngraph
