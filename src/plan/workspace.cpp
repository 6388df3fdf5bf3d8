#include "plan/workspace.hpp"

#include <algorithm>
#include <bit>

#include "base/checked.hpp"
#include "plan/placement.hpp"

namespace attngraph {

void WorkspaceLayout::open_node() {
  ++node_;
  first_phase_ = num_phases_;
  num_phases_ = first_phase_ + 1;
}

Result<RegionId> WorkspaceLayout::book(Booking booking) {
  if (booking.bytes < 0)
    return fail(Code::kInvalidGraph, "workspace region ", booking.name, ": has ", booking.bytes,
                " bytes; must not be negative");
  const bool is_power_of_two =
      booking.alignment > 0 && std::has_single_bit(static_cast<uint64_t>(booking.alignment));
  if (!is_power_of_two || booking.alignment > kWorkspaceAlign)
    return fail(Code::kInternal, "workspace region ", booking.name, ": alignment is ", booking.alignment,
                "; must be a power of two up to ", kWorkspaceAlign);
  booking.lifetime.first += first_phase_;
  booking.lifetime.last += first_phase_;
  num_phases_ = std::max(num_phases_, booking.lifetime.last + 1);
  entries_.push_back({std::move(booking), node_});
  return RegionId{static_cast<int>(entries_.size()) - 1};
}

Result<RegionId> WorkspaceLayout::book(Booking booking, std::span<const Axis> axes, DataType dtype) {
  auto elems = footprint_elems(axes);
  if (elems.ok()) elems = checked_mul_add(*elems, element_bytes(dtype), 0, booking.name);
  if (!elems.ok()) return elems.status();
  booking.bytes = *elems;
  return book(std::move(booking));
}

void WorkspaceLayout::cover(RegionId id) {
  Lifetime& lifetime = entries_[static_cast<size_t>(id.index)].booking.lifetime;
  lifetime.first = std::min(lifetime.first, first_phase_);
  lifetime.last = std::max(lifetime.last, num_phases_ - 1);
}

void WorkspaceLayout::close_node() {
  for (Entry& entry : entries_) {
    if (entry.node != node_) continue;
    Booking& booking = entry.booking;
    if (booking.fill != Fill::kNone) booking.lifetime.first = first_phase_;
    if (booking.scope == Scope::kNode) booking.lifetime = {first_phase_, num_phases_ - 1};
  }
}

Status WorkspaceLayout::place(int64_t guard_bytes) {
  guard_bytes_ = guard_bytes;
  regions_.clear();
  regions_.reserve(entries_.size());
  ATTNGRAPH_RETURN_IF_ERROR(guard_bytes > 0 ? place_guarded() : place_shared());
  by_offset_.clear();
  for (size_t i = 0; i < regions_.size(); ++i)
    if (regions_[i].bytes > 0) by_offset_.push_back(static_cast<int>(i));
  std::stable_sort(by_offset_.begin(), by_offset_.end(), [&](int a, int b) {
    return regions_[static_cast<size_t>(a)].offset < regions_[static_cast<size_t>(b)].offset;
  });
  return {};
}

int64_t WorkspaceLayout::compact(std::span<Region> regions) const {
  int64_t total = 0;
  for (size_t n = 0; n < by_offset_.size(); ++n) {
    const size_t index = static_cast<size_t>(by_offset_[n]);
    const Booking& booking = entries_[index].booking;
    int64_t offset = 0;
    for (size_t below = 0; below < n; ++below) {
      const size_t other = static_cast<size_t>(by_offset_[below]);
      const Lifetime& a = booking.lifetime;
      const Lifetime& b = entries_[other].booking.lifetime;
      if (a.first <= b.last && b.first <= a.last)
        offset = std::max(offset, regions[other].offset + regions[other].bytes);
    }
    regions[index].offset = (offset + booking.alignment - 1) & -booking.alignment;
    total = std::max(total, regions[index].offset + regions[index].bytes);
  }
  return total;
}

Status WorkspaceLayout::place_shared() {
  std::vector<Block> blocks;
  blocks.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    const Booking& b = entry.booking;
    blocks.push_back({b.bytes, b.alignment, b.lifetime.first, b.lifetime.last});
  }
  auto placed = place_blocks(blocks);
  if (!placed.ok()) return placed.status();
  for (size_t i = 0; i < entries_.size(); ++i)
    regions_.push_back({placed->offsets[i], entries_[i].booking.bytes});
  bytes_ = placed->bytes;
  return {};
}

Status WorkspaceLayout::place_guarded() {
  bytes_ = 0;
  for (const Entry& entry : entries_) {
    // guard, padding to the alignment, region, guard
    auto before = checked_mul_add(1, guard_bytes_, bytes_ + kWorkspaceAlign - 1, entry.booking.name);
    if (!before.ok()) return before.status();
    const int64_t offset = *before / kWorkspaceAlign * kWorkspaceAlign;
    auto end = checked_mul_add(1, entry.booking.bytes, offset, entry.booking.name);
    if (end.ok()) end = checked_mul_add(1, guard_bytes_ + kWorkspaceAlign, *end, entry.booking.name);
    if (!end.ok()) return end.status();
    regions_.push_back({offset, entry.booking.bytes});
    bytes_ = *end - kWorkspaceAlign;
  }
  return {};
}

}  // namespace attngraph
