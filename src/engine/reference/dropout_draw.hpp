#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "engine/reference/scores.hpp"

namespace attngraph::reference {

/// Philox4x32 with ten rounds.
///
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
///         section 3.3: two multiplications a round give high and low halves, the high halves are
///         mixed with the other two words and the round's key, and the pairs change places. The round
///         keys are a Weyl sequence.
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> word, uint32_t key0, uint32_t key1) {
  for (uint32_t round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{word[0]} * 0xD2511F53u, odd = uint64_t{word[2]} * 0xCD9E8D57u;
    const uint32_t round_key0 = key0 + round * 0x9E3779B9u, round_key1 = key1 + round * 0xBB67AE85u;
    word[0] = static_cast<uint32_t>(odd >> 32) ^ word[1] ^ round_key0;
    word[2] = static_cast<uint32_t>(even >> 32) ^ word[3] ^ round_key1;
    word[1] = static_cast<uint32_t>(odd & 0xFFFFFFFFu);
    word[3] = static_cast<uint32_t>(even & 0xFFFFFFFFu);
  }
  return word;
}

/// The dropout of one call (contract section 3, step 8).
class DropoutDraw {
 public:
  DropoutDraw(const Problem& problem, const Buffers& buffers)
      : probability_(problem.dropout_p), q_heads_(problem.q_heads) {
    if (!problem.draws_dropout()) return;
    seed_ = entry(problem, buffers, Role::kDropoutSeed);
    offset_ = entry(problem, buffers, Role::kDropoutOffset);
  }

  /// What an element of p is multiplied by: 0 when it is dropped.
  double factor(int64_t batch, Place at) const {
    if (probability_ == 0.0) return 1.0;
    if (probability_ == 1.0) return 0.0;
    const uint64_t pair = static_cast<uint64_t>(at.key) / 2, row = static_cast<uint64_t>(at.row);
    const bool second_row = row / 8 % 2 == 1;
    const std::array<uint32_t, 4> words =
        philox({low(pair), low(second_row ? row - 8 : row),
                low(static_cast<uint64_t>(batch * q_heads_ + at.head)), low(offset_)},
               low(seed_), low(seed_ >> 32) ^ low(offset_ >> 32));
    const double word = words[(second_row ? 2u : 0u) + static_cast<uint64_t>(at.key) % 2];
    return word >= std::floor(probability_ * 0x1p32 + 0.5) ? 1.0 / (1.0 - probability_) : 0.0;
  }

 private:
  static uint64_t entry(const Problem& problem, const Buffers& buffers, Role role) {
    if (!problem.has(role)) return 0;
    return static_cast<uint64_t>(read_int(buffers[role], problem[role].dtype, 0));
  }
  static constexpr uint32_t low(uint64_t x) { return static_cast<uint32_t>(x & 0xFFFFFFFFu); }

  double probability_;
  int64_t q_heads_;
  uint64_t seed_ = 0, offset_ = 0;
};

}  // namespace attngraph::reference
