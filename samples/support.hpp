#pragma once

// What the samples share: they end with the reason when something is not as it must be.
#include <attngraph/attngraph.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

inline void require(const attngraph::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

template <class T>
T require(attngraph::Result<T> result) {
  require(result.status());
  return std::move(result).value();
}

inline void require_close(const char* what, double got, double want, double tolerance) {
  if (std::abs(got - want) <= tolerance) return;
  std::fprintf(stderr, "%s: got %.9g, want %.9g within %g\n", what, got, want, tolerance);
  std::exit(1);
}

/// Values of N(0, 1).
inline std::vector<float> random_floats(int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

inline void require_close(const char* what, const std::vector<float>& got, const std::vector<float>& want,
                          double tolerance) {
  for (size_t i = 0; i < got.size(); ++i) require_close(what, double{got[i]}, double{want[i]}, tolerance);
}
