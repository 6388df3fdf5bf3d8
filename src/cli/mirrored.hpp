#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "attngraph/execute.hpp"
#include "device/device.hpp"

namespace attngraph::cli {

/// Memory that an engine works on and the host's view of it: the same bytes for an engine of the host, a
/// copy for an engine of a device. The only place where this program tells the two apart.
class MirroredMemory {
 public:
  /// Errors: kBackend when the device has no such memory.
  static Result<MirroredMemory> allocate(MemoryKind memory, int64_t bytes);

  /// The first byte as the engine addresses it, aligned to kWorkspaceAlign.
  std::byte* data() const { return device_.bytes() > 0 ? device_.data() : host_.get(); }
  std::span<std::byte> host() { return {host_.get(), bytes_}; }
  std::span<const std::byte> host() const { return {host_.get(), bytes_}; }

  /// Lets the engine see what the host has written.
  Status upload();
  /// Lets the host see what the engine has written, after all work of the device.
  Status download();

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{kWorkspaceAlign}); }
  };
  std::unique_ptr<std::byte, Free> host_;
  size_t bytes_ = 0;
  device::Memory device_;  ///< empty: the engine works on host_
};

/// Waits until what was launched for engines of `memory` has ended.
Status wait_for(MemoryKind memory);

}  // namespace attngraph::cli
