#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "attngraph/band.hpp"
#include "attngraph/types.hpp"
#include "graph/role.hpp"

namespace attngraph::cuda {

/// Division of numbers below 2^31 by a constant: multiply, take the high word, shift.
///
/// Source: Granlund, Montgomery, "Division by invariant integers using multiplication", PLDI 1994.
struct Divisor {
  uint32_t divisor = 1, multiplier = 0, shift = 0;

  constexpr Divisor() = default;
  constexpr explicit Divisor(uint32_t d) : divisor(d) {
    if (d <= 1) return;
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << (31 + shift)) + d - 1) / d);
  }
  constexpr uint32_t quotient(uint32_t n) const {
    if (divisor == 1) return n;
    return static_cast<uint32_t>((uint64_t{n} * multiplier) >> 31 >> shift);
  }
  constexpr uint32_t remainder(uint32_t n) const { return n - quotient(n) * divisor; }
};

/// One tensor as kernels see it.
///
/// Units: elements. `slots` counts token slots of a ragged tensor, `pages` those of a paged container,
///        whose page size is `len`.
struct TensorView {
  std::byte* data = nullptr;
  const std::byte* offsets = nullptr;
  int64_t stride[4] = {};
  int64_t multiplier = 1, offsets_stride = 0, slots = 0, pages = 0;
  int32_t extent[4] = {};
  DataType dtype = DataType::kF32, offsets_dtype = DataType::kI32;
  Side side = Side::kNone;
  bool present = false, ragged = false;
};

/// A block of dq's sums: so many rows of a sequence and head by so many columns.
inline constexpr int kDqRows = 64, kDqColumns = 64;
/// Blocks of a head, as dq_turn() numbers them: whole ones by the multiple of kDqRows among their slots, and
/// one that is not whole for each sequence.
constexpr int64_t dq_blocks(int64_t slots, int64_t sequences) { return slots / kDqRows + 1 + sequences; }

/// What one part of its keys knows of a row: the maximum of its scores and the sum of weights relative to it.
/// Their log-sum-exp alone would lose the sum beside a large maximum.
struct PartRow {
  float maximum, sum;
};

/// Engine-owned memory of one launch; null where the plan has none.
///
/// Rows are "packed rows": [kv head of the slice][slot][query head of the group], see PackedRows.
struct Scratch {
  float* delta = nullptr;           ///< by packed row: sum of do * o
  float* lse = nullptr;             ///< by packed row: stats in natural units, +inf where nothing is kept
  float* row_slopes = nullptr;      ///< by packed row: sum over keys of ds * (key - diagonal)
  float* dq = nullptr;              ///< sums of dq / scale, see dq_sums()
  int32_t* dq_turns = nullptr;      ///< tiles of keys that have added to each block of dq; null: in any order
  float* partial_o = nullptr;       ///< [split][packed row][v_dim], divided by the sum
  PartRow* partial_rows = nullptr;  ///< [split][packed row]: scores in natural units
  float* dbias = nullptr;           ///< sums over slices, dense in dbias's extents
  float* dsink = nullptr;           ///< [q_heads]
  float* dslopes = nullptr;         ///< [batch][q_heads]
};

/// The one argument of every kernel.
///
/// Units: tensors and sizes are the whole problem's; the slice says which part a launch covers.
struct Params {
  TensorView tensors[kNumRoles];
  Scratch scratch;
  Band band;
  int64_t batch_strides[kNumRoles] = {};  ///< of tensors whose sequences begin at multiples of it, else 0
  uint32_t ragged_roles = 0;              ///< a bit each
  int64_t packed_slots = 0;               ///< slots of a kv head in a packed row array
  uint64_t dropout_threshold = 0;
  int32_t batch_begin = 0, batch_count = 0, kv_head_begin = 0, kv_head_count = 0;
  int32_t batch = 0, q_heads = 0, group = 1, q_len = 0, kv_len = 0, qk_dim = 0, v_dim = 0;
  int32_t row_tiles = 0;      ///< tiles of one head and sequence, the fastest grid index
  int32_t num_splits = 1;     ///< parts of a row tile's keys, the next grid index
  int32_t merged_splits = 1;  ///< parts that the merge joins
  int32_t slot_role = -1;     ///< ragged tensor whose slots place packed rows; -1: dense
  float scale = 1.0f, softcap = 0.0f;
  float scale_log2 = 1.0f;     ///< scale * log2(e)
  float dropout_scale = 1.0f;  ///< 1 / (1 - p); 0 when everything is dropped
  bool dropout = false, stats_base2 = false;
  bool from_last = false;  ///< run row tiles from the last
  Divisor by_group, by_k_page, by_v_page;

  constexpr const TensorView& operator[](Role role) const { return tensors[static_cast<size_t>(role)]; }
  constexpr TensorView& operator[](Role role) { return tensors[static_cast<size_t>(role)]; }
};
/// A tensor as the copy engine of sm_90 sees it: a CUtensorMap.
struct alignas(128) TensorMap {
  std::byte bytes[128];
};

/// The second argument of the sm_90a kernels.
struct HopperCopies {
  TensorMap q, k, v, dout;         ///< boxes of 64 columns by the rows of a tile, or of a piece of its keys
  int32_t key_box_rows = 0;        ///< of such a piece, which lies on one page
  int32_t tiles = 0;               ///< of all heads and sequences
  int32_t heads_together = 1;      ///< neighbouring heads of a section, see HopperPlace
  int32_t sequences_together = 0;  ///< where lengths are given, at most 32: so many sequences of these heads
  bool bias_in_chunks = false, mask_in_chunks = false;  ///< 16 bytes of a row at a time
};
static_assert(std::is_trivially_copyable_v<Params>);
static_assert(sizeof(Params) <= 4096, "a kernel's arguments on every driver");

}  // namespace attngraph::cuda
