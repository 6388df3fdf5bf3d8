#include "attngraph/attngraph.hpp"
#include "cli/compare.hpp"
#include "cli/graph_data.hpp"
#include "cli/step_memory.hpp"
#include "gpu/device.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cli;

namespace {

/// Gradients of 16 heads whose keys are 9 tiles, the last one cut: more blocks than a device runs at once.
Graph backward(int64_t dim, int64_t tokens, Band band) {
  Graph graph;
  SdpaForward node;
  const auto tensor = [&](const char* name, int64_t heads) {
    return graph.tensor(name, DataType::kBf16, bshd({4, heads, tokens, dim}));
  };
  node.q = tensor("q", 4), node.k = tensor("k", 4), node.v = tensor("v", 4);
  node.attributes.band = band, node.attributes.deterministic = true;
  graph.sdpa_forward(node);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  return training_pair(graph, wanted).value().backward;
}

}  // namespace

TEST_CASE("a deterministic backward gives the same bits in each of many runs", "[gpu]") {
  if (test::skips_without_device()) return;
  struct Row {
    int64_t dim, tokens;
  };
  // At dim 64 a step of products has 128 rows: of the last one's the second half is cut, or absent.
  const Row row = GENERATE(values<Row>({{64, 1100}, {64, 1070}, {128, 1100}}));
  INFO("dim " << row.dim << ", " << row.tokens << " tokens");
  Context context;
  PlanOptions options;
  options.engine = "cuda";
  Step step;
  for (const Band band : {Band{}, Band::causal(), Band{Align::kBottomRight, 300, 100}}) {
    const Graph graph = backward(row.dim, row.tokens, band);
    const Plan plan = context.plan(graph, options).value();
    CHECK(plan.deterministic());
    step.text.graph = graph;
    // o and stats of rows that see all keys do for all bands: what is compared are runs with each other.
    if (!step.bind) step.bind = draw_data(graph, plan, {}).value();
    const StepData data = make_step_data(graph, step).value();
    StepMemory memory(data, kNanPoison);
    REQUIRE(memory.allocate(graph, plan, {}).message() == "");
    Bindings bindings(plan);
    REQUIRE(memory.bind(bindings).message() == "");
    std::map<Uid, std::vector<std::byte>> first;
    for (int run = 0; run < 20; ++run) {
      REQUIRE(memory.fill().message() == "");
      REQUIRE(execute(plan, bindings, memory.workspace(), nullptr).message() == "");
      REQUIRE(memory.check(graph, plan).message() == "");
      for (const OutputRule& rule : output_rules(graph)) {
        const OutputBits got = memory.output(*graph.find(rule.uid));
        if (run == 0) first[rule.uid] = got.bytes;
        CHECK(got.bytes == first[rule.uid]);
      }
    }
  }
}
