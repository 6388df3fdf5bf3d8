#pragma once

#include <algorithm>
#include <cstdint>

#include "base/checked.hpp"
#include "problem/problem.hpp"

namespace attngraph::cpu {

/// Columns of every tile and panel in scratch memory are padded to this: the widest panel of any
/// kernel set.
inline constexpr int64_t kColumnPad = 32;

/// Query rows of a tile: a multiple of every micro-kernel's rows (4, 6, 12) and of kMaxLanes. Fewer rows
/// compute less beyond the edge of a band; more of them load and store the backward's sums of keys less
/// often.
inline constexpr int64_t kForwardRows = 48, kBackwardRows = 96;
/// Keys of a tile. Forward: a 48 KiB tile of scores beside the packed keys in L2. Backward keeps two
/// tiles of 48 KiB, three packings and the gradients of the keys, hence fewer.
inline constexpr int64_t kForwardKeys = 256, kBackwardKeys = 128;
/// Query tiles that share each packing of keys and values.
inline constexpr int64_t kTilesPerChunk = 8;
/// Up to this many query rows a packing would cost as much as it saves, ...
inline constexpr int64_t kFewRows = 8;
/// ... and their keys are taken this many at a time: 16 rows that lie 2 or 4 KiB apart fit into L1.
inline constexpr int64_t kFewRowsKeys = 16;
/// Heads whose keys are read side by side.
inline constexpr int64_t kMaxBundle = 8;
/// Work items per thread that keep the last ones from waiting for one.
inline constexpr int64_t kItemsPerThread = 4;

/// Rows of one work item of a merge, over all its heads: some hundred KiB of traffic.
inline constexpr int64_t kMergeRows = 1024;

/// How a forward pass is cut: a lane is one query head, or all heads of a group when their rows are so
/// few that they share one tile; a chunk is a part of a lane's rows, a split a part of its keys. With very
/// few rows a chunk is that of a bundle of kv heads.
struct ForwardTiles {
  bool stacked = false;
  bool in_place = false;  ///< no sequence has more than few rows: k and v are read where they lie
  int64_t lanes = 0;      ///< per kv head
  int64_t bundle = 1;     ///< kv heads whose keys one item reads side by side
  int64_t rows = 0;       ///< per lane or bundle, of the longest sequence
  int64_t chunk_rows = 0, chunks = 0, splits = 1;

  int64_t bundles(int64_t kv_heads) const { return ceil_div(kv_heads, bundle); }
};

/// True when rows of k and v can be read without packing.
inline bool rows_lie_contiguous(const Problem& p) {
  const auto contiguous = [&](Role role) { return dim(p[role]) == 1 || dim_stride(p[role]) == 1; };
  return contiguous(Role::kK) && contiguous(Role::kV);
}

/// Heads that lie side by side in every token: one head alone would touch every memory page for a part of
/// it. Reading 256 bytes out of each 2,048 brings 3.5 GB/s on the machine of docs/performance.md where
/// reading all brings 10.
inline int64_t heads_side_by_side(const Problem& p) {
  const bool in_token = head_stride(p[Role::kK]) < len_stride(p[Role::kK]);
  return in_token ? std::clamp<int64_t>(p.kv_heads, 1, kMaxBundle) : 1;
}

inline ForwardTiles forward_tiles(const Problem& p, int64_t num_threads) {
  ForwardTiles t;
  t.stacked = p.q_len <= kForwardRows;
  t.lanes = t.stacked ? std::min<int64_t>(p.group(), 1) : p.group();
  t.rows = t.stacked ? p.q_len * p.group() : p.q_len;
  t.in_place = t.stacked && t.rows <= kFewRows && rows_lie_contiguous(p);
  if (t.in_place) t.bundle = heads_side_by_side(p);
  t.rows *= t.bundle;
  const int64_t lanes = p.batch * t.bundles(p.kv_heads) * t.lanes, wanted = kItemsPerThread * num_threads;
  const int64_t tiles = ceil_div(t.rows, kForwardRows);
  const int64_t shared = lanes == 0 ? 1 : std::clamp<int64_t>(lanes * tiles / wanted, 1, kTilesPerChunk);
  t.chunk_rows = t.in_place ? t.rows : std::min(t.rows, shared * kForwardRows);
  t.chunks = t.rows == 0 ? 0 : ceil_div(t.rows, t.chunk_rows);
  const int64_t items = lanes * t.chunks;
  if (num_threads > 1 && items > 0 && items < (t.in_place ? wanted : num_threads))
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
