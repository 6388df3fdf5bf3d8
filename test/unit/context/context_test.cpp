#include "attngraph/context.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

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

TEST_CASE("a context has as many threads as its maker may run on, unless told", "[context]") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(Context().host_target().num_threads == CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const int on_one = Context().host_target().num_threads;
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(on_one == 1);
  ContextOptions options;
  options.num_threads = 5;
  CHECK(Context(options).host_target().num_threads == 5);
}

TEST_CASE("support and planning give the same answer for another target", "[context]") {
  Context context;
  const Target turing = Target::cuda(75, 68, 65'536, 5'767'168);  // older than every engine
  const auto support = context.support(forward_graph(), turing);
  REQUIRE(support.ok());
  CHECK(support->size() == context.engines().size());
  const auto refused = context.plan(forward_graph(), turing);
  CHECK(refused.status().code() == Code::kUnsupported);
  for (const EngineSupport& engine : *support) {
    CHECK_FALSE(engine.ok());
    CHECK(refused.status().message().find("\n  " + engine.engine + ": target is sm_75; needs ") !=
          std::string::npos);
  }
}

TEST_CASE("an engine of the host runs on the context's host", "[context]") {
  Context context;
  for (const char* engine : {"cpu", "reference"}) {
    const Result<Target> target = context.target_of(engine);
    REQUIRE(target.ok());
    CHECK((*target == context.host_target()));
  }
}

TEST_CASE("an engine that the build lacks has no target", "[context]") {
  Context context;
  const Status refused = context.target_of("abacus").status();
  CHECK(refused.code() == Code::kUnsupported);
  CHECK(refused.message().find("engine: is abacus; this build has cpu, reference") == 0);
  CHECK((context.target_of("").value() == context.host_target()));
}

TEST_CASE("an environment variable leaves one engine alone", "[context]") {
  REQUIRE(setenv("ATTNGRAPH_ENGINE", "reference", 1) == 0);
  Context reference;
  CHECK(reference.engines() == std::vector<std::string>{"reference"});
  REQUIRE(setenv("ATTNGRAPH_ENGINE", "abacus", 1) == 0);
  Context none;
  REQUIRE(unsetenv("ATTNGRAPH_ENGINE") == 0);
  CHECK(none.target_of("cpu").status().message() == none.plan(forward_graph()).status().message());
  const Status refused = none.plan(forward_graph()).status();
  CHECK(refused.code() == Code::kUnsupported);
  CHECK(refused.message().find("ATTNGRAPH_ENGINE: is abacus; this build has ") == 0);
}

TEST_CASE("a plan outlives its context", "[context]") {
  std::optional<Plan> plan;
  {
    Context context;
    plan = context.plan(forward_graph()).value();
  }
  CHECK(plan->explain().find("node 0: f32 forward b1 h2:2 s4:4 d8:8") != std::string::npos);
}

TEST_CASE("the log names each plan that is built", "[context]") {
  std::vector<std::string> lines;
  ContextOptions options;
  options.log.self = &lines;
  options.log.write = [](void* self, LogLevel level, const char* line) {
    CHECK(level == LogLevel::kInfo);
    static_cast<std::vector<std::string>*>(self)->emplace_back(line);
  };
  Context context(options);
  for (int i = 0; i < 2; ++i) REQUIRE(context.plan(forward_graph()).ok());
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("planned f32 forward b1 h2:2 s4:4 d8:8 on ") == 0);
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
