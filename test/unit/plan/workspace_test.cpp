#include "plan/workspace.hpp"

#include <array>
#include <limits>

#include "support/catch.hpp"

using namespace attngraph;

namespace {

Booking booking(const char* name, int64_t bytes, Lifetime lifetime = {}) {
  Booking b;
  b.name = name;
  b.bytes = bytes;
  b.lifetime = lifetime;
  return b;
}

}  // namespace

TEST_CASE("regions whose lifetimes do not meet share bytes", "[workspace]") {
  WorkspaceLayout layout;
  layout.open_node();
  const RegionId a = layout.book(booking("a", 1000, {0, 0})).value();
  const RegionId b = layout.book(booking("b", 600, {1, 2})).value();
  const RegionId c = layout.book(booking("c", 300, {2, 2})).value();
  layout.close_node();
  REQUIRE(layout.place().ok());
  CHECK(layout.region(a).offset == 0);
  CHECK(layout.region(b).offset == 0);
  CHECK(layout.region(c).offset == 768);
  CHECK(layout.bytes() == 1068);
}

TEST_CASE("a region of its node's scope shares with none of the node", "[workspace]") {
  WorkspaceLayout layout;
  layout.open_node();
  Booking sums = booking("sums", 256, {1, 1});
  sums.scope = Scope::kNode;
  const RegionId node_wide = layout.book(sums).value();
  REQUIRE(layout.book(booking("early", 256, {0, 0})).ok());
  REQUIRE(layout.book(booking("late", 256, {2, 2})).ok());
  layout.close_node();
  layout.open_node();
  REQUIRE(layout.book(booking("next", 512)).ok());
  layout.close_node();
  REQUIRE(layout.place().ok());
  CHECK(layout.bytes() == 512);
  CHECK(layout.num_phases() == 4);
  CHECK(layout.entries()[static_cast<size_t>(node_wide.index)].booking.lifetime.last == 2);
}

TEST_CASE("a filled region lives from its node's first phase, when fills are made", "[workspace]") {
  WorkspaceLayout layout;
  layout.open_node();
  Booking filled = booking("filled", 256, {1, 1});
  filled.fill = Fill::kZero;
  REQUIRE(layout.book(filled).ok());
  REQUIRE(layout.book(booking("before", 256, {0, 0})).ok());
  layout.close_node();
  REQUIRE(layout.place().ok());
  CHECK(layout.bytes() == 512);
}

TEST_CASE("a booking by axes has the bytes of its footprint", "[workspace]") {
  WorkspaceLayout layout;
  layout.open_node();
  const std::array axes = {Axis{8, 600}, Axis{600, 1}};
  const RegionId stats = layout.book(booking("stats", 0), axes, DataType::kF32).value();
  layout.close_node();
  REQUIRE(layout.place().ok());
  CHECK(layout.region(stats).bytes == 8 * 600 * 4);
}

TEST_CASE("bookings that make no sense are refused with their name and numbers", "[workspace]") {
  WorkspaceLayout layout;
  layout.open_node();
  CHECK(layout.book(booking("less", -1)).status().message() ==
        "workspace region less: has -1 bytes; must not be negative");
  Booking odd = booking("odd", 8);
  odd.alignment = 48;
  CHECK(layout.book(odd).status().message() ==
        "workspace region odd: alignment is 48; must be a power of two up to 256");
  const std::array axes = {Axis{3, std::numeric_limits<int64_t>::max() / 4}};
  CHECK(layout.book(booking("huge", 0), axes, DataType::kF32).status().message().find("huge") !=
        std::string::npos);
}

TEST_CASE("a workspace that leaves int64 is refused, guarded or not", "[workspace]") {
  WorkspaceLayout layout;
  layout.open_node();
  for (int i = 0; i < 2; ++i)
    REQUIRE(layout.book(booking("half", std::numeric_limits<int64_t>::max() / 2 + 1)).ok());
  layout.close_node();
  CHECK(layout.place().code() == Code::kInvalidGraph);
  CHECK(layout.place(64).code() == Code::kInvalidGraph);
}
