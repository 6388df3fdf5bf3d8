#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cli/guarded.hpp"
#include "cli/random.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cli;

TEST_CASE("guarded memory has the alignment asked for and no better one", "[cli]") {
  for (const int64_t alignment : {1, 2, 4, 16, 256, 4096}) {
    auto memory = GuardedMemory::make({100, alignment, 0}, "q");
    REQUIRE(memory.ok());
    const auto address = reinterpret_cast<uintptr_t>(memory->bytes().data());
    CHECK(address % static_cast<uintptr_t>(2 * alignment) == static_cast<uintptr_t>(alignment));
    CHECK(memory->bytes().size() == 100);
  }
  auto skewed = GuardedMemory::make({100, 256, 3}, "workspace");
  CHECK(reinterpret_cast<uintptr_t>(skewed->bytes().data()) % 256 == 3);
}

TEST_CASE("a byte written beside guarded memory is seen on either side, one inside is not", "[cli]") {
  for (const int64_t at : {-256, -1, 0, 99, 100, 355}) {
    auto memory = GuardedMemory::make({100, 16, 0}, "q");
    memory->fill(std::byte{0xFF}, std::byte{0xFF});
    memory->bytes().data()[at] = std::byte{1};
    const Status status = memory->check_guards();
    CHECK(status.ok() == (at >= 0 && at < 100));
    if (at == -1)
      CHECK(status.message() == "1 bytes before the storage changed, the nearest 1 before its first byte");
    if (at == 355)
      CHECK(status.message() == "1 bytes behind the storage changed, the nearest 256 behind its last byte");
  }
}

TEST_CASE("memory beyond what the program binds is refused", "[cli]") {
  CHECK(GuardedMemory::make({int64_t{1} << 40, 16, 0}, "dq").status().message() ==
        "dq: needs 1099511627776 bytes; this program binds at most 4294967296");
  CHECK(GuardedMemory::make({1, 24, 0}, "dq").status().message() ==
        "dq: has alignment 24; must be a power of two up to 65536");
}

TEST_CASE("normal numbers are the same on every machine", "[cli]") {
  // Written down once; multiples of 2^-21 that no library of the machine rounds.
  CHECK(normal(1, 0) * 0x1p21 == std::floor(normal(1, 0) * 0x1p21));
  CHECK(normal(1, 0) == -0x1.c9d48p-4);
  CHECK(normal(1, 1) == -0x1.c848cp-3);
  CHECK(normal(2, 1000000) == 0x1.80daap-2);
}

TEST_CASE("normal numbers have the moments and the tails of N(0,1)", "[cli]") {
  constexpr int kCount = 200'000;
  double sum = 0, squares = 0, fourths = 0;
  int beyond_two = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = normal(3, static_cast<uint64_t>(i));
    sum += x, squares += x * x, fourths += x * x * x * x;
    beyond_two += std::fabs(x) > 2 ? 1 : 0;
  }
  // Five standard errors: of x 1, of x^2 sqrt 2, of x^4 sqrt 96, of a share p sqrt(p(1-p)), over sqrt n.
  const double error = 5 / std::sqrt(static_cast<double>(kCount));
  CHECK(std::fabs(sum / kCount) < error);
  CHECK(std::fabs(squares / kCount - 1) < error * std::sqrt(2.0));
  CHECK(std::fabs(fourths / kCount - 3) < error * std::sqrt(96.0));
  CHECK(std::fabs(static_cast<double>(beyond_two) / kCount - 0.0455) < error * 0.2084);
}
