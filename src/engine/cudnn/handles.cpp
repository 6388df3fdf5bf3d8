#include "engine/cudnn/handles.hpp"

namespace attngraph::cudnn {

Handles::~Handles() {
  for (auto& place : free_)
    if (Handle* handle = place.load()) destroy(handle);
}

Handle* Handles::find_free(int device) {
  for (auto& place : free_) {
    Handle* handle = place.load();
    if (handle == nullptr) continue;
    handle = place.exchange(nullptr);
    if (handle == nullptr || handle->device == device) {
      if (handle != nullptr) return handle;
      continue;
    }
    give_back(handle);  // another device's
  }
  return nullptr;
}

void Handles::give_back(Handle* handle) {
  for (auto& place : free_) {
    Handle* none = nullptr;
    if (place.compare_exchange_strong(none, handle)) return;
  }
  destroy(handle);
}

void Handles::destroy(Handle* handle) {
  static_cast<void>((*library_)->destroy(handle->raw));
  delete handle;
}

Result<Handles::Lease> Handles::take(int device, void* stream) {
  Handle* handle = find_free(device);
  if (handle == nullptr) {
    auto made = std::make_unique<Handle>();
    made->device = device;
    const Status status = library_->status_of("cudnnCreate", (*library_)->create(&made->raw));
    if (!status.ok()) return status;
    handle = made.release();
  }
  Lease lease(*this, handle);
  if (handle->stream != stream) {
    const Status status = library_->status_of(
        "cudnnSetStream", (*library_)->set_stream(handle->raw, static_cast<cudaStream_t>(stream)));
    if (!status.ok()) return status;
    handle->stream = stream;
  }
  return lease;
}

}  // namespace attngraph::cudnn
