#include "gpu/device.hpp"
#include "gpu/steps.hpp"

using namespace attngraph;

namespace {

/// Decode steps over the same keys, each with o of the one before as its q.
Graph chained_decode() {
  constexpr int kSteps = 8;
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kF16, bshd({8, 8, 1, 64}));
  node.k = graph.tensor("k", DataType::kF16, bshd({8, 2, 3000, 64}));
  node.v = graph.tensor("v", DataType::kF16, bshd({8, 2, 3000, 64}));
  for (int step = 0; step < kSteps; ++step) {
    const SdpaForward made = graph.sdpa_forward(node);
    node.q = made.o;
  }
  return graph;
}

}  // namespace

TEST_CASE("a launch that starts before the one ahead has ended reads what that one writes", "[gpu]") {
  if (test::skips_without_device()) return;
  Context context;
  const Graph graph = chained_decode();
  PlanOptions options;
  options.engine = "cuda";
  const Plan plan = context.plan(graph, options).value();
  INFO(plan.explain());
  test::check_execute(context, graph, plan);
}
