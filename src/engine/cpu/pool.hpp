#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/executor.hpp"

namespace attngraph {

/// A small persistent pool; the calling thread is one of its workers.
///
/// No thread starts before the first call that can use one. A caller that finds the pool busy, or
/// that runs in a fork of the process which started the threads, does the whole work itself.
///
/// Thread: run() may be called from many threads at once, and from inside a worker.
class Pool final : public Executor {
 public:
  /// `num_threads` counts the caller's.
  explicit Pool(int num_threads) : num_threads_(num_threads) {}
  ~Pool() override;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void run(int64_t num_workers, void (*worker)(void* arg, int64_t index), void* arg) override;

 private:
  struct Job {
    void (*worker)(void* arg, int64_t index) = nullptr;
    void* arg = nullptr;
    int64_t num_workers = 0;
    std::atomic<int64_t> next = 0;
  };

  bool has_threads();
  void open_job();
  void close_job();
  void serve();
  bool wait_for_job(uint32_t seen);
  static void work(Job& job);

  const int num_threads_;
  std::atomic<bool> busy_ = false;
  pid_t owner_ = 0;  ///< the process that started the threads; 0: none has
  std::vector<pthread_t> threads_;

  Job job_;
  std::atomic<uint32_t> epoch_ = 0;  ///< counts openings and closings; odd: threads may join the job
  std::atomic<int> inside_ = 0;      ///< threads that have joined it
  std::atomic<bool> stop_ = false;
};

}  // namespace attngraph
