#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "problem/buffers.hpp"
#include "problem/layout.hpp"

namespace attngraph {

/// The rules for bound lengths, offsets and page tables (contract section 7), for the host and for device
/// code. `read(data, dtype, index)` gives an int32 or int64 element.

/// Entries `stride` elements apart.
struct EntryList {
  const std::byte* data = nullptr;
  DataType dtype = DataType::kI32;
  int64_t stride = 0;

  template <class Read>
  constexpr int64_t at(int64_t index, Read read) const {
    return read(data, dtype, index * stride);
  }
};

/// Lengths of one side, checked before they are used.
struct SideLengths {
  EntryList plain, cumulative;  ///< at most one; neither: `declared`
  int64_t declared = 0;

  template <class Read>
  constexpr int64_t of(int64_t batch, Read read) const {
    if (plain.data != nullptr) return plain.at(batch, read);
    if (cumulative.data != nullptr) return cumulative.at(batch + 1, read) - cumulative.at(batch, read);
    return declared;
  }
};

enum class EntryKind : uint8_t { kLength, kCuLength, kOffset, kPage };

/// A list of entries and what each must keep.
struct EntryCheck {
  EntryKind kind = EntryKind::kLength;
  Role role = Role::kSeqLenQ;  ///< of an offset list: the ragged tensor's
  EntryList list;
  int64_t count = 0;                       ///< entries
  int64_t limit = 0;                       ///< the longest length, token slots, or pages
  SideLengths lengths;                     ///< kOffset, kPage
  RaggedRows rows;                         ///< kOffset; its last entry begins no sequence
  bool disjoint = false;                   ///< kOffset: sequences share no token slot
  int64_t columns = 1, column_stride = 0;  ///< kPage: entry [b, c] is number b * columns + c
  int64_t page_size = 1;                   ///< kPage
};

enum class EntryFault : uint8_t {
  kNone,
  kNegative,
  kDecreasing,
  kTooLong,
  kBeyondCapacity,
  kShared,
  kNoSuchPage
};

/// A wrong entry and the numbers that say why; all zero: none.
struct WrongEntry {
  EntryFault fault = EntryFault::kNone;
  int32_t check = 0;                  ///< number of its EntryCheck
  int64_t index = 0, column = 0;      ///< column: kPage
  int64_t value = 0, before = 0;      ///< before: the entry before it
  int64_t rows = 0, rows_inside = 0;  ///< kBeyondCapacity; kShared: rows of the sequence before it
};

template <class Read>
constexpr WrongEntry check_page(const EntryCheck& check, int64_t number, Read read) {
  WrongEntry entry;
  entry.index = number / check.columns, entry.column = number % check.columns;
  if (entry.column * check.page_size >= check.lengths.of(entry.index, read)) return {};
  entry.value = read(check.list.data, check.list.dtype,
                     entry.index * check.list.stride + entry.column * check.column_stride);
  if (entry.value < 0 || entry.value >= check.limit) entry.fault = EntryFault::kNoSuchPage;
  return entry;
}

/// Whether a sequence begins before the one before it ends, which lies within the capacity.
template <class Read>
constexpr bool shares_slots(const EntryCheck& check, WrongEntry& entry, Read read) {
  if (!check.disjoint || entry.index == 0) return false;
  entry.rows = check.lengths.of(entry.index - 1, read);
  const int64_t elems = entry.rows * check.rows.len_stride;
  return entry.value - entry.before < (elems + check.rows.multiplier - 1) / check.rows.multiplier;
}

/// Looks at one entry, of which those of earlier checks are right.
template <class Read>
constexpr WrongEntry check_entry(const EntryCheck& check, int64_t number, Read read) {
  if (check.kind == EntryKind::kPage) return check_page(check, number, read);
  WrongEntry entry;
  entry.index = number;
  entry.value = check.list.at(number, read);
  const bool grows = check.kind != EntryKind::kLength && number > 0;
  entry.before = grows ? check.list.at(number - 1, read) : 0;
  if (entry.value < 0) {
    entry.fault = EntryFault::kNegative;
  } else if (entry.value < entry.before) {
    entry.fault = EntryFault::kDecreasing;
  } else if (check.kind == EntryKind::kOffset) {
    if (number + 1 == check.count) return entry;
    entry.rows = check.lengths.of(number, read);
    entry.rows_inside = rows_inside(check.rows, check.limit, entry.value);
    if (entry.rows > entry.rows_inside)
      entry.fault = EntryFault::kBeyondCapacity;
    else if (shares_slots(check, entry, read))
      entry.fault = EntryFault::kShared;
  } else if ((grows || check.kind == EntryKind::kLength) && entry.value - entry.before > check.limit) {
    entry.fault = EntryFault::kTooLong;
  }
  return entry;
}

/// The checks of one call of a node, in the order in which they are made.
struct EntryChecks {
  std::array<EntryCheck, kNumRoles + 6> list;
  size_t count = 0;
  std::span<const EntryCheck> span() const { return {list.data(), count}; }
};
EntryChecks entry_checks(const Problem& problem, const Buffers& buffers);

}  // namespace attngraph
