#include <cstdlib>
#include <cstring>
#include <random>

#include "attngraph/execute.hpp"
#include "attngraph/training.hpp"
#include "engine/registry.hpp"
#include "problem/layout.hpp"
#include "support/catch.hpp"
#include "support/stub_engine.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

class InTurn final : public Executor {
  void run(int64_t num_workers, void (*worker)(void*, int64_t), void* arg) override {
    for (int64_t index = 0; index < num_workers; ++index) worker(arg, index);
  }
};

/// An engine of the library under limits that it does not have.
class LimitedEngine final : public Engine {
 public:
  LimitedEngine(const Engine& engine, std::vector<Limit> limits)
      : engine_(engine), limits_(std::move(limits)) {}
  std::string_view name() const override { return engine_.name(); }
  std::vector<Reason> refusals(const Problem& p, const Target& t) const override {
    return engine_.refusals(p, t);
  }
  std::span<const Limit> limits() const override { return limits_; }
  Result<std::unique_ptr<const EnginePlan>> plan(const Problem& p, const Target& t, const SliceShape& shape,
                                                 WorkspaceLayout& workspace) const override {
    return engine_.plan(p, t, shape, workspace);
  }

 private:
  const Engine& engine_;
  std::vector<Limit> limits_;
};

int64_t heads_of_launch(const Problem& p, const SliceShape& shape) {
  return shape.batch * shape.kv_heads * p.group();
}

/// A padded training step with grouped heads, a bias that is shared by all sequences, and a sink.
TrainingPair training_step() {
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kF32, bshd({3, 4, 5, 8}));
  node.k = graph.tensor("k", DataType::kF32, bhsd({3, 2, 7, 8}));
  node.v = graph.tensor("v", DataType::kF32, bhsd({3, 2, 7, 6}));
  node.bias = graph.tensor("bias", DataType::kF32, bhsd({1, 1, 5, 7}));
  node.sink = graph.vector("sink", DataType::kF32, 4);
  node.seq_len_q = graph.vector("q lengths", DataType::kI32, 3);
  node.seq_len_kv = graph.vector("kv lengths", DataType::kI32, 3);
  node.attributes.band = Band::causal(Align::kBottomRight);
  graph.sdpa_forward(node, true);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = wanted.bias = wanted.sink = true;
  auto pair = training_pair(graph, wanted).value();
  std::get<SdpaBackward>(pair.backward.nodes[0]).attributes.deterministic = true;
  return pair;
}

/// Bytes of every tensor after a run; inputs depend on the slot alone.
std::vector<std::vector<float>> run(const Plan& plan) {
  const PlanCore& core = *plan.state().core;
  std::vector<std::vector<float>> storage(core.slots.size());
  Bindings bindings(plan);
  for (size_t slot = 0; slot < storage.size(); ++slot) {
    std::mt19937 random(static_cast<unsigned>(slot));
    std::normal_distribution<float> normal;
    storage[slot].resize(static_cast<size_t>(core.slots[slot].footprint_bytes) / sizeof(float));
    const Role role = core.slots[slot].uses.front().role;
    if (role == Role::kSeqLenQ || role == Role::kSeqLenKv) {
      const int32_t lengths[] = {5, 0, 3};
      std::memcpy(storage[slot].data(), lengths, sizeof lengths);
    } else {
      for (float& value : storage[slot]) value = normal(random);
    }
    REQUIRE(bindings.set({static_cast<Uid>(slot) + 1, storage[slot].data(), -1}).ok());
  }
  const size_t bytes = static_cast<size_t>(plan.workspace_bytes());
  void* workspace = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  std::memset(workspace, 0xFF, bytes);
  const Status status = execute(plan, bindings, {workspace, plan.workspace_bytes()});
  INFO(status.message());
  REQUIRE(status.ok());
  CHECK(check_guards(plan, {workspace, plan.workspace_bytes()}).ok());
  std::free(workspace);
  return storage;
}

}  // namespace

TEST_CASE("an engine under artificial limits gives the bits of one launch", "[property]") {
  InTurn executor;
  const EngineSet set = make_engines(executor);
  const TrainingPair pair = training_step();
  for (const auto& engine : set.engines)
    for (const Graph* graph : {&pair.forward, &pair.backward}) {
      const Program program = validate(*graph).value().program;
      if (!engine->refusals(program.nodes[0].problem, Target::cpu(2)).empty()) continue;
      std::vector<std::vector<float>> whole;
      for (const int64_t bound : {12, 8, 4, 2}) {
        auto limited = std::make_shared<EngineSet>();
        const OrderRow order[] = {{program.nodes[0].problem.pass, MemoryKind::kHost, engine->name()}};
        limited->order = order;
        limited->engines.push_back(std::make_unique<LimitedEngine>(
            *engine, std::vector<Limit>{{"batch * q_heads", heads_of_launch, bound, "a test's", "none"}}));
        PlanOptions options;
        options.guard_bytes = 64;
        const Plan plan = plan_program(program, options, limited).value();
        const auto bits = run(plan);
        if (bound == 12) whole = bits;
        INFO(engine->name() << " with at most " << bound << " heads a launch");
        for (size_t slot = 0; slot < bits.size(); ++slot)
          CHECK(std::memcmp(bits[slot].data(), whole[slot].data(), bits[slot].size() * sizeof(float)) == 0);
      }
    }
}
