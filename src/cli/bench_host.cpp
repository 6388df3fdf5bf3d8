#include <algorithm>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>

#include "attngraph/json.hpp"
#include "base/message.hpp"
#include "cli/bench_attention.hpp"
#include "device/device.hpp"
#include "plan/cache.hpp"
#include "problem/program.hpp"

namespace attngraph::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kCalls = 200;  ///< a sample: their time is far above the clock's resolution

/// Llama-3-8B's packed training step, at lengths that a host plans like any other.
constexpr AttentionCase kStep = {"packed training step",
                                 Pass::kBackward,
                                 DataType::kBf16,
                                 kPackedLens.size(),
                                 32,
                                 8,
                                 kPackedLens[0],
                                 kPackedLens[0],
                                 128,
                                 BenchMask::kCausal,
                                 BenchPacking::kPackedWithGaps};
constexpr AttentionCase kOneLaunch = {
    "one launch", Pass::kForward,   DataType::kBf16,          1, 1, 1, 64, 64,
    64,           BenchMask::kFull, BenchPacking::kHeadsFirst};
/// Several launches, each too short to fill the device's queue.
constexpr AttentionCase kShortBackward = {
    "short backward",   Pass::kBackward,          DataType::kBf16, 2, 8, 2, 512, 512, 128,
    BenchMask::kCausal, BenchPacking::kHeadsFirst};
constexpr AttentionCase kNothing = {
    "empty batch",      Pass::kForward,           DataType::kF32, 0, 8, 8, 128, 128, 64,
    BenchMask::kCausal, BenchPacking::kHeadsFirst};

using Body = std::function<Status()>;
using Prepare = std::function<Result<Body>(const BenchSetup&)>;

/// A row that times what `prepare` returns.
BenchRow row(std::string name, Prepare prepare, std::string ceiling = "") {
  return {std::move(name), std::move(ceiling), nullptr,
          [prepare = std::move(prepare)](const BenchSetup& setup) -> Result<Timing> {
            Result<Body> body = prepare(setup);
            ATTNGRAPH_RETURN_IF_ERROR(body.status());
            Timing timing;
            timing.seconds = average_of(kCalls, std::move(body).value());
            return timing;
          }};
}

/// A row that times how long the host takes to launch what `prepare` returns, less what `less` returns. The
/// device empties its queue outside of the measured time.
BenchRow launch_row(std::string name, Prepare prepare, std::string ceiling = "", Prepare less = nullptr) {
  const auto sampled = [](const Prepare& body,
                          const BenchSetup& setup) -> Result<std::function<Result<double>()>> {
    Result<Body> made = body(setup);
    ATTNGRAPH_RETURN_IF_ERROR(made.status());
    return std::function([sample = average_of(kCalls, std::move(made).value())]() -> Result<double> {
      ATTNGRAPH_RETURN_IF_ERROR(wait_for(MemoryKind::kCuda));
      return sample();
    });
  };
  return {std::move(name), std::move(ceiling), nullptr, [=](const BenchSetup& setup) -> Result<Timing> {
            auto whole = sampled(prepare, setup);
            ATTNGRAPH_RETURN_IF_ERROR(whole.status());
            Timing timing;
            timing.seconds = std::move(whole).value();
            if (less == nullptr) return timing;
            auto part = sampled(less, setup);
            ATTNGRAPH_RETURN_IF_ERROR(part.status());
            timing.seconds = [whole = std::move(timing.seconds),
                              part = std::move(part).value()]() -> Result<double> {
              const Result<double> all = whole(), of_part = part();
              ATTNGRAPH_RETURN_IF_ERROR(all.status());
              ATTNGRAPH_RETURN_IF_ERROR(of_part.status());
              return *all - *of_part;
            };
            return timing;
          }};
}

