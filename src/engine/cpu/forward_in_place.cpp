#include <algorithm>
#include <utility>

#include "engine/cpu/forward_item.hpp"

// Few query rows: k and v are read once and where they lie, and the speed is that of memory. So the blocks
// are small, all heads of a bundle take their part of one before the next, and the next is brought near
// meanwhile in the order in which it lies.
namespace attngraph::cpu {

ForwardItem::BundleBlock ForwardItem::gather(KeyRange keys, bool odd) const {
  const std::byte** addresses = context_.scratch.addresses.at<const std::byte*>(workspace_, worker_);
  static_assert(2 * 2 * kMaxBundle * kFewRowsKeys <= 2 * kForwardKeys);
  if (odd) addresses += 2 * kMaxBundle * kFewRowsKeys;
  BundleBlock block;
  block.keys = keys;
  for (int64_t t = 0; t < num_tiles_; ++t, addresses += 2 * kFewRowsKeys) {
    block.k[t] = seq_.gather(Role::kK, tiles_[t].kv_head, keys, addresses);
    block.v[t] = seq_.gather(Role::kV, tiles_[t].kv_head, keys, addresses + kFewRowsKeys);
  }
  return block;
}

/// The part of the next block's rows that is brought near beside tile `t`: tokens one after the other, all
/// heads of each, as they lie in memory.
Upcoming ForwardItem::upcoming(const Rows* heads, int64_t t, const std::byte** rows) const {
  const int64_t count = heads->count;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = t * count + i;
    rows[i] = heads[at % num_tiles_].row[at / num_tiles_];
  }
  return {rows, count, heads->dim * element_bytes(heads->dtype)};
}

void ForwardItem::attend_in_place(KeyRange keys) {
  if (keys.begin >= keys.end) return;
  float* x = scratch(context_.scratch.scores);
  Tile all;  // the rows of the bundle; their heads see the same keys
  all.rows = num_rows_;
  all.keys = tiles_[0].keys;
  const auto block_at = [&](int64_t key) {
    return gather({key, std::min(keys.end, key + kFewRowsKeys)}, key / kFewRowsKeys % 2 == 1);
  };
  BundleBlock block = block_at(keys.begin), next;
  for (int64_t key = keys.begin; key < keys.end; key += kFewRowsKeys, std::swap(block, next)) {
    next = block_at(std::min(keys.end, key + kFewRowsKeys));
    const Part part{0, block.keys.end - block.keys.begin};
    const std::byte* rows[kFewRowsKeys];
    for (int64_t t = 0; t < num_tiles_; ++t) {
      kernels_.dots({q_ + tiles_[t].first * context_.qk_cols(), context_.qk_cols(), tiles_[t].rows,
                     block.k[t], x + tiles_[t].first * kFewRowsKeys, kFewRowsKeys,
                     upcoming(next.k, t, rows)});
    }
    const Block same{block.keys, present_keys(block.k[0], block.v[0])};
    mask_scores(all, same, part, x);
    softmax(all, part, x);
    if (problem_.draws_dropout()) drop(all, key, padded(part.count), x);
    if (problem_.dropout_p >= 1.0) continue;
    if (!all.started) std::fill(out_, out_row(num_rows_), 0.0F);
    for (int64_t t = 0; t < num_tiles_; ++t) {
      kernels_.weighted_sum({x + tiles_[t].first * kFewRowsKeys, kFewRowsKeys, tiles_[t].rows, block.v[t],
                             out_row(tiles_[t].first), context_.v_cols(), upcoming(next.v, t, rows)});
      tiles_[t].started = true;
    }
    all.started = true;
  }
}

}  // namespace attngraph::cpu
