#include "plan/splitting.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace attngraph {

int64_t SplitLadder::num_rungs() const {
  return std::max<int64_t>(batch_, 1) + std::max<int64_t>(kv_heads_, 1) - 1;
}

SliceShape SplitLadder::shape(int64_t rung) const {
  const int64_t batch_rungs = std::max<int64_t>(batch_, 1);
  if (rung < batch_rungs) return {ceil_div(batch_, rung + 1), kv_heads_};
  return {std::min<int64_t>(batch_, 1), ceil_div(kv_heads_, rung - batch_rungs + 2)};
}

int64_t first_fitting(int64_t begin, int64_t end, const std::function<bool(int64_t)>& fits) {
  int64_t low = begin, high = begin;  // every rung before low fails
  for (int64_t step = 1; high < end && !fits(high); step *= 2) {
    low = high + 1;
    high = std::min(end, high + step);
  }
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (fits(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

const Limit* exceeded_limit(const Engine& engine, const Problem& problem, const SliceShape& shape) {
  for (const Limit& limit : engine.limits())
    if (limit.count(problem, shape) > limit.bound) return &limit;
  return nullptr;
}

}  // namespace attngraph
