#include "context/autotune.hpp"

#include <atomic>

#include "attngraph/context.hpp"
#include "base/message.hpp"
#include "support/catch.hpp"
#include "support/stub_engine.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

/// Work that takes a time in proportion to `steps`.
std::function<void()> work(int64_t steps) {
  return [steps] {
    static std::atomic<int64_t> sink = 0;
    for (int64_t i = 0; i < steps; ++i) sink.fetch_add(i, std::memory_order_relaxed);
  };
}
constexpr int64_t kSlow = 300'000, kFast = 100;

/// A plan of one node with memory for its call.
struct Planned {
  explicit Planned(StubBehaviour behaviour)
      : plan(plan_program(forward_program(1, 1, 4, 8), {}, stub_engines({std::move(behaviour)})).value()) {}

  Result<std::shared_ptr<const PlanCore>> autotuned(int64_t spare_bytes) {
    for (std::vector<float>& tensor : tensors) pointers.push_back(tensor.data());
    const PointerTable table{pointers.data(), nullptr, static_cast<int>(pointers.size())};
    return attngraph::autotuned(plan.state(),
                                {table, {}, {room, plan.workspace_bytes() + spare_bytes}, nullptr});
  }

  Plan plan;
  std::vector<std::vector<float>> tensors = std::vector(4, std::vector<float>(32));
  std::vector<void*> pointers;
  alignas(kWorkspaceAlign) std::byte room[8192];
};

}  // namespace

TEST_CASE("autotuning takes the fastest way, whatever its place", "[autotune]") {
  for (size_t fastest = 0; fastest < 3; ++fastest) {
    StubBehaviour behaviour;
    behaviour.ways.assign(3, work(kSlow));
    behaviour.ways[fastest] = work(kFast);
    Planned planned(behaviour);
    const auto core = planned.autotuned(0);
    REQUIRE(core.ok());
    const Tuning& tuning = *(*core)->nodes[0].tuning;
    CHECK(tuning.way == static_cast<int64_t>(fastest));
    CHECK(tuning.num_ways == 3);
    CHECK(tuning.num_timed == 3);
    CHECK(tuning.seconds <= tuning.untuned_seconds);
    CHECK(!planned.plan.state().core->nodes[0].tuning);  // a plan does not change
  }
}

TEST_CASE("a way that does not work, or not in the workspace, is not timed", "[autotune]") {
  StubBehaviour behaviour;
  behaviour.ways = {work(kFast), work(kFast), work(kSlow)};
  behaviour.way_failures = {fail(Code::kUnsupported, "stub: has no such kernel; must have one")};
  behaviour.way_bytes = {0, 2048, 0};
  Planned narrow(behaviour), wide(behaviour);
  const auto without = narrow.autotuned(0), with = wide.autotuned(2048);
  CHECK((*without)->nodes[0].tuning->way == 2);
  CHECK((*without)->nodes[0].tuning->num_timed == 1);
  CHECK((*with)->nodes[0].tuning->way == 1);
  CHECK((*with)->nodes[0].tuning->num_timed == 2);
  CHECK((*with)->workspace.bytes() == wide.plan.workspace_bytes() + 2048);
}

TEST_CASE("an engine whose ways all fail is left to its own choice", "[autotune]") {
  StubBehaviour behaviour;
  behaviour.ways.assign(2, work(kFast));
  behaviour.way_failures.assign(2, fail(Code::kUnsupported, "stub: has no such kernel; must have one"));
  const auto core = Planned(behaviour).autotuned(0);
  REQUIRE(core.ok());
  CHECK(!(*core)->nodes[0].tuning);
  behaviour.way_failures[1] = fail(Code::kBackend, "stub: is broken; must not be");
  CHECK(Planned(behaviour).autotuned(0).status().code() == Code::kBackend);
}

TEST_CASE("autotuning refuses what execute refuses", "[autotune]") {
  Planned planned{StubBehaviour()};
  const auto core = planned.autotuned(-256);
  REQUIRE(!core.ok());
  CHECK(core.status().code() == Code::kBadBinding);
  CHECK(core.status().message().find("workspace: has ") != std::string::npos);
}

TEST_CASE("the context keeps the tuned plan for who plans the same problem", "[autotune]") {
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kF32, bhsd({1, 2, 4, 8}));
  node.k = graph.tensor("k", DataType::kF32, bhsd({1, 2, 4, 8}));
  node.v = graph.tensor("v", DataType::kF32, bhsd({1, 2, 4, 8}));
  node = graph.sdpa_forward(node);
  Context context;
  const Plan plan = context.plan(graph).value();
  std::vector<float> q(64, 1.0F), k(64, 1.0F), v(64, 3.0F), o(64);
  Bindings bindings(plan);
  for (const auto& [uid, data] : {std::pair{*node.q, &q}, {*node.k, &k}, {*node.v, &v}, {*node.o, &o}})
    REQUIRE(bindings.set({uid, *data}).ok());
  const HostWorkspace workspace(plan);
  const auto tuned = context.autotune(plan, bindings, workspace);
  REQUIRE(tuned.ok());
  CHECK(o[0] == Approx(3.0F));
  const std::string words = "autotuned: the engine has one way to run it";
  CHECK(tuned->explain().find(words) != std::string::npos);
  CHECK(tuned->explain_json().find("the engine has one way to run it") != std::string::npos);
  CHECK(plan.explain().find(words) == std::string::npos);
  CHECK(context.plan(graph)->explain().find(words) != std::string::npos);
  CHECK(context.cache_statistics().entries == 1);

  Context other;
  CHECK(other.autotune(plan, bindings, workspace).status().message() ==
        "autotune: the plan is another context's; must be one of this context");
}
