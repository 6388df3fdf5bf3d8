#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/checked.hpp"
#include "engine/executor.hpp"
#include "plan/engine.hpp"

namespace attngraph::cpu {

/// A region of the workspace, or nothing.
struct Shared {
  RegionId region;
  int64_t bytes = 0;

  template <class T>
  T* at(const PlacedWorkspace& workspace) const {
    return bytes == 0 ? nullptr : reinterpret_cast<T*>(workspace[region]);
  }
};

/// A region that holds the same array for each worker, or nothing.
struct PerWorker {
  Shared all;
  int64_t bytes = 0;  ///< of one worker

  template <class T>
  T* at(const PlacedWorkspace& workspace, int64_t worker) const {
    return bytes == 0 ? nullptr : reinterpret_cast<T*>(all.at<std::byte>(workspace) + worker * bytes);
  }
};

/// Books arrays by worker; remembers the first failure, so that a list of bookings reads as a list.
class Booker {
 public:
  Booker(WorkspaceLayout& layout, int64_t workers) : layout_(layout), workers_(workers) {}

  /// An array of T for each worker; none where an extent is 0.
  template <class T>
  PerWorker per_worker(const char* name, std::initializer_list<int64_t> extents) {
    constexpr int64_t kCacheLine = 64;
    PerWorker part;
    part.bytes = round_up(product(name, {product(name, extents), int64_t{sizeof(T)}}), kCacheLine);
    part.all = book(name, product(name, {part.bytes, workers_}));
    return part;
  }

  /// One array of T for all workers; none where an extent is 0.
  template <class T>
  Shared shared(const char* name, std::initializer_list<int64_t> extents) {
    return book(name, product(name, {product(name, extents), int64_t{sizeof(T)}}));
  }

  const Status& status() const { return status_; }

 private:
  int64_t product(const char* name, std::initializer_list<int64_t> factors) {
    const Result<int64_t> product = checked_product(factors, name);
    if (!product.ok() && status_.ok()) status_ = product.status();
    return product.ok() ? *product : 0;
  }

  Shared book(const char* name, int64_t bytes) {
    if (bytes == 0 || !status_.ok()) return {};
    Booking booking;
    booking.name = name;
    booking.bytes = bytes;
    const Result<RegionId> region = layout_.book(std::move(booking));
    if (!region.ok()) status_ = region.status();
    return {region.ok() ? *region : RegionId{}, bytes};
  }

  WorkspaceLayout& layout_;
  int64_t workers_;
  Status status_;
};

/// Calls body(item, worker) for every item; each worker draws the next item that nobody has.
template <class Body>
void for_each_item(Executor& executor, int64_t workers, int64_t items, const Body& body) {
  struct Items {
    const Body& body;
    int64_t items;
    std::atomic<int64_t> next = 0;
  } all_items{body, items};
  const auto work = [](void* arg, int64_t worker) {
    Items& all = *static_cast<Items*>(arg);
    for (int64_t item; (item = all.next.fetch_add(1, std::memory_order_relaxed)) < all.items;)
      all.body(item, worker);
  };
  if (items > 0) executor.run(workers < items ? workers : items, work, &all_items);
}

}  // namespace attngraph::cpu
