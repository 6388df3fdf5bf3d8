#include "base/half.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "support/catch.hpp"

using namespace attngraph;

namespace {

struct Format {
  const char* name;
  float (*decode)(uint16_t);
  uint16_t (*encode)(double);
  double largest;
};
const std::array kFormats = {Format{"f16", from_f16, to_f16, 65504.0},
                             Format{"bf16", from_bf16, to_bf16, 3.3895313892515355e38}};

}  // namespace

TEST_CASE("every finite 16-bit value survives decoding and encoding", "[half]") {
  for (const Format& format : kFormats)
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float value = format.decode(static_cast<uint16_t>(bits));
      if (!std::isnan(value)) REQUIRE(format.encode(static_cast<double>(value)) == bits);
    }
}

TEST_CASE("rounding to 16 bits picks the nearer neighbour and the even one of two", "[half]") {
  std::mt19937 random(1);
  for (const Format& format : kFormats)
    for (int trial = 0; trial < 20000; ++trial) {
      const auto bits = static_cast<uint16_t>(random() % 0x7bff);
      const double low = static_cast<double>(format.decode(bits));
      const double high = static_cast<double>(format.decode(static_cast<uint16_t>(bits + 1)));
      if (!std::isfinite(high)) continue;
      const double middle = low + (high - low) / 2;
      const auto even = static_cast<uint16_t>(bits % 2 == 0 ? bits : bits + 1);
      REQUIRE(format.encode(middle) == even);
      REQUIRE(format.encode(std::nextafter(middle, 0.0)) == bits);
      REQUIRE(format.encode(std::nextafter(middle, 1e300)) == bits + 1);
    }
}

TEST_CASE("16-bit formats carry infinities, NaN and overflow", "[half]") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Format& format : kFormats) {
    CHECK(std::isnan(format.decode(format.encode(std::nan("")))));
    CHECK(format.decode(format.encode(-infinity)) == -std::numeric_limits<float>::infinity());
    CHECK(std::isinf(format.decode(format.encode(format.largest * 1.01))));
    CHECK(static_cast<double>(format.decode(format.encode(format.largest))) == format.largest);
  }
  CHECK(static_cast<double>(from_f16(1)) == 0x1p-24);
}
