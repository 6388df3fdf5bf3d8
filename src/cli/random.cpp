#include "cli/random.hpp"

#include "problem/dropout.hpp"

namespace attngraph::cli {
namespace {

/// True with probability exp(-x), 0 <= x <= 1: the parity of a descending run of uniform numbers.
bool survives(Words& words, double x) {
  bool even = true;
  for (double last = x;; even = !even) {
    const double uniform = words.next() * 0x1p-32;
    if (uniform >= last) return even;
    last = uniform;
  }
}

bool survives_all(Words& words, double x, int64_t times) {
  for (int64_t i = 0; i < times; ++i)
    if (!survives(words, x)) return false;
  return true;
}

}  // namespace

uint32_t Words::next() {
  if (used_ == words_.size()) {
    words_ =
        philox4x32_10({block_++, 0, static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                      {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    used_ = 0;
  }
  return words_[used_++];
}

int64_t Words::below(int64_t bound) {
  const uint64_t high = next(), word = high << 32 | next();
  return static_cast<int64_t>(word % static_cast<uint64_t>(bound));
}

std::vector<int64_t> shuffled(int64_t count, Words& words) {
  std::vector<int64_t> list(static_cast<size_t>(count));
  for (size_t i = 0; i < list.size(); ++i) {
    const auto other = static_cast<size_t>(words.below(static_cast<int64_t>(i) + 1));
    list[i] = list[other];
    list[other] = static_cast<int64_t>(i);
  }
  return list;
}

double normal(uint64_t seed, uint64_t index) {
  Words words(seed, index);
  for (;;) {
    int64_t whole = 0;
    while (survives(words, 0.5)) ++whole;
    if (!survives_all(words, 0.5, whole * (whole - 1))) continue;
    const double fraction = ((words.next() >> 12) + 0.5) * 0x1p-20;
    const double twice = static_cast<double>(2 * whole);
    if (!survives_all(words, fraction * (twice + fraction) / (twice + 2.0), whole + 1)) continue;
    const double magnitude = static_cast<double>(whole) + fraction;
    return (words.next() & 1) != 0 ? -magnitude : magnitude;
  }
}

}  // namespace attngraph::cli
