#include "cli/guarded.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/message.hpp"

namespace attngraph::cli {
namespace {

constexpr size_t kGuardBytes = 256;  // wider than any vector store

}  // namespace

Result<GuardedMemory> GuardedMemory::make(const Size& size, const char* what) {
  if (size.bytes < 0 || size.bytes > kMostBytes)
    return fail(Code::kInvalidGraph, what, ": needs ", size.bytes, " bytes; this program binds at most ",
                kMostBytes);
  if (size.alignment < 1 || size.alignment > kMostAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(size.alignment)))
    return fail(Code::kInvalidGraph, what, ": has alignment ", size.alignment,
                "; must be a power of two up to ", kMostAlignment);
  const auto alignment = static_cast<size_t>(size.alignment);
  GuardedMemory memory;
  memory.bytes_ = static_cast<size_t>(size.bytes);
  memory.block_.resize(memory.bytes_ + 2 * kGuardBytes + 2 * alignment +
                       static_cast<size_t>(size.skewed_bytes));
  // An odd multiple of the alignment: code that needs more than the tensor promises must not get it.
  const uintptr_t first = reinterpret_cast<uintptr_t>(memory.block_.data()) + kGuardBytes;
  const uintptr_t odd = (first / alignment + 1) | 1;
  memory.begin_ = kGuardBytes + (odd * alignment - first) + static_cast<size_t>(size.skewed_bytes);
  return memory;
}

void GuardedMemory::fill(std::byte content, std::byte guard) {
  guard_ = guard;
  std::fill(block_.begin(), block_.end(), guard);
  std::fill_n(block_.begin() + static_cast<ptrdiff_t>(begin_), bytes_, content);
}

Status GuardedMemory::check_guards() const {
  const auto changed = [this](std::byte b) { return b != guard_; };
  const auto begin = block_.begin() + static_cast<ptrdiff_t>(begin_);
  const auto end = begin + static_cast<ptrdiff_t>(bytes_);
  if (const auto count = std::count_if(block_.begin(), begin, changed); count > 0) {
    const auto nearest = std::find_if(std::make_reverse_iterator(begin), block_.rend(), changed);
    return fail(Code::kInternal, count, " bytes before the storage changed, the nearest ",
                nearest - std::make_reverse_iterator(begin) + 1, " before its first byte");
  }
  if (const auto count = std::count_if(end, block_.end(), changed); count > 0)
    return fail(Code::kInternal, count, " bytes behind the storage changed, the nearest ",
                std::find_if(end, block_.end(), changed) - end + 1, " behind its last byte");
  return Status();
}

}  // namespace attngraph::cli
