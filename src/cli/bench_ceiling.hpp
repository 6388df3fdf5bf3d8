#pragma once

#include "attngraph/types.hpp"
#include "cli/bench_rounds.hpp"

namespace attngraph::cli {

/// The multiply-add loop on all threads of the target, in GFLOP/s: on floats, or on what the engine
/// multiplies bf16 with there.
Timing time_peak(const Target& target, DataType dtype);

/// Reading memory far beyond the last-level cache on all threads of the target, in GB/s.
Timing time_read(const Target& target);

/// Copying device memory far beyond its cache, in GB/s of bytes read and bytes written.
///
/// Errors: kBackend when the device has no such memory.
Result<Timing> time_copy();

}  // namespace attngraph::cli
