#include "attngraph/band.hpp"

#include "support/catch.hpp"

using namespace attngraph;

namespace {

/// Contract section 3, step 5, for one pair.
bool attends(const Band& band, int64_t row, int64_t key, int64_t q_len, int64_t kv_len) {
  const int64_t off = band.align == Align::kBottomRight ? kv_len - q_len : 0;
  if (band.left && key - row - off < -*band.left) return false;
  if (band.right && key - row - off > *band.right) return false;
  return true;
}

/// Absent, or a side from -4 to 4.
std::optional<int64_t> side(int64_t index) {
  return index == 9 ? std::nullopt : std::optional<int64_t>(index - 4);
}

void check_rows(const Band& band, int64_t q_len, int64_t kv_len) {
  for (int64_t row = 0; row < q_len; ++row) {
    const KeyRange keys = band.keys(row, q_len, kv_len);
    REQUIRE((0 <= keys.begin && keys.begin <= keys.end));
    for (int64_t key = 0; key < kv_len; ++key)
      REQUIRE((keys.begin <= key && key < keys.end) == attends(band, row, key, q_len, kv_len));
    REQUIRE((keys.begin == keys.end || keys.end <= kv_len));
  }
}

}  // namespace

TEST_CASE("the keys of a band are those that the pairwise rule keeps", "[band]") {
  for (const Align align : {Align::kTopLeft, Align::kBottomRight})
    for (int64_t left = 0; left < 10; ++left)
      for (int64_t right = 0; right < 10; ++right)
        for (int64_t q_len = 0; q_len <= 6; ++q_len)
          for (int64_t kv_len = 0; kv_len <= 6; ++kv_len)
            check_rows(Band{align, side(left), side(right)}, q_len, kv_len);
}

TEST_CASE("sides and lengths just inside the bound do not overflow", "[band]") {
  const int64_t most = (int64_t{1} << 61) - 1;
  for (const Align align : {Align::kTopLeft, Align::kBottomRight})
    for (const int64_t left : {-most, most})
      for (const int64_t right : {-most, most})
        for (const int64_t q_len : {int64_t{1}, most})
          for (const int64_t kv_len : {int64_t{1}, most})
            for (const int64_t row : {int64_t{0}, q_len - 1}) {
              const Band band{align, left, right};
              const KeyRange keys = band.keys(row, q_len, kv_len);
              for (const int64_t key : {int64_t{0}, kv_len - 1})
                CHECK((keys.begin <= key && key < keys.end) == attends(band, row, key, q_len, kv_len));
            }
}
