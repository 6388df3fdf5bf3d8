#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include "engine/cudnn/library.hpp"

namespace attngraph::cudnn {

/// A cuDNN handle, the device it was made on and the stream it was last set to.
struct Handle {
  cudnnHandle_t raw = nullptr;
  int device = 0;
  void* stream = nullptr;
};

/// Handles of all devices. One thread at a time uses a handle, as cuDNN demands; it takes a free one and
/// gives it back, without a lock. A handle is made when more threads run at once than ever before.
///
/// Thread: every member may be called from many threads at once.
class Handles {
 public:
  explicit Handles(std::shared_ptr<const Library> library) : library_(std::move(library)) {}
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles();

  /// A handle in use, given back with this object.
  class Lease {
   public:
    Lease(Handles& owner, Handle* handle) : owner_(&owner), handle_(handle) {}
    Lease(Lease&& other) noexcept : owner_(other.owner_), handle_(std::exchange(other.handle_, nullptr)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (handle_ != nullptr) owner_->give_back(handle_);
    }
    cudnnHandle_t raw() const { return handle_->raw; }

   private:
    Handles* owner_;
    Handle* handle_;
  };

  /// A handle of the current device, which is `device`, set to `stream`.
  Result<Lease> take(int device, void* stream);

 private:
  Handle* find_free(int device);
  void give_back(Handle* handle);
  void destroy(Handle* handle);

  static constexpr size_t kMostFree = 64;  ///< more are destroyed when they come back
  const std::shared_ptr<const Library> library_;
  std::array<std::atomic<Handle*>, kMostFree> free_ = {};
};

}  // namespace attngraph::cudnn
