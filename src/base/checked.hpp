#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
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

/// The product of factors that are not negative.
///
/// Errors: as checked_mul_add.
inline Result<int64_t> checked_product(std::initializer_list<int64_t> factors, std::string_view what) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    const Result<int64_t> next = checked_mul_add(product, factor, 0, what);
    if (!next.ok()) return next.status();
    product = *next;
  }
  return product;
}

/// The product, or the largest int64 where it leaves int64. Factors are not negative.
inline int64_t saturating_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product)) return std::numeric_limits<int64_t>::max();
  return product;
}

/// n / unit rounded up. n is not negative, unit is positive.
constexpr int64_t ceil_div(int64_t n, int64_t unit) { return n / unit + (n % unit != 0 ? 1 : 0); }

/// The least multiple of unit that is not below n, or the largest int64 where it leaves int64.
constexpr int64_t round_up(int64_t n, int64_t unit) {
  int64_t multiple = 0;
  const bool leaves = __builtin_mul_overflow(ceil_div(n, unit), unit, &multiple);
  return leaves ? std::numeric_limits<int64_t>::max() : multiple;
}

}  // namespace attngraph
