#pragma once

#include <algorithm>
#include <cstdint>

#include "problem/problem.hpp"

namespace attngraph::cpu {

constexpr int64_t ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
constexpr int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

/// Columns of every tile and panel in scratch memory are padded to this: the widest panel of any
/// kernel set.
inline constexpr int64_t kColumnPad = 32;

/// Query rows of a tile: a multiple of every micro-kernel's rows (4, 6, 12).
inline constexpr int64_t kQRows = 96;
/// Keys of a tile. Forward: a 96 KiB tile of scores beside the packed keys in L2. Backward keeps two
/// such tiles and the gradients of the keys, hence fewer.
inline constexpr int64_t kForwardKeys = 256, kBackwardKeys = 128;
/// Query tiles that share each packing of keys and values.
inline constexpr int64_t kTilesPerChunk = 4;
/// Up to this many query rows a packing would cost as much as it saves.
inline constexpr int64_t kFewRows = 8;
/// Work items per thread that keep the last ones from waiting for one.
inline constexpr int64_t kItemsPerThread = 4;

/// Rows of one work item of a merge, over all its heads: some hundred KiB of traffic.
inline constexpr int64_t kMergeRows = 1024;

/// How a forward pass is cut: a lane is one query head, or all heads of a group when their rows are so
/// few that they share one tile; a chunk is a part of a lane's rows, a split a part of its keys.
struct ForwardTiles {
  bool stacked = false;
  int64_t lanes = 0;  ///< per kv head
  int64_t rows = 0;   ///< per lane, of the longest sequence
  int64_t chunk_rows = 0, chunks = 0, splits = 1;
};

inline ForwardTiles forward_tiles(const Problem& p, int64_t num_threads) {
  ForwardTiles t;
  t.stacked = p.q_len * 2 <= kQRows;
  t.lanes = t.stacked ? std::min<int64_t>(p.group(), 1) : p.group();
  t.rows = t.stacked ? p.q_len * p.group() : p.q_len;
  const int64_t lanes = p.batch * p.kv_heads * t.lanes, wanted = kItemsPerThread * num_threads;
  const int64_t tiles = ceil_div(t.rows, kQRows);
  const int64_t shared = lanes == 0 ? 1 : std::clamp<int64_t>(lanes * tiles / wanted, 1, kTilesPerChunk);
  t.chunk_rows = std::min(t.rows, shared * kQRows);
  t.chunks = t.rows == 0 ? 0 : ceil_div(t.rows, t.chunk_rows);
  const int64_t items = lanes * t.chunks;
  if (num_threads > 1 && items > 0 && items < num_threads)
    t.splits = std::clamp<int64_t>(ceil_div(wanted, items), 1, std::max<int64_t>(1, p.kv_len / kForwardKeys));
  return t;
}

/// How many parts the keys of one kv head are cut into, so that a backward pass of few heads still
/// fills the threads. Each part has its own gradient of q, summed afterwards in fixed order.
constexpr int64_t backward_splits(const Problem& p, int64_t num_threads) {
  const int64_t items = p.batch * p.kv_heads;
  if (num_threads <= 1 || items == 0) return 1;
  const int64_t blocks = std::max<int64_t>(1, ceil_div(p.kv_len, kBackwardKeys));
  return std::clamp<int64_t>(ceil_div(kItemsPerThread * num_threads, items), 1, blocks);
}

}  // namespace attngraph::cpu
