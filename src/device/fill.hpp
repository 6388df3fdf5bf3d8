#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "attngraph/status.hpp"

namespace attngraph::device {

/// Writes -inf to `count` > 0 floats of device memory on `stream`.
Status fill_minus_inf(float* begin, int64_t count, void* stream);

/// Writes guard_byte() into bytes begin .. end-1 of a workspace on `stream`; begin < end.
Status write_guard_bytes(std::byte* workspace, int64_t begin, int64_t end, void* stream);

/// Writes floats that travel as arguments of kernels: no host memory is read later.
Status write_floats(float* to, std::span<const float> values, void* stream);

}  // namespace attngraph::device
