#pragma once

#include <cstdint>

namespace attngraph {

/// Runs the workers of a host engine: the context's own pool, or the host program's.
///
/// An engine starts one worker per thread of its plan and lets the workers draw items from an
/// atomic counter on its stack, so scratch memory is indexed by the worker and results do not depend on
/// which thread runs it.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Calls worker(arg, 0) .. worker(arg, num_workers - 1), possibly at once, and returns when all
  /// are done. Workers must not wait for each other: a busy pool runs them one after the other.
  virtual void run(int64_t num_workers, void (*worker)(void* arg, int64_t index), void* arg) = 0;
};

}  // namespace attngraph
