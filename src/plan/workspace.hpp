#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attngraph/execute.hpp"
#include "attngraph/status.hpp"

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

/// A request for workspace memory.
struct Booking {
  std::string name;
  int64_t bytes = 0;
  int64_t alignment = kWorkspaceAlign;
  Fill fill = Fill::kNone;
  Lifetime lifetime = {};
};

/// Names a booking until the layout is placed.
struct RegionId {
  int index = -1;
};

/// The only place where workspace bytes are added up: engines book regions while a plan is made;
/// size, offsets, fills, guards and `explain` are all read from this one list.
///
/// Regions whose lifetimes do not meet may share bytes. Bookings are made first, then place()
/// assigns every offset in one walk.
class WorkspaceLayout {
 public:
  /// Errors: kInvalidGraph on negative bytes.
  Result<RegionId> book(Booking booking);

  /// Assigns offsets, keeping `guard_bytes` of pattern before and after each region.
  ///
  /// Errors: kInvalidGraph when the sum leaves int64.
  Status place(int64_t guard_bytes = 0);

  int64_t bytes() const { return bytes_; }  ///< total, after place()
  Region region(RegionId id) const { return regions_[static_cast<size_t>(id.index)]; }
  std::span<const Booking> bookings() const { return bookings_; }
  std::span<const Region> regions() const { return regions_; }
  int64_t guard_bytes() const { return guard_bytes_; }

 private:
  std::vector<Booking> bookings_;
  std::vector<Region> regions_;  ///< by booking
  int64_t bytes_ = 0, guard_bytes_ = 0;
};

}  // namespace attngraph
