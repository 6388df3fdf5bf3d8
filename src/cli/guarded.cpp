#include "cli/guarded.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "base/message.hpp"

namespace attngraph::cli {
namespace {

constexpr int64_t kGuardBytes = 256;  // wider than any vector store

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
  Result<MirroredMemory> block = MirroredMemory::allocate(
      size.memory, size.bytes + 2 * kGuardBytes + 2 * size.alignment + size.skewed_bytes);
  ATTNGRAPH_RETURN_IF_ERROR(block.status());
  memory.block_ = std::move(block).value();
  // An odd multiple of the alignment: code that needs more than the tensor promises must not get it.
  const uintptr_t first = reinterpret_cast<uintptr_t>(memory.block_.data()) + kGuardBytes;
  const uintptr_t odd = (first / alignment + 1) | 1;
  memory.begin_ = static_cast<size_t>(kGuardBytes + size.skewed_bytes) + (odd * alignment - first);
  return memory;
}

void GuardedMemory::fill(std::byte content, std::byte guard) {
  guard_ = guard;
  std::fill(block_.host().begin(), block_.host().end(), guard);
  std::fill(bytes().begin(), bytes().end(), content);
}

Status GuardedMemory::check_guards() const {
  const auto changed = [this](std::byte b) { return b != guard_; };
  const auto block = block_.host();
  const auto begin = block.begin() + static_cast<ptrdiff_t>(begin_);
  const auto end = begin + static_cast<ptrdiff_t>(bytes_);
  if (const auto count = std::count_if(block.begin(), begin, changed); count > 0) {
    const auto nearest = std::find_if(std::make_reverse_iterator(begin), block.rend(), changed);
    return fail(Code::kInternal, count, " bytes before the storage changed, the nearest ",
                nearest - std::make_reverse_iterator(begin) + 1, " before its first byte");
  }
  if (const auto count = std::count_if(end, block.end(), changed); count > 0)
    return fail(Code::kInternal, count, " bytes behind the storage changed, the nearest ",
                std::find_if(end, block.end(), changed) - end + 1, " behind its last byte");
  return Status();
}

}  // namespace attngraph::cli
