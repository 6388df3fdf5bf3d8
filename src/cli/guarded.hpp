#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attngraph/status.hpp"

namespace attngraph::cli {

/// Host memory between two guards that show whether anything was written outside of it.
class GuardedMemory {
 public:
  struct Size {
    int64_t bytes = 0;
    int64_t alignment = 1;     ///< of the first byte, which is a multiple of no larger power of two
    int64_t skewed_bytes = 0;  ///< added to the first byte's address on purpose
  };

  /// Errors: kInvalidGraph naming `what` when the size exceeds kMostBytes or the alignment is not a
  ///         power of two up to kMostAlignment.
  static Result<GuardedMemory> make(const Size& size, const char* what);
  static constexpr int64_t kMostBytes = int64_t{1} << 32;
  static constexpr int64_t kMostAlignment = int64_t{1} << 16;

  /// Fills the memory with one byte and its guards with another.
  void fill(std::byte content, std::byte guard);
  std::span<std::byte> bytes() { return {block_.data() + begin_, bytes_}; }
  std::span<const std::byte> bytes() const { return {block_.data() + begin_, bytes_}; }

  /// Errors: kInternal saying how many bytes beside the memory changed, and the nearest of them.
  Status check_guards() const;

 private:
  std::vector<std::byte> block_;
  size_t begin_ = 0, bytes_ = 0;
  std::byte guard_ = {};
};

}  // namespace attngraph::cli