/// A row that times `use` of the step's backward graph.
BenchRow graph_row(std::string name, std::function<Status(const Graph&)> use) {
  return row(std::move(name), [use = std::move(use)](const BenchSetup&) -> Result<Body> {
    Result<TrainingPair> pair = bench_pair(kStep, forward_graph(kStep).graph);
    ATTNGRAPH_RETURN_IF_ERROR(pair.status());
    return Body([graph = std::move(pair->backward), use] { return use(graph); });
  });
}

// --- planning ------------------------------------------------------------------------------------
PlanOptions options_of(const BenchSetup& setup) {
  PlanOptions options;
  options.engine = setup.engine;
  return options;
}

/// Validates and plans in a context that keeps `cache_entries` plans.
Result<Body> plan_calls(const Graph& graph, const BenchSetup& setup, int64_t cache_entries) {
  ContextOptions options;
  options.num_threads = setup.target.num_threads;
  options.cache_entries = cache_entries;
  const auto context = std::make_shared<Context>(options);
  const PlanOptions plan_options = options_of(setup);
  ATTNGRAPH_RETURN_IF_ERROR(context->plan(graph, setup.target, plan_options).status());
  return Body([=, target = setup.target] { return context->plan(graph, target, plan_options).status(); });
}

BenchRow plan_row(std::string name, int64_t cache_entries) {
  return row(std::move(name), [cache_entries](const BenchSetup& setup) -> Result<Body> {
    const Result<TrainingPair> pair = bench_pair(kStep, forward_graph(kStep).graph);
    ATTNGRAPH_RETURN_IF_ERROR(pair.status());
    return plan_calls(pair->backward, setup, cache_entries);
  });
}

/// Planning of a packed forward of `batch` sequences.
BenchRow batch_row(std::string name, int64_t batch, std::string ceiling = "") {
  return row(
      std::move(name),
      [batch](const BenchSetup& setup) {
        AttentionCase problem = kStep;
        problem.pass = Pass::kForward;
        problem.batch = batch;
        return plan_calls(forward_graph(problem).graph, setup, /*cache_entries=*/0);
      },
      std::move(ceiling));
}

// --- the cache alone -----------------------------------------------------------------------------
/// A plan in a cache, and its key to look it up by.
class Lookups {
 public:
  Lookups(PlanKey key, std::shared_ptr<const PlanCore> core)
      : key_(std::move(key)), core_(std::move(core)), cache_(/*max_entries=*/16, /*max_bytes=*/1 << 20) {}

  /// The median time of one lookup, of kCalls by each of the threads at once.
  double median_seconds(size_t num_threads) {
    std::vector<std::vector<double>> seconds(num_threads);
    std::barrier start(static_cast<ptrdiff_t>(num_threads));
    std::vector<std::jthread> threads;
    for (std::vector<double>& own : seconds) threads.emplace_back([&] { look_up(own, start); });
    threads.clear();
    std::vector<double> all;
    for (const std::vector<double>& own : seconds) all.insert(all.end(), own.begin(), own.end());
    return quantile(std::move(all), 0.5);
  }

