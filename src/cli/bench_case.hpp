#pragma once

#include <cstdint>

#include "attngraph/types.hpp"
#include "problem/problem.hpp"

namespace attngraph::cli {

enum class BenchMask : uint8_t {
  kFull,
  kCausal,
  kWindow,  ///< causal, of the last kWindowKeys keys
};
inline constexpr int64_t kWindowKeys = 1024;

/// How the sequences of a batch lie in memory.
enum class BenchPacking : uint8_t {
  kHeadsFirst,      ///< dense, batch, heads, len, dim: what PyTorch has
  kTokensFirst,     ///< dense, batch, len, heads, dim: memory order of the packed ones
  kPacked,          ///< without gaps, stats tokens first
  kOneLong,         ///< the same of the lengths kOneLongLens
  kPackedWithGaps,  ///< kGapSlots free token slots before each sequence, stats heads first
  kUnequal,         ///< as kTokensFirst; of k and v every multiple of kv_len / batch is a length, in no order
};

/// What scores have besides a scale and a band.
enum class BenchScores : uint8_t {
  kPlain,
  kSoftcap,  ///< of kCap
  kMask,     ///< of each sequence, [b, 1, q, kv]; it keeps half of the keys
  kBias,     ///< of each head, [1, h, q, kv], of q's type
  kDbias,    ///< the same, of which backward gives the gradient, too
  kDropout,  ///< with probability kDroppedShare
};
inline constexpr double kCap = 30.0, kDroppedShare = 0.1;

/// One attention problem that is timed. A packed one has the lengths kPackedLens or kOneLongLens, q_len is
/// the longest.
struct AttentionCase {
  const char* name;
  Pass pass;
  DataType dtype;
  int64_t batch, q_heads, kv_heads, q_len, kv_len, dim;
  BenchMask mask;
  BenchPacking packing;
  int64_t v_dim = dim;
  bool deterministic = false;
  int64_t page_size = 0;  ///< of k and v, tokens before heads; 0: not paged
  BenchScores scores = BenchScores::kPlain;
};

constexpr bool is_packed(const AttentionCase& c) {
  return c.packing == BenchPacking::kPacked || c.packing == BenchPacking::kPackedWithGaps ||
         c.packing == BenchPacking::kOneLong;
}

}  // namespace attngraph::cli
