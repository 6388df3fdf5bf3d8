#pragma once

#include "problem/dropout.hpp"

namespace attngraph {

/// The draws of one head in parts, for a kernel that draws for many rows and keys: of the first three rounds
/// of a draw, all but one product depends on its row alone or on its pair of keys alone. Rounds of one part
/// run with zeros for the other's words, which joins them by exclusive or.
template <class Product = WideProduct>
class HeadDraws {
 public:
  static constexpr int kRoundsLeft = kPhiloxRounds - 3;

  /// What two rounds make of a row.
  struct Row {
    uint32_t high, low;
  };
  /// What three rounds make of a pair of keys: `third` joins the row's high word in the third round, the
  /// others join its words after it.
  struct Keys {
    uint32_t third;
    std::array<uint32_t, 3> after;
  };

  constexpr HeadDraws(const Dropout& dropout, int64_t head_index)
      : start_(dropout.counter(head_index, 0, 0)), key_(dropout.key()) {}

  /// Of rows i and i ^ 8.
  constexpr Row row(int64_t i) const {
    PhiloxWords words = start_;
    words[1] = static_cast<uint32_t>(i & ~int64_t{8});
    philox_round(words, key_, Product{});
    words = {words[0], 0, 0, 0};
    philox_round(words, {0, 0}, Product{});
    return {words[2], words[3]};
  }
  /// Of keys j & ~1 and j | 1.
  constexpr Keys keys(int64_t j) const {
    const PhiloxKey second = next_key(key_);
    PhiloxWords words = start_;
    words[0] = static_cast<uint32_t>(j >> 1);
    philox_round(words, key_, Product{});
    words[0] = 0;
    philox_round(words, second, Product{});
    const uint32_t third = words[2];
    words = {words[0], words[1], 0, 0};
    philox_round(words, next_key(second), Product{});
    return {third, {words[0], words[2], words[3]}};
  }
  /// A draw's words after three rounds.
  static constexpr PhiloxWords meet(const Row& row, const Keys& keys) {
    PhiloxWords words = {0, 0, row.high ^ keys.third, row.low};
    philox_round(words, {keys.after[0], keys.after[1]}, Product{});
    words[3] = keys.after[2];
    return words;
  }
  /// Of the first of the rounds left.
  constexpr PhiloxKey next() const { return next_key(next_key(next_key(key_))); }

 private:
  PhiloxWords start_;
  PhiloxKey key_;
};

}  // namespace attngraph
