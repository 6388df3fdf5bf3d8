#include "gpu/device.hpp"
#include "gpu/steps.hpp"

using namespace attngraph;

TEST_CASE("a launch that starts before the one ahead has ended reads what that one writes", "[gpu]") {
  if (test::skips_without_device()) return;
  Context context;
  const Graph graph = test::chained_decode();
  PlanOptions options;
  options.engine = "cuda";
  const Plan plan = context.plan(graph, options).value();
  INFO(plan.explain());
  test::check_execute(context, graph, plan);
}
