#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attngraph/execute.hpp"
#include "attngraph/status.hpp"
#include "problem/layout.hpp"

namespace attngraph {

/// What a region holds before its first phase.
enum class Fill : uint8_t { kNone, kZero, kMinusInf };

/// A region's place in the workspace, in bytes from its base.
struct Region {
  int64_t offset = 0, bytes = 0;
};

/// The phases, first to last, in which a region holds something that is still needed.
struct Lifetime {
  int first = 0, last = 0;
};

/// How long a region keeps its contents when its node runs in several slices.
enum class Scope : uint8_t {
  kSlice,  ///< made anew, and filled anew, in every slice
  kNode,   ///< through all slices and phases of its node, filled once: sums over batch or heads
};

/// A request for workspace memory.
struct Booking {
  std::string name;
  int64_t bytes = 0;
  int64_t alignment = kWorkspaceAlign;
  Fill fill = Fill::kNone;
  Lifetime lifetime = {};  ///< phases of the node, from 0; ignored with Scope::kNode
  Scope scope = Scope::kSlice;
};

/// What byte `offset` of a workspace holds where it guards regions. Neighbouring bytes differ, so that a
/// copied or shifted guard is seen, too.
constexpr std::byte guard_byte(int64_t offset) { return static_cast<std::byte>((offset * 37 + 0xA5) & 0xFF); }

/// Names a booking until the layout is placed.
struct RegionId {
  int index = -1;
};

/// The only place where workspace bytes are added up: engines book regions while a plan is made;
/// size, offsets, fills, guards and `explain` are all read from this one list.
///
/// Regions whose lifetimes do not meet may share bytes. Bookings are made first, node by node, then
/// place() assigns every offset in one walk.
class WorkspaceLayout {
 public:
  /// What was booked, by whom and for which phases of the whole plan.
  struct Entry {
    Booking booking;
    int node = 0;
  };

  /// Begins the next node: its phase 0 is the first phase after all earlier ones.
  void open_node();
  /// Errors: kInvalidGraph on negative bytes; kInternal on an alignment that is no power of two up to
  ///         kWorkspaceAlign.
  Result<RegionId> book(Booking booking);
  /// Books the footprint of a tensor.
  Result<RegionId> book(Booking booking, std::span<const Axis> axes, DataType dtype);
  /// The region is needed through the whole of the open node.
  void cover(RegionId id);
  /// Ends the open node: its filled regions live from its first phase on, as fills come first.
  void close_node();

  /// Assigns offsets. With `guard_bytes`, keeps as many bytes of pattern before and after each region,
  /// in the order of booking, and lets no regions share, so that every byte has one owner.
  ///
  /// Errors: kInvalidGraph when the sum leaves int64.
  Status place(int64_t guard_bytes = 0);

  /// Moves the regions of a placed layout together when each needs `regions[i].bytes`, at most what was
  /// booked: writes their offsets and returns the total. Regions that lived apart stay apart.
  int64_t compact(std::span<Region> regions) const;

  int64_t bytes() const { return bytes_; }  ///< total, after place()
  int num_phases() const { return num_phases_; }
  Region region(RegionId id) const { return regions_[static_cast<size_t>(id.index)]; }
  std::span<const Entry> entries() const { return entries_; }
  std::span<const Region> regions() const { return regions_; }
  int64_t guard_bytes() const { return guard_bytes_; }

 private:
  Status place_shared();
  Status place_guarded();

  std::vector<Entry> entries_;
  std::vector<Region> regions_;  ///< by booking
  std::vector<int> by_offset_;   ///< bookings that are not empty, by rising offset
  int node_ = -1, first_phase_ = 0, num_phases_ = 0;
  int64_t bytes_ = 0, guard_bytes_ = 0;
};

}  // namespace attngraph
