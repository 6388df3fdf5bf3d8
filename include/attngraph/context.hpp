#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attngraph/execute.hpp"
#include "attngraph/plan.hpp"

namespace attngraph {

enum class LogLevel : uint8_t { kError, kWarning, kInfo };

/// Receives one line without a newline. Must not call back into the context.
struct LogCallback {
  void (*write)(void* self, LogLevel level, const char* line) = nullptr;
  void* self = nullptr;
};

/// A host program's own thread pool: runs task(arg, 0) .. task(arg, num_tasks - 1), in any order and
/// on any threads, and returns when all are done.
struct ExecutorHook {
  void (*run)(void* self, int64_t num_tasks, void (*task)(void* arg, int64_t index), void* arg) = nullptr;
  void* self = nullptr;
};

struct ContextOptions {
  int num_threads = 0;  ///< host threads a plan may use; 0: as many as the calling thread may run on
  ExecutorHook executor;
  LogCallback log;
  int64_t cache_entries = 256;     ///< plans kept; 0: no cache
  int64_t cache_bytes = 64 << 20;  ///< their estimated host memory
};

struct CacheStatistics {
  int64_t hits = 0, misses = 0, builds = 0, evictions = 0, entries = 0;
};

/// Owns the engines, the plan cache, the thread pool and the callbacks. There is no global state:
/// contexts are independent of each other.
///
/// Thread: every member may be called from many threads at once.
class ATTNGRAPH_API Context {
 public:
  explicit Context(const ContextOptions& options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// The target of this machine's host.
  Target host_target() const;
  /// Where an engine runs on this machine: its host, or the current CUDA device. An empty name: the host.
  ///
  /// Errors: kUnsupported "engine: is <name>; this build has ...", "engine <name>: no CUDA device: ...".
  Result<Target> target_of(const std::string& engine) const;

  /// Validates the graph and plans it for this machine: for target_of(options.engine), without an engine
  /// for the host.
  Result<Plan> plan(const Graph& graph, const PlanOptions& options = {});
  /// Errors: kInvalidGraph from validation; kUnsupported naming every engine with its reasons.
  Result<Plan> plan(const Graph& graph, const Target& target, const PlanOptions& options = {});

  /// Times the ways in which the plan's engines can run it, on this memory, and returns the plan in the
  /// fastest. It takes the plan's place in the cache, so that later calls of plan() for the same problem and
  /// options have it, too. Outputs are written; the device is waited for. A way that needs more workspace
  /// than is given is left out. An engine with one way leaves the plan as it is; explain() says so.
  ///
  /// Errors: those of execute; kBadBinding for a plan of another context; kUnsupported while `stream` is
  ///         captured.
  Result<Plan> autotune(const Plan& plan, const Bindings& bindings, Workspace workspace,
                        void* stream = nullptr);
  Result<Plan> autotune(const Plan& plan, const PointerTable& pointers, const CallSizes& sizes,
                        Workspace workspace, void* stream = nullptr);

  /// Every engine's answer, each with all its reasons, from the code that plans.
  Result<std::vector<EngineSupport>> support(const Graph& graph, const Target& target) const;
  /// Names of the engines of this build, in order of preference.
  std::vector<std::string> engines() const;
  CacheStatistics cache_statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attngraph
