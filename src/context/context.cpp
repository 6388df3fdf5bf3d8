#include "attngraph/context.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/message.hpp"
#include "context/autotune.hpp"
#include "device/device.hpp"
#include "engine/cpu/isa.hpp"
#include "engine/cpu/pool.hpp"
#include "engine/registry.hpp"
#include "plan/cache.hpp"

namespace attngraph {
namespace {

/// Processors that the calling thread may run on.
int default_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  // More processors than the set has bits.
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int threads_of(const ContextOptions& options) {
  return options.num_threads > 0 ? options.num_threads : default_threads();
}

/// The host program's pool.
class HookExecutor final : public Executor {
 public:
  explicit HookExecutor(const ExecutorHook& hook) : hook_(hook) {}

  void run(int64_t num_workers, void (*worker)(void* arg, int64_t index), void* arg) override {
    hook_.run(hook_.self, num_workers, worker, arg);
  }

 private:
  ExecutorHook hook_;
};

std::unique_ptr<Executor> executor_of(const ContextOptions& options) {
  if (options.executor.run != nullptr) return std::make_unique<HookExecutor>(options.executor);
  return std::make_unique<Pool>(threads_of(options));
}

/// What plans keep alive beyond their context.
struct Runtime {
  explicit Runtime(const ContextOptions& options)
      : executor(executor_of(options)), engines(make_engines(*executor)) {}

  std::unique_ptr<Executor> executor;
  EngineSet engines;
};

std::shared_ptr<const EngineSet> engines_of(std::shared_ptr<const Runtime> runtime) {
  return {runtime, &runtime->engines};
}

Status check(const PlanOptions& options) {
  if (options.guard_bytes < 0)
    return fail(Code::kInvalidGraph, "guard_bytes: is ", options.guard_bytes, "; must not be negative");
  if (options.max_workspace_bytes.value_or(0) < 0)
    return fail(Code::kInvalidGraph, "max_workspace_bytes: is ", *options.max_workspace_bytes,
                "; must not be negative");
  return {};
}

}  // namespace

struct Context::State {
  explicit State(const ContextOptions& given)
      : options(given),
        engines(engines_of(std::make_shared<const Runtime>(given))),
        host(Target::cpu(threads_of(given), cpu::best_isa())),
        cache(given.cache_entries, given.cache_bytes) {}

  /// A fork copies locks in the state that other threads held them in.
  Status check_process() const {
    if (const pid_t here = getpid(); here != owner)
      return fail(Code::kUnsupported, "context: was made in process ", owner, " and is used in its fork ",
                  here, "; make a context after the fork");
    return {};
  }

  void log_plan(const PlanCore& core) const {
    if (options.log.write == nullptr) return;
    for (size_t n = 0; n < core.nodes.size(); ++n) {
      const std::string line =
          text("planned ", core.program.nodes[n].problem, " on ", core.nodes[n].engine->name());
      options.log.write(options.log.self, LogLevel::kInfo, line.c_str());
    }
  }

  PlanCache::Answer build(const PlanKey& key) const {
    auto core = make_plan(key.program, key.target, key.options, engines);
    if (core.ok()) log_plan(**core);
    return core;
  }

  const ContextOptions options;
  const std::shared_ptr<const EngineSet> engines;
  const Target host;
  const pid_t owner = getpid();
  PlanCache cache;
};

Context::Context(const ContextOptions& options) : state_(std::make_unique<State>(options)) {}
Context::~Context() = default;

Target Context::host_target() const { return state_->host; }

Result<Target> Context::target_of(const std::string& engine) const {
  if (engine.empty()) return state_->host;
  ATTNGRAPH_RETURN_IF_ERROR(state_->engines->named(engine).status());
  if (state_->engines->memory_of(engine) == MemoryKind::kHost) return state_->host;
  Result<Target> target = device::cuda_target();
  if (!target.ok()) return fail(target.status().code(), "engine ", engine, ": ", target.status().message());
  for (const auto& made : state_->engines->engines) made->complete(*target);
  return target;
}

Result<Plan> Context::plan(const Graph& graph, const PlanOptions& options) {
  const Result<Target> target = target_of(options.engine);
  ATTNGRAPH_RETURN_IF_ERROR(target.status());
  return plan(graph, *target, options);
}

Result<Plan> Context::plan(const Graph& graph, const Target& target, const PlanOptions& options) {
  ATTNGRAPH_RETURN_IF_ERROR(state_->check_process());
  ATTNGRAPH_RETURN_IF_ERROR(check(options));
  auto validated = validate(graph);
  if (!validated.ok()) return validated.status();
  auto core = state_->cache.find_or_build({std::move(validated->program), target, options},
                                          [this](const PlanKey& key) { return state_->build(key); });
  if (!core.ok()) return core.status();
  return Plan(std::make_shared<const PlanState>(std::move(*core), std::move(validated->slot_names)));
}

Result<Plan> Context::autotune(const Plan& plan, const Bindings& bindings, Workspace workspace,
                               void* stream) {
  return autotune(plan, bindings.table(), CallSizes{}, workspace, stream);
}

Result<Plan> Context::autotune(const Plan& plan, const PointerTable& pointers, const CallSizes& sizes,
                               Workspace workspace, void* stream) {
  ATTNGRAPH_RETURN_IF_ERROR(state_->check_process());
  const PlanState& known = plan.state();
  if (known.core->engines != state_->engines)
    return fail(Code::kBadBinding, "autotune: the plan is another context's; must be one of this context");
  auto core = autotuned(known, {pointers, sizes, workspace, stream});
  if (!core.ok()) return core.status();
  state_->cache.replace({(*core)->program, (*core)->target, (*core)->options}, core);
  return Plan(std::make_shared<const PlanState>(std::move(*core), known.names));
}

Result<std::vector<EngineSupport>> Context::support(const Graph& graph, const Target& target) const {
  auto validated = validate(graph);
  if (!validated.ok()) return validated.status();
  std::vector<EngineSupport> answers;
  for (const auto& engine : state_->engines->engines) {
    EngineSupport answer{std::string(engine->name()), {}};
    for (const ProgramNode& node : validated->program.nodes)
      for (Reason& reason : engine_support(*engine, node.problem, target).reasons)
        answer.reasons.push_back(std::move(reason));
    answers.push_back(std::move(answer));
  }
  return answers;
}

std::vector<std::string> Context::engines() const {
  std::vector<std::string> names;
  for (const auto& engine : state_->engines->engines) names.emplace_back(engine->name());
  return names;
}

CacheStatistics Context::cache_statistics() const { return state_->cache.statistics(); }

}  // namespace attngraph
