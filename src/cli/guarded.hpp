#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "attngraph/status.hpp"
#include "cli/mirrored.hpp"

namespace attngraph::cli {

/// Memory between two guards that show whether anything was written outside of it.
class GuardedMemory {
 public:
  struct Size {
    int64_t bytes = 0;
    int64_t alignment = 1;     ///< of the first byte, which is a multiple of no larger power of two
    int64_t skewed_bytes = 0;  ///< added to the first byte's address on purpose
    MemoryKind memory = MemoryKind::kHost;  ///< of the engine that works on it
  };

  /// Errors: kInvalidGraph naming `what` when the size exceeds kMostBytes or the alignment is not a
  ///         power of two up to kMostAlignment; kBackend when the device has no such memory.
  static Result<GuardedMemory> make(const Size& size, const char* what);
  static constexpr int64_t kMostBytes = int64_t{1} << 32;
  static constexpr int64_t kMostAlignment = int64_t{1} << 16;

  /// Fills the memory with one byte and its guards with another.
  void fill(std::byte content, std::byte guard);
  /// As the host sees it: upload() after writing, download() before reading and before check_guards().
  std::span<std::byte> bytes() { return block_.host().subspan(begin_, bytes_); }
  std::span<const std::byte> bytes() const { return block_.host().subspan(begin_, bytes_); }
  std::byte* data() const { return block_.data() + begin_; }  ///< as the engine addresses it
  Status upload() { return block_.upload(); }
  Status download() { return block_.download(); }

  /// Errors: kInternal saying how many bytes beside the memory changed, and the nearest of them.
  Status check_guards() const;

 private:
  MirroredMemory block_;
  size_t begin_ = 0, bytes_ = 0;
  std::byte guard_ = {};
};

}  // namespace attngraph::cli
