#include "attngraph/context.hpp"

#include <thread>
#include <utility>

#include "base/message.hpp"
#include "engine/executor.hpp"
#include "engine/registry.hpp"
#include "plan/planner.hpp"
#include "problem/program.hpp"

namespace attngraph {
namespace {

/// Runs workers one after the other on the caller's thread, or on the host program's pool.
class HookExecutor : public Executor {
 public:
  explicit HookExecutor(const ExecutorHook& hook) : hook_(hook) {}
  void run(int64_t num_workers, void (*worker)(void* arg, int64_t index), void* arg) override {
    if (hook_.run != nullptr) return hook_.run(hook_.self, num_workers, worker, arg);
    for (int64_t index = 0; index < num_workers; ++index) worker(arg, index);
  }

 private:
  ExecutorHook hook_;
};

int threads_of(const ContextOptions& options) {
  if (options.num_threads > 0) return options.num_threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

struct Context::State {
  ContextOptions options;
  HookExecutor executor;
  std::shared_ptr<const EngineSet> engines;

  explicit State(const ContextOptions& given)
      : options(given), executor(given.executor), engines(std::make_shared<EngineSet>(make_engines(executor))) {}
};

Context::Context(const ContextOptions& options) : state_(std::make_unique<State>(options)) {}
Context::~Context() = default;

Target Context::host_target() const { return Target::cpu(threads_of(state_->options)); }

Result<Plan> Context::plan(const Graph& graph, const PlanOptions& options) {
  return plan(graph, host_target(), options);
}

Result<Plan> Context::plan(const Graph& graph, const Target& target, const PlanOptions& options) {
  auto valid = validate(graph);
  if (!valid.ok()) return valid.status();
  auto core = make_plan(valid->program, target, options, state_->engines);
  if (!core.ok()) return core.status();
  return Plan(std::make_shared<const PlanState>(std::move(core).value(), std::move(valid->slot_names)));
}

Result<std::vector<EngineSupport>> Context::support(const Graph& graph, const Target& target) const {
  const auto valid = validate(graph);
  if (!valid.ok()) return valid.status();
  std::vector<EngineSupport> answers;
  for (const auto& engine : state_->engines->engines) {
    EngineSupport answer{std::string(engine->name()), {}};
    for (const ProgramNode& node : valid->program.nodes) {
      EngineSupport one = engine_support(*engine, node.problem, target);
      answer.reasons.insert(answer.reasons.end(), one.reasons.begin(), one.reasons.end());
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

std::vector<std::string> Context::engines() const {
  std::vector<std::string> names;
  for (const auto& engine : state_->engines->engines) names.emplace_back(engine->name());
  return names;
}

CacheStatistics Context::cache_statistics() const { return {}; }

}  // namespace attngraph
