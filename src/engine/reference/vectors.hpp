#pragma once

#include <cstdint>

namespace attngraph::reference {

inline double dot(const double* a, const double* b, int64_t count) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// sum += factor * term.
inline void add_scaled(double* sum, double factor, const double* term, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += factor * term[i];
}

}  // namespace attngraph::reference
