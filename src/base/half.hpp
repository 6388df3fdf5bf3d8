#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace attngraph {

/// `x` rounded once, to nearest even, to a 16-bit format with the given exponent and fraction bits.
///
/// NaN stays a quiet NaN of its sign; what is too large becomes infinite, subnormals are kept.
/// Source: IEEE 754-2019, sections 3.4 and 4.3.1. A float widens to double exactly, so it is rounded
/// once as well.
template <int kExponentBits, int kFractionBits>
constexpr uint16_t round_to_16_bits(double x) {
  static_assert(1 + kExponentBits + kFractionBits == 16);
  constexpr int kMaxExponent = (1 << (kExponentBits - 1)) - 1, kMinExponent = 1 - kMaxExponent;
  constexpr uint16_t kInfinity = ((1 << kExponentBits) - 1) << kFractionBits;
  constexpr int kDoubleBits = 52;  // of the fraction
  constexpr uint64_t kDoubleOne = uint64_t{1} << kDoubleBits;

  const uint64_t bits = std::bit_cast<uint64_t>(x), magnitude = bits & ~(uint64_t{1} << 63);
  const uint16_t sign = static_cast<uint16_t>(bits >> 63 << 15);
  if (magnitude > std::bit_cast<uint64_t>(std::numeric_limits<double>::infinity()))
    return static_cast<uint16_t>(sign | kInfinity | 1 << (kFractionBits - 1));
  const int exponent = static_cast<int>(magnitude >> kDoubleBits) - 1023;
  if (exponent > kMaxExponent) return sign | kInfinity;

  const int dropped = kDoubleBits - kFractionBits + std::max(0, kMinExponent - exponent);
  if (dropped > kDoubleBits + 1) return sign;  // below half of the smallest subnormal
  const uint64_t significand = (magnitude & (kDoubleOne - 1)) | kDoubleOne;
  const uint64_t rest = significand & ((uint64_t{1} << dropped) - 1), half = uint64_t{1} << (dropped - 1);
  uint64_t kept = significand >> dropped;
  if (rest > half || (rest == half && (kept & 1) == 1)) ++kept;  // may carry into the exponent, up to inf
  const int steps = std::max(0, exponent - kMinExponent);        // kept brings the leading one itself
  return static_cast<uint16_t>(sign | (kept + (static_cast<uint64_t>(steps) << kFractionBits)));
}

constexpr uint16_t to_f16(double x) { return round_to_16_bits<5, 10>(x); }
constexpr uint16_t to_bf16(double x) { return round_to_16_bits<8, 7>(x); }

/// Exact.
constexpr float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

/// Exact.
constexpr float from_f16(uint16_t bits) {
  const uint32_t sign = (uint32_t{bits} & 0x8000u) << 16, exponent = bits >> 10 & 0x1Fu;
  const uint32_t fraction = (uint32_t{bits} & 0x3FFu) << 13;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | fraction);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + (127 - 15)) << 23 | fraction);
  const float magnitude = static_cast<float>(bits & 0x3FF) * 0x1p-24f;
  return sign == 0 ? magnitude : -magnitude;
}

}  // namespace attngraph