 private:
  void look_up(std::vector<double>& seconds, std::barrier<>& start) {
    std::vector<PlanKey> keys(static_cast<size_t>(kCalls), key_);  // a caller moves its key in
    const std::function build = [this](const PlanKey&) { return PlanCache::Answer(core_); };
    start.arrive_and_wait();
    for (PlanKey& key : keys) {
      const auto begin = Clock::now();
      static_cast<void>(cache_.find_or_build(std::move(key), build));
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }

  const PlanKey key_;
  const std::shared_ptr<const PlanCore> core_;
  PlanCache cache_;
};

BenchRow lookup_row(std::string name, size_t num_threads) {
  return {std::move(name), "", nullptr, [num_threads](const BenchSetup& setup) -> Result<Timing> {
            const Result<TrainingPair> pair = bench_pair(kStep, forward_graph(kStep).graph);
            ATTNGRAPH_RETURN_IF_ERROR(pair.status());
            const Result<Plan> plan = setup.context.plan(pair->backward, setup.target, options_of(setup));
            ATTNGRAPH_RETURN_IF_ERROR(plan.status());
            const std::shared_ptr<const PlanCore> core = plan->state().core;
            const auto lookups =
                std::make_shared<Lookups>(PlanKey{core->program, core->target, core->options}, core);
            Timing timing;
            timing.seconds = [=] { return Result<double>(lookups->median_seconds(num_threads)); };
            return timing;
          }};
}

// --- launches ------------------------------------------------------------------------------------
Result<Body> launch_a_kernel(const BenchSetup&) {
  auto bytes = device::Memory::allocate(256);
  ATTNGRAPH_RETURN_IF_ERROR(bytes.status());
  auto shared = std::make_shared<const device::Memory>(std::move(bytes).value());
  return Body([shared] { return device::write_guard(shared->data(), 0, shared->bytes(), nullptr); });
}

Result<Body> execute_case(const AttentionCase& problem, const BenchSetup& setup) {
  auto bench = AttentionBench::make(problem, setup);
  ATTNGRAPH_RETURN_IF_ERROR(bench.status());
  return Body([bench = std::move(bench).value()] { return bench->run(); });
}

Result<Body> launch_recorded(const AttentionCase& problem, const BenchSetup& setup) {
  auto bench = AttentionBench::make(problem, setup);
  ATTNGRAPH_RETURN_IF_ERROR(bench.status());
  auto recording = (*bench)->record();
  ATTNGRAPH_RETURN_IF_ERROR(recording.status());
  return Body([bench = *bench, recording = *recording] { return recording.launch(); });
}

Result<Body> execute_a_launch(const BenchSetup& setup) { return execute_case(kOneLaunch, setup); }

}  // namespace

BenchGroup host_group(MemoryKind memory) {
  BenchGroup group{"host", {}};
  const auto add = [&](BenchRow added) { group.rows.push_back(std::move(added)); };
  add(row("host/build the forward graph", [](const BenchSetup&) -> Result<Body> {
    return Body([] {
      static_cast<void>(forward_graph(kStep));
      return Status();
    });
  }));
  add(row("host/derive the training pair", [](const BenchSetup&) -> Result<Body> {
    return Body([forward = forward_graph(kStep).graph] { return bench_pair(kStep, forward).status(); });
  }));
  add(graph_row("host/validate", [](const Graph& graph) { return graph.validate(); }));
  add(plan_row("host/validate and plan", /*cache_entries=*/0));
  add(plan_row("host/validate and find the plan", /*cache_entries=*/16));
  add(lookup_row("host/find a plan", 1));
  add(lookup_row("host/find a plan, 8 threads", 8));
  add(batch_row("host/plan 4 sequences", 4));
  add(batch_row("host/plan 4096 sequences", 4096, "host/plan 4 sequences"));
  add(graph_row("host/print", [](const Graph& graph) {
    static_cast<void>(print(graph));
    return Status();
  }));
  add(graph_row("host/parse and print", [](const Graph& graph) { return parse(print(graph)).status(); }));
  add(row("host/execute an empty batch",
          [](const BenchSetup& setup) { return execute_case(kNothing, setup); }));
  if (memory == MemoryKind::kCuda) {
    add(launch_row("host/launch a kernel", launch_a_kernel));
    add(launch_row("host/execute a launch", execute_a_launch, "host/launch a kernel"));
    add(launch_row("host/execute a launch, less the launch", execute_a_launch, "", launch_a_kernel));
    add(launch_row("host/launch a recording",
                   [](const BenchSetup& setup) { return launch_recorded(kOneLaunch, setup); }));
    add(launch_row("host/execute a backward",
                   [](const BenchSetup& setup) { return execute_case(kShortBackward, setup); }));
    add(launch_row("host/launch a recorded backward",
                   [](const BenchSetup& setup) { return launch_recorded(kShortBackward, setup); }));
  }
  return group;
}

}  // namespace attngraph::cli
