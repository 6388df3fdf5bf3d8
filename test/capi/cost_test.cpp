/// What attngraph_execute asks of the process on a host.
#include "capi/process_calls.hpp"
#include "capi/support.hpp"
#include "support/catch.hpp"

using namespace attngraph::test;

TEST_CASE("the counters see what the library does while it plans", "[capi]") {
  auto* calls = GENERATE(process_calls, own_calls);
  const ProcessCalls before = calls();
  const CContext context = make_context();
  REQUIRE(make_plan(context.get(), causal_graph(2, 2, 8, 16).get()));
  const ProcessCalls after = calls();
  CHECK(after.allocations > before.allocations);
  CHECK(after.locks > before.locks);
  CHECK(after.environment_reads > before.environment_reads);
}

TEST_CASE("execute allocates nothing, takes no lock and reads no environment", "[capi]") {
  attngraph_context_options options = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  options.num_threads = GENERATE(1, 2);
  const CContext context = make_context(&options);
  const CGraph graph = causal_graph(2, 2, 300, 16);
  attngraph_graph *forward = nullptr, *backward = nullptr;
  REQUIRE(attngraph_training_pair(graph.get(), 7, &forward, &backward, nullptr) == ATTNGRAPH_OK);
  const CGraph forward_owner(forward), backward_owner(backward);
  for (const attngraph_graph* pass : {forward, backward})
    for (const char* engine : {"cpu", "reference"}) {
      attngraph_plan_options plan_options = ATTNGRAPH_PLAN_OPTIONS_INIT;
      plan_options.engine = engine;
      const CPlan plan = make_plan(context.get(), pass, &plan_options);
      REQUIRE(plan);
      Storage storage(plan.get(), 0.5F);
      Message message;
      REQUIRE(attngraph_execute(plan.get(), &storage.call, message) == ATTNGRAPH_OK);  // starts the pool
      const ProcessCalls before = process_calls();
      const attngraph_status status = attngraph_execute(plan.get(), &storage.call, message);
      const ProcessCalls after = process_calls();
      INFO(engine);
      CHECK(status == ATTNGRAPH_OK);
      CHECK(after.allocations == before.allocations);
      CHECK(after.locks == before.locks);
      CHECK(after.environment_reads == before.environment_reads);
    }
}
