#include "engine/cuda/splits.hpp"

#include <algorithm>
#include <cmath>

#include "engine/cuda/hopper_tiles.hpp"
#include "engine/cuda/tiles.hpp"

namespace attngraph::cuda {

int32_t key_splits(int64_t blocks, int64_t slots, int64_t key_tiles) {
  if (blocks <= 0 || key_tiles <= 1 || 5 * blocks >= 4 * slots) return 1;
  constexpr double kGoodFill =
      0.95;  // 33 splits of B1 kv 131072 read 13 % faster than the 29 that 0.85 gives
  const auto fill = [&](int64_t splits) {
    const double waves = static_cast<double>(blocks * splits) / static_cast<double>(slots);
    return waves / std::ceil(waves);
  };
  const int64_t most = std::min<int64_t>(kMaxSplits, key_tiles);
  double best = 0;
  for (int64_t splits = 1; splits <= most; ++splits) best = std::max(best, fill(splits));
  int64_t splits = 1;
  while (fill(splits) < kGoodFill * best) ++splits;
  return static_cast<int32_t>(splits);
}

DecodeParts decode_parts(int64_t blocks, int64_t multiprocessors, int64_t key_tiles) {
  constexpr int64_t kLong = 128;  // tiles for which a second block a multiprocessor pays
  DecodeParts parts;
  if (blocks <= 0) return parts;
  const auto needs_more = [&] {
    const int64_t all = blocks * parts.cluster;
    return 10 * all < 9 * multiprocessors ||
           (all <= multiprocessors && key_tiles >= 2 * kLong * parts.cluster);
  };
  while (parts.cluster < HopperDecodeTile::max_cluster && 2 * parts.cluster <= key_tiles && needs_more())
    parts.cluster *= 2;
  // Few heads are worth a second launch where a third of the multiprocessors would read, or where half would
  // and have so many keys: one reads about 32 bytes a cycle at most, on an H200 63 GB/s.
  const int64_t all = blocks * parts.cluster;
  if (parts.cluster == HopperDecodeTile::max_cluster && 3 * all < multiprocessors)
    parts.clusters = static_cast<int32_t>(
        std::min((multiprocessors + 2 * all - 1) / (2 * all), key_tiles / parts.cluster));
  else if (2 * all <= multiprocessors && key_tiles >= kLong * parts.cluster)
    parts = {2, static_cast<int32_t>(std::min<int64_t>(multiprocessors / (2 * blocks), kMaxSplits))};
  return parts;
}

}  // namespace attngraph::cuda
