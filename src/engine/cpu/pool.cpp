#include "engine/cpu/pool.hpp"

#include <sched.h>
#include <unistd.h>

namespace attngraph {
namespace {

/// About 20 us of looking for the next job before a thread parks: the phases of one run follow each
/// other faster, and a wake-up costs about as much.
constexpr int kSpins = 2000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Pool::~Pool() {
  // The threads of another process are not here: pthread_join would wait for ever.
  if (owner_ != getpid()) return;
  stop_ = true;
  epoch_ += 2;
  epoch_.notify_all();
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
}

void Pool::run(int64_t num_workers, void (*worker)(void* arg, int64_t index), void* arg) {
  if (num_workers > 1 && num_threads_ > 1 && !busy_.exchange(true, std::memory_order_acquire)) {
    if (has_threads()) {
      job_.worker = worker;
      job_.arg = arg;
      job_.num_workers = num_workers;
      job_.next = 0;
      open_job();
      work(job_);
      close_job();
      busy_.store(false, std::memory_order_release);
      return;
    }
    busy_.store(false, std::memory_order_release);
  }
  for (int64_t index = 0; index < num_workers; ++index) worker(arg, index);
}

/// Starts the threads at the first call; fewer are a slower pool, not a failure.
bool Pool::has_threads() {
  if (owner_ != 0) return owner_ == getpid() && !threads_.empty();
  owner_ = getpid();
  threads_.reserve(static_cast<size_t>(num_threads_ - 1));
  const auto body = [](void* pool) -> void* {
    static_cast<Pool*>(pool)->serve();
    return nullptr;
  };
  for (int i = 1; i < num_threads_; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, body, this) != 0) break;
    threads_.push_back(thread);
  }
  return !threads_.empty();
}

void Pool::open_job() {
  ++epoch_;
  epoch_.notify_all();
}

/// Nobody joins any more; returns when those inside have left.
void Pool::close_job() {
  ++epoch_;
  for (int spins = 0; inside_ != 0; ++spins)
    spins < kSpins ? pause_briefly() : static_cast<void>(sched_yield());
}

void Pool::serve() {
  for (uint32_t seen = 0; wait_for_job(seen);) {
    ++inside_;
    seen = epoch_;
    if (seen % 2 == 1) work(job_);
    --inside_;
  }
}

/// False when the pool ends.
bool Pool::wait_for_job(uint32_t seen) {
  for (int spins = 0; !stop_; ++spins) {
    const uint32_t epoch = epoch_;
    if (epoch % 2 == 1 && epoch != seen) return true;
    spins < kSpins ? pause_briefly() : epoch_.wait(epoch);
  }
  return false;
}

void Pool::work(Job& job) {
  for (int64_t index; (index = job.next.fetch_add(1, std::memory_order_relaxed)) < job.num_workers;)
    job.worker(job.arg, index);
}

}  // namespace attngraph
