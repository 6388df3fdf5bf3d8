#pragma once

#include "attngraph/status.hpp"
#include "problem/bound_data.hpp"

namespace attngraph::device {

/// Looks at the entries of all checks, in device memory, and waits for the answer: the first wrong entry.
/// `scratch` is device memory for one WrongEntry.
///
/// Errors: kUnsupported while `stream` is captured; kBackend.
Result<WrongEntry> first_wrong_entry(std::span<const EntryCheck> checks, std::byte* scratch, void* stream);

}  // namespace attngraph::device
