#include "base/message.hpp"
#include "device/device.hpp"
#include "gpu/device.hpp"
#include "gpu/steps.hpp"

using namespace attngraph;

TEST_CASE("a plan for another chip is refused by execute, which runs nothing", "[gpu]") {
  if (test::skips_without_device()) return;
  Context context;
  const Graph graph = test::chained_decode();
  Target other = context.target_of("cuda").value();
  const int found = other.sm_version;
  other.sm_version = found == 90 ? 100 : 90;
  PlanOptions options;
  options.engine = "cuda";
  const Plan plan = context.plan(graph, other, options).value();
  std::optional<cli::StepData> drawn = cli::make_step_data(graph, test::step_of(graph, plan, 1)).value();
  cli::StepMemory memory(*drawn, cli::kNanPoison);
  REQUIRE(memory.allocate(graph, plan, {}).message() == "");
  Bindings bindings(plan);
  REQUIRE(memory.bind(bindings).message() == "");
  REQUIRE(memory.fill().message() == "");
  const Status status = execute(plan, bindings, memory.workspace());
  CHECK(status.code() == Code::kBackend);
  CHECK(status.message().find(text("cuda: the plan is for sm_", other.sm_version,
                                   "; the current device is sm_", found)) != std::string::npos);
}
