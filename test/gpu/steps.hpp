#pragma once

#include "attngraph/attngraph.hpp"
#include "cli/compare.hpp"
#include "cli/graph_data.hpp"
#include "cli/step_memory.hpp"
#include "cli/step_run.hpp"
#include "support/catch.hpp"

namespace attngraph::test {

/// Decode steps over the same keys, each with o of the one before as its q.
inline Graph chained_decode() {
  constexpr int kSteps = 8;
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kF16, bshd({2, 8, 1, 64}));
  node.k = graph.tensor("k", DataType::kF16, bshd({2, 2, 3000, 64}));
  node.v = graph.tensor("v", DataType::kF16, bshd({2, 2, 3000, 64}));
  for (int step = 0; step < kSteps; ++step) {
    const SdpaForward made = graph.sdpa_forward(node);
    node.q = made.o;
  }
  return graph;
}

/// The graph with random data, lengths and offsets.
inline cli::Step step_of(const Graph& graph, const Plan& plan, uint64_t seed) {
  cli::DataOptions options;
  options.seed = seed, options.max_gap = 2;
  cli::Step step;
  step.text.graph = graph;
  step.bind = cli::draw_data(graph, plan, options).value();
  return step;
}

/// The outputs agree with the reference's.
inline void check_outputs(const Graph& graph, const cli::StepMemory& memory, const cli::StepOutcome& want) {
  REQUIRE_FALSE(want.stop.has_value());
  for (const cli::OutputRule& rule : cli::output_rules(graph))
    CHECK(cli::first_mismatch(rule, memory.output(*graph.find(rule.uid)),
                              cli::answer_of(want.outputs.at(rule.uid))) == "");
}

/// One execute with random data, behind guards, agrees with the reference.
inline void check_execute(Context& context, const Graph& graph, const Plan& plan) {
  const cli::Step step = step_of(graph, plan, 1);
  std::optional<cli::StepData> drawn = cli::make_step_data(graph, step).value();
  cli::StepMemory memory(*drawn, cli::kNanPoison);
  REQUIRE(memory.allocate(graph, plan, {}).message() == "");
  Bindings bindings(plan);
  REQUIRE(memory.bind(bindings).message() == "");
  REQUIRE(memory.fill().message() == "");
  REQUIRE(execute(plan, bindings, memory.workspace()).message() == "");
  REQUIRE(memory.check(graph, plan).message() == "");
  check_outputs(graph, memory, cli::run_step(cli::Library{context}, cli::kReferenceEngine, step, drawn));
}

}  // namespace attngraph::test
