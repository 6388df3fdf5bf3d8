#pragma once

#include <cstdint>

#include "engine/cuda/kernels/ptx.cuh"
#include "engine/cuda/params.hpp"
#include "problem/dropout.hpp"
#include "problem/layout.hpp"

namespace attngraph::cuda {

inline constexpr float kInf = __builtin_huge_valf();
inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

__device__ inline int64_t load_int(const std::byte* data, DataType dtype, int64_t index) {
  if (dtype == DataType::kI32) return reinterpret_cast<const int32_t*>(data)[index];
  return reinterpret_cast<const int64_t*>(data)[index];
}

/// One element of any float type.
__device__ inline float load_element(const TensorView& t, int64_t index) {
  if (t.dtype == DataType::kF32) return reinterpret_cast<const float*>(t.data)[index];
  if (t.dtype == DataType::kF16) return __half2float(reinterpret_cast<const __half*>(t.data)[index]);
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(t.data)[index]);
}

__device__ inline void store_element(const TensorView& t, int64_t index, float value) {
  if (t.dtype == DataType::kF32)
    reinterpret_cast<float*>(t.data)[index] = value;
  else if (t.dtype == DataType::kF16)
    reinterpret_cast<__half*>(t.data)[index] = __float2half_rn(value);
  else
    reinterpret_cast<__nv_bfloat16*>(t.data)[index] = __float2bfloat16_rn(value);
}

/// What a block reads once about its sequence: lengths as every engine must see them, and where each
/// tensor's rows begin.
struct Sequence {
  int batch, q_len, kv_len;
  int64_t slot;              ///< first packed slot
  int64_t start[kNumRoles];  ///< element of (batch, head 0, row 0); 0 for a paged container
  uint64_t seed, offset;     ///< of dropout
};

/// Bound length of one side before the cut to ragged footprints.
__device__ inline int bound_len(const Params& p, Role plain, Role cumulative, int declared, int batch) {
  if (const TensorView& t = p[plain]; t.present)
    return static_cast<int>(clamped_len(load_int(t.data, t.dtype, batch * t.stride[0]), declared));
  const TensorView& t = p[cumulative];
  if (!t.present) return declared;
  return static_cast<int>(clamped_difference(load_int(t.data, t.dtype, batch * t.stride[0]),
                                             load_int(t.data, t.dtype, (batch + 1) * t.stride[0]), declared));
}

/// Whether a sequence is more than arguments: its lengths and offsets are other launches' to write.
__device__ inline bool reads_bounds(const Params& p) {
  return p.ragged_roles != 0 || p[Role::kSeqLenQ].present || p[Role::kCuSeqLenQ].present ||
         p[Role::kSeqLenKv].present || p[Role::kCuSeqLenKv].present || p[Role::kDropoutSeed].present;
}

/// Fills `s` for sequence `batch`; a whole warp calls it and may read `s` on return. Lane r looks at the
/// tensor of role r.
__device__ inline void warp_loads_sequence(const Params& p, int batch, Sequence& s) {
  static_assert(kNumRoles + 3 <= 32, "a lane a role");
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kNoLimit = 0x7fffffff;
  int q_limit = kNoLimit, kv_limit = kNoLimit;
  if (lane < static_cast<int>(kNumRoles)) {
    // Lanes read constants at addresses of their own one after the other: few, and close together.
    int64_t start = batch * p.batch_strides[lane];
    if (p.ragged_roles >> lane & 1) {
      const TensorView& t = p.tensors[lane];
      const int64_t offset = load_int(t.offsets, t.offsets_dtype, batch * t.offsets_stride);
      // Where the product overflows there are no rows and the wrapped value is not used.
      start = static_cast<int64_t>(static_cast<uint64_t>(offset) * static_cast<uint64_t>(t.multiplier));
      const int64_t rows = rows_inside(
          RaggedRows{t.extent[1], t.extent[2], t.extent[3], t.stride[2], t.multiplier}, t.slots, offset);
      (t.side == Side::kQ ? q_limit : kv_limit) = static_cast<int>(rows);
      if (lane == p.slot_role) s.slot = rows > 0 && t.stride[2] > 0 ? start / t.stride[2] : 0;
    }
    s.start[lane] = start;
  } else if (lane == kNumRoles) {
    q_limit = bound_len(p, Role::kSeqLenQ, Role::kCuSeqLenQ, p.q_len, batch);
  } else if (lane == kNumRoles + 1) {
    kv_limit = bound_len(p, Role::kSeqLenKv, Role::kCuSeqLenKv, p.kv_len, batch);
  } else if (lane == kNumRoles + 2) {
    s.batch = batch;
    if (p.slot_role < 0) s.slot = int64_t{batch - p.batch_begin} * p.q_len;
    const TensorView& seed = p[Role::kDropoutSeed];
    const TensorView& offset = p[Role::kDropoutOffset];
    s.seed = seed.present ? static_cast<uint64_t>(load_int(seed.data, seed.dtype, 0)) : 0;
    s.offset = offset.present ? static_cast<uint64_t>(load_int(offset.data, offset.dtype, 0)) : 0;
  }
  q_limit = __reduce_min_sync(0xffffffffu, q_limit);
  kv_limit = __reduce_min_sync(0xffffffffu, kv_limit);
  if (lane == 0) s.q_len = q_limit, s.kv_len = kv_limit;
  __syncwarp();
}

/// The same for a whole block.
__device__ inline void load_sequence(const Params& p, int batch, Sequence& s) {
  if (threadIdx.x < 32) warp_loads_sequence(p, batch, s);
  __syncthreads();
}

