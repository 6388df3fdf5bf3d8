#pragma once

#include <cstdint>
#include <string_view>

#include "base/message.hpp"

namespace attngraph {

/// a * b + c in int64.
///
/// Errors: kInvalidGraph naming `what` and the three numbers when the result leaves int64.
inline Result<int64_t> checked_mul_add(int64_t a, int64_t b, int64_t c, std::string_view what) {
  int64_t product = 0, sum = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(product, c, &sum))
    return fail(Code::kInvalidGraph, what, ": ", a, " * ", b, " + ", c, " exceeds int64");
  return sum;
}

}  // namespace attngraph
