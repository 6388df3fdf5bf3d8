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
  return guard_bytes > 0 ? place_guarded() : place_shared();
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
