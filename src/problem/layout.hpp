#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "problem/buffers.hpp"
#include "problem/problem.hpp"

namespace attngraph {

/// The only home of footprint, overlap, ragged and paged arithmetic. Everything here is pure; what
/// reads lengths, offsets or tables takes host pointers (host_rows.hpp).

// --- the meaning of an axis --------------------------------------------------------------------
inline int64_t batch(const Operand& t) { return t.extent[0]; }
inline int64_t heads(const Operand& t) { return t.extent[1]; }
inline int64_t len(const Operand& t) { return t.extent[2]; }
inline int64_t dim(const Operand& t) { return t.extent[3]; }
inline int64_t batch_stride(const Operand& t) { return t.stride[0]; }
inline int64_t head_stride(const Operand& t) { return t.stride[1]; }
inline int64_t len_stride(const Operand& t) { return t.stride[2]; }
inline int64_t dim_stride(const Operand& t) { return t.stride[3]; }

// --- footprints --------------------------------------------------------------------------------
struct Axis {
  int64_t extent = 0, stride = 0;
};

/// Elements from the first to one past the last that a tensor can address.
///
/// Axes:   extent and stride of each axis. A ragged tensor brings no batch axis, and its
///         sequence axis has the extent of its capacity in token slots, gaps included.
/// Units:  elements; 0 if any extent is 0. Callers scale by element size, once.
/// Errors: kInvalidGraph on a negative extent or stride, or int64 overflow.
Result<int64_t> footprint_elems(std::span<const Axis> axes);

/// The axes that a tensor's storage spans: its own, or heads, capacity and dim when it is ragged.
/// With bounds: those of one call, which may bring fewer sequences, slots or pages than declared.
struct StorageAxes {
  std::array<Axis, 4> axes;
  int64_t count = 0;
  std::span<const Axis> span() const { return {axes.data(), static_cast<size_t>(count)}; }
};
StorageAxes storage_axes(const Problem& problem, Role role);
StorageAxes storage_axes(const Problem& problem, Role role, const Bounds& bounds);

/// Footprints of a validated problem, in elements and in bytes: validate() has proved them inside
/// int64.
int64_t footprint_elems(const Problem& problem, Role role);
int64_t footprint_bytes(const Problem& problem, Role role);
int64_t footprint_bytes(const Problem& problem, Role role, const Bounds& bounds);
/// Bytes of the offset tensor of a ragged operand, for `batch` sequences.
int64_t offsets_footprint_bytes(const Operand& tensor, int64_t batch);

// --- overlap, decided by elements ----------------------------------------------------------------
enum class Overlap : uint8_t { kNone, kSome, kTooIrregular };

/// Whether two different indices of one tensor address the same element. kTooIrregular: more than
/// about 10^6 candidates would have to be tried.
Overlap self_overlap(std::span<const Axis> axes);

/// Whether tensor a at byte 0 and tensor b at byte `b_offset_bytes` share a byte.
struct Extent {
  std::span<const Axis> axes;
  int64_t element_bytes = 1;
};
Overlap mutual_overlap(const Extent& a, const Extent& b, int64_t b_offset_bytes);

// --- sequences -----------------------------------------------------------------------------------
/// A bound length clamped to [0, limit].
constexpr int64_t clamped_len(int64_t len, int64_t limit) {
  return len < 0 ? 0 : (len > limit ? limit : len);
}

/// The length that two neighbouring cumulative lengths give, clamped to [0, limit]. Exact for any pair.
constexpr int64_t clamped_difference(int64_t begin, int64_t end, int64_t limit) {
  if (end <= begin) return 0;
  const uint64_t difference = static_cast<uint64_t>(end) - static_cast<uint64_t>(begin);
  return difference > static_cast<uint64_t>(limit) ? limit : static_cast<int64_t>(difference);
}

/// What rows_inside() asks of a ragged tensor.
struct RaggedRows {
  int64_t heads = 0, len = 0, dim = 0, len_stride = 0, multiplier = 1;
};

inline RaggedRows ragged_rows(const Operand& t) {
  return {heads(t), len(t), dim(t), len_stride(t), t.multiplier};
}

/// How many rows of a sequence that begins at element `offset * multiplier` lie wholly inside a
/// ragged tensor's footprint over `slots` token slots (contract section 7). Exact for any offset.
constexpr int64_t rows_inside(const RaggedRows& t, int64_t slots, int64_t offset) {
  if (offset < 0 || t.multiplier < 0) return 0;
  if (t.multiplier > 0 && offset > std::numeric_limits<int64_t>::max() / t.multiplier) return 0;
  const int64_t start = offset * t.multiplier;
  if (t.heads == 0 || t.dim == 0) return t.len;  // no element to lie outside
  if (slots == 0) return 0;
  if (t.len_stride == 0) return start == 0 ? t.len : 0;
  const int64_t skipped = start / t.len_stride + (start % t.len_stride != 0 ? 1 : 0);
  return clamped_len(slots - skipped, t.len);
}
inline int64_t rows_inside(const Operand& tensor, int64_t slots, int64_t offset) {
  return rows_inside(ragged_rows(tensor), slots, offset);
}

}  // namespace attngraph
