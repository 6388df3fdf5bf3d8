#include "attngraph/context.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include "support/catch.hpp"

using namespace attngraph;

namespace {

Graph forward_graph() {
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kF32, bhsd({1, 2, 4, 8}));
  node.k = graph.tensor("k", DataType::kF32, bhsd({1, 2, 4, 8}));
  node.v = graph.tensor("v", DataType::kF32, bhsd({1, 2, 4, 8}));
  graph.sdpa_forward(node);
  return graph;
}

}  // namespace

TEST_CASE("a graph that contradicts itself is refused by validation", "[context]") {
  Context context;
  Graph graph = forward_graph();
  graph.find(2)->dims[3] = 5;
  CHECK(context.plan(graph).status().code() == Code::kInvalidGraph);
}

TEST_CASE("options that make no sense are refused with their value", "[context]") {
  Context context;
  PlanOptions guards, budget;
  guards.guard_bytes = -1;
  budget.max_workspace_bytes = -2;
  CHECK(context.plan(forward_graph(), guards).status().message() ==
        "guard_bytes: is -1; must not be negative");
  CHECK(context.plan(forward_graph(), budget).status().message() ==
        "max_workspace_bytes: is -2; must not be negative");
}

TEST_CASE("support and planning give the same answer for another target", "[context]") {
  Context context;
  const auto support = context.support(forward_graph(), Target::h200());
  REQUIRE(support.ok());
  CHECK(support->size() == context.engines().size());
  const auto refused = context.plan(forward_graph(), Target::h200());
  CHECK(refused.status().code() == Code::kUnsupported);
  for (const EngineSupport& engine : *support) CHECK_FALSE(engine.ok());
}

TEST_CASE("a context is refused in a fork of its process", "[context]") {
  Context context;
  const pid_t child = fork();
  if (child == 0) {
    const Status status = context.plan(forward_graph()).status();
    const bool is_right = status.code() == Code::kUnsupported &&
                          status.message().find("make a context after the fork") != std::string::npos;
    _exit(is_right ? 0 : 1);
  }
  int result = -1;
  REQUIRE(waitpid(child, &result, 0) == child);
  CHECK(result == 0);
}