/// Element of (head, row, 0).
__device__ inline int64_t row_offset(const Params& p, const Sequence& s, Role role, int head, int row) {
  const TensorView& t = p[role];
  return s.start[static_cast<size_t>(role)] + head * t.stride[1] + row * t.stride[2];
}

/// Page and row of a key in a paged container; page -1: outside of it.
struct PageRow {
  int page, row;
};
template <Role kRole>
__device__ inline PageRow page_row(const Params& p, const Sequence& s, int j) {
  static_assert(kRole == Role::kK || kRole == Role::kV);
  constexpr Role kTable = kRole == Role::kK ? Role::kPageTableK : Role::kPageTableV;
  const TensorView& table = p[kTable];
  const Divisor& by_page = kRole == Role::kK ? p.by_k_page : p.by_v_page;
  const uint32_t column = by_page.quotient(static_cast<uint32_t>(j));
  const int32_t page = reinterpret_cast<const int32_t*>(
      table.data)[s.start[static_cast<size_t>(kTable)] + int64_t{column} * table.stride[2]];
  return {page >= 0 && page < p[kRole].pages ? page : -1, j - static_cast<int>(column * by_page.divisor)};
}

/// Element of key `j` of k or v, or -1 when it is on a page outside the container.
template <Role kRole>
__device__ inline int64_t key_offset(const Params& p, const Sequence& s, int kv_head, int j) {
  if (!p[kRole == Role::kK ? Role::kPageTableK : Role::kPageTableV].present)
    return row_offset(p, s, kRole, kv_head, j);
  const TensorView& t = p[kRole];
  const PageRow at = page_row<kRole>(p, s, j);
  return at.page < 0 ? -1 : at.page * t.stride[0] + kv_head * t.stride[1] + at.row * t.stride[2];
}

/// True when k or v of key `j` is on a page outside its container.
__device__ inline bool is_absent(const Params& p, const Sequence& s, int kv_head, int j) {
  return key_offset<Role::kK>(p, s, kv_head, j) < 0 || key_offset<Role::kV>(p, s, kv_head, j) < 0;
}

/// Rows of a q-side output that a sequence owns: all declared ones of a dense output, padding included.
__device__ inline int rows_written(const TensorView& t, int len, int declared) {
  return t.ragged ? len : declared;
}

/// Rows of a packed array; one split of the partial results.
__device__ inline int64_t packed_rows(const Params& p) { return p.kv_head_count * p.packed_slots * p.group; }

/// The query rows of one kv head's group, interleaved: row r is query head r % group at position
/// r / group, so that a tile of rows shares its keys and covers few positions.
struct PackedRows {
  const Params& p;
  int kv_head;

  __device__ int position(int row) const {
    return static_cast<int>(p.by_group.quotient(static_cast<uint32_t>(row)));
  }
  __device__ int head(int row) const {
    return kv_head * p.group + static_cast<int>(p.by_group.remainder(static_cast<uint32_t>(row)));
  }
  __device__ int first_head() const { return kv_head * p.group; }
  /// Index of a row in the packed arrays of the scratch; inside them also for sequences whose bad
  /// offsets overlap.
  __device__ int64_t index(const Sequence& s, int row) const {
    const int64_t first = ((kv_head - p.kv_head_begin) * p.packed_slots + s.slot) * p.group;
    return min(first + row, packed_rows(p) - 1);
  }
};

/// A row's sums of columns kDqColumns * `plane` .. of dq. Rows of a head that follow each other are one
/// piece.
__device__ inline float* dq_sums(const Params& p, const Sequence& s, int head, int position, int plane) {
  const int64_t row = (head - p.kv_head_begin * p.group) * p.packed_slots + s.slot + position;
  return p.scratch.dq + (plane * packed_rows(p) + min(row, packed_rows(p) - 1)) * kDqColumns;
}
/// Where a thread's share of such a row begins: four floats for 16 columns. A thread of a fragment holds two
/// columns of each of two neighbouring accumulators. Neighbouring rows change sides, so that eight lanes
/// write two rows to shared memory through all banks.
__device__ inline int dq_position(int position, int sixteen, int lane_of_row) {
  return (16 * sixteen ^ (position & 1) << 4) + 4 * lane_of_row;
}
/// Counts the tiles of keys that have added to the block of rows `first` .. of a head.
__device__ inline int32_t* dq_turn(const Params& p, const Sequence& s, int head, int first, int plane) {
  const int64_t whole = (s.slot + first + kDqRows - 1) / kDqRows, of_sequence = s.batch - p.batch_begin;
  const int64_t most = p.packed_slots / kDqRows;
  const int64_t block = first + kDqRows <= s.q_len ? min(whole, most) : most + 1 + of_sequence;
  const int heads = p.kv_head_count * p.group, of_head = head - p.kv_head_begin * p.group;
  return p.scratch.dq_turns + (plane * heads + of_head) * dq_blocks(p.packed_slots, p.batch_count) + block;
}

/// Which part of the launch a block is: row tiles fastest, then splits, heads, sequences.
struct Block {
  int tile = 0, split = 0, head = 0, batch = 0;

  __device__ Block(const Params& p, int heads, int first_head) {
    unsigned index = blockIdx.x;
    const unsigned tiles = static_cast<unsigned>(p.row_tiles), splits = static_cast<unsigned>(p.num_splits);
    tile = static_cast<int>(index % tiles), index /= tiles;
    if (p.from_last) tile = p.row_tiles - 1 - tile;
    split = static_cast<int>(index % splits), index /= splits;
    head = first_head + static_cast<int>(index % static_cast<unsigned>(heads));
    batch = p.batch_begin + static_cast<int>(index / static_cast<unsigned>(heads));
  }
};

}  // namespace attngraph::cuda
