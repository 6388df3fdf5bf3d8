#include "problem/layout.hpp"

#include <array>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "support/catch.hpp"

using namespace attngraph;

namespace {

/// Every element that the axes address, by enumeration.
std::multiset<int64_t> addresses(std::span<const Axis> axes) {
  std::multiset<int64_t> all = {0};
  for (const Axis& axis : axes) {
    std::multiset<int64_t> next;
    for (const int64_t base : all)
      for (int64_t i = 0; i < axis.extent; ++i) next.insert(base + i * axis.stride);
    all = std::move(next);
  }
  return all;
}

std::vector<Axis> random_axes(std::mt19937& random, int64_t max_extent, int64_t max_stride) {
  std::vector<Axis> axes(1 + random() % 4);
  for (Axis& axis : axes) {
    axis.extent =
        random() % 16 == 0 ? 0 : 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(max_extent));
    axis.stride = static_cast<int64_t>(random() % static_cast<uint64_t>(max_stride + 1));
  }
  return axes;
}

}  // namespace

TEST_CASE("a footprint is one past the largest address of the enumeration", "[layout]") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 4000; ++trial) {
    const std::vector<Axis> axes = random_axes(random, 4, 40);
    const auto all = addresses(axes);
    REQUIRE(footprint_elems(axes).value() == (all.empty() ? 0 : *all.rbegin() + 1));
  }
}

TEST_CASE("self overlap is a repeated address of the enumeration", "[layout]") {
  std::mt19937 random(2);
  int overlapping = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const std::vector<Axis> axes = random_axes(random, 4, 20);
    const auto all = addresses(axes);
    const bool repeats = std::set<int64_t>(all.begin(), all.end()).size() != all.size();
    overlapping += repeats;
    REQUIRE((self_overlap(axes) == Overlap::kSome) == repeats);
  }
  CHECK(overlapping > 400);
}

TEST_CASE("the stride of an axis of one element has no part in an overlap, whatever it is", "[layout]") {
  constexpr int64_t kFar = int64_t{1} << 62;  // leaves int64 in bytes
  const std::vector<Axis> odd = {{1, kFar}, {4, 2}}, pair = {{2, 1}, {1, kFar + 1}};
  CHECK(mutual_overlap({odd, 4}, {odd, 4}, 4) == Overlap::kNone);
  CHECK(mutual_overlap({odd, 4}, {odd, 4}, 8) == Overlap::kSome);
  CHECK(mutual_overlap({odd, 4}, {pair, 4}, 4) == Overlap::kSome);
}

TEST_CASE("mutual overlap is a shared byte of the enumerations", "[layout]") {
  std::mt19937 random(3);
  int overlapping = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const std::array<int64_t, 3> sizes = {1, 2, 4};
    const std::vector<Axis> a = random_axes(random, 3, 12), b = random_axes(random, 3, 12);
    const int64_t a_bytes = sizes[random() % 3], b_bytes = sizes[random() % 3];
    const int64_t offset = static_cast<int64_t>(random() % 80) - 40;
    std::set<int64_t> bytes;
    for (const int64_t element : addresses(a))
      for (int64_t i = 0; i < a_bytes; ++i) bytes.insert(element * a_bytes + i);
    bool shared = false;
    for (const int64_t element : addresses(b))
      for (int64_t i = 0; i < b_bytes; ++i) shared |= bytes.count(offset + element * b_bytes + i) > 0;
    overlapping += shared;
    REQUIRE((mutual_overlap({a, a_bytes}, {b, b_bytes}, offset) == Overlap::kSome) == shared);
  }
  CHECK(overlapping > 400);
}

TEST_CASE("footprints are exact beyond 2^31 and near 2^63, and overflow is refused", "[layout]") {
  const int64_t big = int64_t{1} << 40;
  CHECK(footprint_elems(std::array{Axis{3, big}, Axis{5, 7}}).value() == 2 * big + 28 + 1);
  const int64_t max = std::numeric_limits<int64_t>::max();
  CHECK(footprint_elems(std::array{Axis{2, max - 1}}).value() == max);
  for (const auto& axes : {std::array{Axis{2, max}, Axis{1, 1}}, std::array{Axis{3, max / 2 + 1}, Axis{1, 1}},
                           std::array{Axis{2, max - 1}, Axis{2, 1}}}) {
    const auto refused = footprint_elems(axes);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().code() == Code::kInvalidGraph);
    CHECK(refused.status().message().find("exceeds int64") != std::string::npos);
  }
}

TEST_CASE("head-major packed stats span heads times capacity", "[layout]") {
  CHECK(footprint_elems(std::array{Axis{8, 600}, Axis{600, 1}}).value() == 4800);
}
