#include "plan/placement.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"

namespace attngraph {
namespace {

using Order = std::vector<size_t>;

int64_t align_up(int64_t value, int64_t alignment) { return (value + alignment - 1) & -alignment; }

bool meet(const Block& a, const Block& b) { return a.first <= b.last && b.first <= a.last; }

/// All blocks end to end with alignment stay inside int64, so no sum below needs a check.
Status check_range(std::span<const Block> blocks) {
  int64_t sum = 0;
  for (const Block& block : blocks) {
    auto next = checked_mul_add(1, block.bytes, sum, "workspace");
    if (next.ok()) next = checked_mul_add(1, block.alignment, *next, "workspace");
    if (!next.ok()) return next.status();
    sum = *next;
  }
  return {};
}

/// No placement is smaller than its fullest phase: every block but the topmost ends on a multiple of
/// the smallest alignment.
int64_t lower_bound(std::span<const Block> blocks) {
  int64_t bound = 0;
  for (const Block& at : blocks) {
    int64_t alignment = at.alignment, sum = 0, largest_pad = 0;
    const auto live = [&](const Block& b) {
      return b.bytes > 0 && b.first <= at.first && at.first <= b.last;
    };
    for (const Block& b : blocks)
      if (live(b)) alignment = std::min(alignment, b.alignment);
    for (const Block& b : blocks) {
      if (!live(b)) continue;
      const int64_t padded = align_up(b.bytes, alignment);
      sum += padded;
      largest_pad = std::max(largest_pad, padded - b.bytes);
    }
    bound = std::max(bound, sum - largest_pad);
  }
  return bound;
}

/// The lowest aligned offset at which the block meets no placed one; -1 marks blocks without a place.
int64_t lowest_fit(std::span<const Block> blocks, const std::vector<int64_t>& offsets, size_t index) {
  const Block& block = blocks[index];
  int64_t offset = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (offsets[i] < 0 || !meet(blocks[i], block)) continue;
      const int64_t end = offsets[i] + blocks[i].bytes;
      if (offset >= end || offset + block.bytes <= offsets[i]) continue;
      offset = align_up(end, block.alignment);
      moved = true;
    }
  }
  return offset;
}

Placement place_in_order(std::span<const Block> blocks, const Order& order) {
  Placement placement{std::vector<int64_t>(blocks.size(), -1), 0};
  for (const size_t i : order) {
    placement.offsets[i] = blocks[i].bytes == 0 ? 0 : lowest_fit(blocks, placement.offsets, i);
    placement.bytes = std::max(placement.bytes, placement.offsets[i] + blocks[i].bytes);
  }
  return placement;
}

/// Tries every order of stacking by non-decreasing offset: an optimal placement of least offset sum
/// is one of them, since each of its blocks rests on the ground or on an earlier one.
class ExactSearch {
 public:
  ExactSearch(std::span<const Block> blocks, Placement best, int64_t bound)
      : blocks_(blocks), offsets_(blocks.size(), -1), best_(std::move(best)), bound_(bound) {}

  Placement run() {
    extend(0, 0, 0);
    return std::move(best_);
  }

 private:
  void extend(size_t num_placed, int64_t last_offset, int64_t bytes) {
    if (bytes >= best_.bytes) return;
    if (num_placed == blocks_.size()) {
      best_ = {offsets_, bytes};
      return;
    }
    for (size_t i = 0; i < blocks_.size() && best_.bytes > bound_; ++i) {
      if (offsets_[i] >= 0) continue;
      const int64_t offset = top_below(i);
      if (offset < last_offset) continue;
      offsets_[i] = offset;
      extend(num_placed + 1, offset, std::max(bytes, offset + blocks_[i].bytes));
      offsets_[i] = -1;
    }
  }

  int64_t top_below(size_t index) const {
    int64_t top = 0;
    for (size_t i = 0; i < blocks_.size(); ++i)
      if (offsets_[i] >= 0 && meet(blocks_[i], blocks_[index]))
        top = std::max(top, offsets_[i] + blocks_[i].bytes);
    return align_up(top, blocks_[index].alignment);
  }

  std::span<const Block> blocks_;
  std::vector<int64_t> offsets_;
  Placement best_;
  int64_t bound_;
};

}  // namespace

Result<Placement> place_blocks(std::span<const Block> blocks) {
  ATTNGRAPH_RETURN_IF_ERROR(check_range(blocks));
  const int64_t bound = lower_bound(blocks);
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});

  Placement best = place_in_order(blocks, order);
  const auto try_order = [&](auto before) {
    if (best.bytes == bound) return;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return before(blocks[a], blocks[b]); });
    Placement other = place_in_order(blocks, order);
    if (other.bytes < best.bytes) best = std::move(other);
  };
  try_order([](const Block& a, const Block& b) { return a.bytes > b.bytes; });
  try_order([](const Block& a, const Block& b) { return a.last - a.first > b.last - b.first; });

  const bool is_small = blocks.size() <= kMaxExactBlocks;
  if (best.bytes > bound && is_small) best = ExactSearch(blocks, std::move(best), bound).run();
  return best;
}

}  // namespace attngraph
