#pragma once

#include <cstddef>
#include <cstdint>

#include "attngraph/types.hpp"

namespace attngraph {

/// The value of an IEEE 754 binary16, or of a bfloat16, by its bits. Exact.
float f16_to_float(uint16_t bits);
float bf16_to_float(uint16_t bits);

/// A double rounded once, to the nearest and ties to even; NaN becomes the quiet NaN of its sign.
uint16_t to_f16(double value);
uint16_t to_bf16(double value);

/// Element `index` of an array in host memory. Exact for every type but i64, which is rounded.
double read_real(const std::byte* data, DataType dtype, int64_t index);

/// Writes element `index`, rounded once to a floating-point type. An integer type truncates a value
/// that must lie inside it; a bool is true for anything but 0.
void write_real(std::byte* data, DataType dtype, int64_t index, double value);

}  // namespace attngraph
