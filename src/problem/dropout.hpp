#pragma once

#include <array>
#include <cstdint>

namespace attngraph {

using PhiloxWords = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

struct WideProduct {
  constexpr uint64_t operator()(uint32_t a, uint32_t b) const { return uint64_t{a} * b; }
};

/// One of ten rounds, each with the next key. Device code may bring its own product of 32 by 32 bits: nvcc
/// makes 64 by 64 bits of this one.
template <class Product = WideProduct>
constexpr void philox_round(PhiloxWords& counter, const PhiloxKey& key, Product product = {}) {
  const uint64_t product0 = product(0xD2511F53, counter[0]);
  const uint64_t product1 = product(0xCD9E8D57, counter[2]);
  counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
             static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
}
constexpr PhiloxKey next_key(const PhiloxKey& key) { return {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85}; }
inline constexpr int kPhiloxRounds = 10;

/// Philox4x32-10: four random words from a counter and a key.
///
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
constexpr PhiloxWords philox4x32_10(PhiloxWords counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round, key = next_key(key)) philox_round(counter, key);
  return counter;
}
static_assert(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
              PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});

/// The dropout decision of one launch: which elements of p are kept.
///
/// Units:  i and j count within the sequence; head_index is batch * q_heads + head.
/// Source: contract section 3, step 8. Rows i and i + 8 with keys j and j + 1 are one Philox call.
struct Dropout {
  uint64_t seed = 0, offset = 0;
  uint64_t threshold = 0;  ///< an element is kept iff its word is at least this

  /// `p` is the probability of dropping, 0 <= p <= 1.
  static constexpr uint64_t threshold_of(double p) { return static_cast<uint64_t>(p * 4294967296.0 + 0.5); }

  constexpr PhiloxKey key() const {
    return {static_cast<uint32_t>(seed),
            static_cast<uint32_t>(seed >> 32) ^ static_cast<uint32_t>(offset >> 32)};
  }
  /// Of keys j & ~1 and j | 1 in rows i and i ^ 8.
  constexpr PhiloxWords counter(int64_t head_index, int64_t i, int64_t j) const {
    return {static_cast<uint32_t>(j >> 1), static_cast<uint32_t>(i & ~int64_t{8}),
            static_cast<uint32_t>(head_index), static_cast<uint32_t>(offset)};
  }
  /// Words of keys j & ~1 and j | 1 in row i (elements 0, 1) and in row i ^ 8 of the same call.
  constexpr PhiloxWords words(int64_t head_index, int64_t i, int64_t j) const {
    return philox4x32_10(counter(head_index, i, j), key());
  }

  constexpr bool keeps(int64_t head_index, int64_t i, int64_t j) const {
    const unsigned word = static_cast<unsigned>(2 * ((i >> 3) & 1) + (j & 1));
    return words(head_index, i, j)[word] >= threshold;
  }
};

}  // namespace attngraph
