#include "cli/mirrored.hpp"

#include <utility>

#include "base/message.hpp"

namespace attngraph::cli {

Result<MirroredMemory> MirroredMemory::allocate(MemoryKind memory, int64_t bytes) {
  MirroredMemory made;
  made.bytes_ = static_cast<size_t>(bytes);
  made.host_.reset(static_cast<std::byte*>(::operator new (made.bytes_, std::align_val_t{kWorkspaceAlign})));
  if (memory == MemoryKind::kHost) return made;
  Result<device::Memory> device = device::Memory::allocate(bytes);
  ATTNGRAPH_RETURN_IF_ERROR(device.status());
  made.device_ = std::move(device).value();
  return made;
}

Status MirroredMemory::upload() { return device_.bytes() > 0 ? device_.copy_in(host_.get()) : Status(); }

Status MirroredMemory::download() { return device_.bytes() > 0 ? device_.copy_out(host_.get()) : Status(); }

Status wait_for(MemoryKind memory) { return memory == MemoryKind::kCuda ? device::synchronize() : Status(); }

}  // namespace attngraph::cli
