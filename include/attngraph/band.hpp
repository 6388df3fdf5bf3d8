#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace attngraph {

/// Which diagonal a band lies around.
enum class Align : uint8_t {
  kTopLeft,      ///< row i lies on the diagonal at key i
  kBottomRight,  ///< row i lies on the diagonal at key i + kv_len - q_len of its own sequence
};

/// Keys begin .. end-1.
struct KeyRange {
  int64_t begin = 0, end = 0;
};

/// The keys a query row may attend to: a band around one diagonal.
///
/// Row i with diagonal key d = i + offset(q_len, kv_len) sees keys d-left .. d+right.
///
/// Units:  keys. Both sides are inclusive, an absent side is unbounded, negative ones are legal;
///         validate() keeps sides and lengths below 2^61, so no sum here overflows.
/// Source: contract section 3, step 5. cuDNN's left bound counts the row's own key: left + 1.
struct Band {
  Align align = Align::kTopLeft;
  std::optional<int64_t> left, right;

  static constexpr Band causal(Align align = Align::kTopLeft) { return {align, std::nullopt, 0}; }

  /// The diagonal's shift: what ALiBi subtracts from key - row, too.
  constexpr int64_t offset(int64_t q_len, int64_t kv_len) const {
    return align == Align::kTopLeft ? 0 : kv_len - q_len;
  }

  constexpr KeyRange keys(int64_t row, int64_t q_len, int64_t kv_len) const {
    const int64_t diagonal = row + offset(q_len, kv_len);
    const int64_t begin = left ? std::clamp<int64_t>(diagonal - *left, 0, kv_len) : 0;
    const int64_t end = right ? std::clamp<int64_t>(diagonal + *right + 1, 0, kv_len) : kv_len;
    return {begin, std::max(begin, end)};
  }

  /// The same pairs seen from the keys: row i sees key j iff `transposed().keys(j, kv_len, q_len)`
  /// holds i.
  constexpr Band transposed() const { return {align, right, left}; }
};

/// A member added to Band and not bound here does not compile.
inline bool operator==(const Band& x, const Band& y) {
  const auto& [x_align, x_left, x_right] = x;
  const auto& [y_align, y_left, y_right] = y;
  return x_align == y_align && x_left == y_left && x_right == y_right;
}
inline bool operator!=(const Band& x, const Band& y) { return !(x == y); }

}  // namespace attngraph
