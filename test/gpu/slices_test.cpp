#include "gpu/device.hpp"
#include "gpu/steps.hpp"

using namespace attngraph;

namespace {

/// Forward and backward, with the gradient of a bias that the batch has in common.
Graph with_dbias() {
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kBf16, bshd({2, 4, 48, 64}));
  node.k = graph.tensor("k", DataType::kBf16, bshd({2, 2, 40, 64}));
  node.v = graph.tensor("v", DataType::kBf16, bshd({2, 2, 40, 64}));
  node.bias = graph.tensor("bias", DataType::kF16, bhsd({1, 4, 48, 40}));
  graph.sdpa_forward(node);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = wanted.bias = true;
  const TrainingPair pair = training_pair(graph, wanted).value();
  graph = pair.forward;
  for (const Tensor& tensor : pair.backward.tensors)
    if (graph.find(tensor.uid) == nullptr) graph.tensors.push_back(tensor);
  graph.nodes.push_back(pair.backward.nodes.front());
  return graph;
}

}  // namespace

TEST_CASE("slices of cuDNN's backward add dbias up", "[gpu]") {
  if (test::skips_without_device()) return;
  Context context;
  if (test::skips_without_engine(context, "cudnn")) return;
  const Graph graph = with_dbias();
  PlanOptions options;
  options.engine = "cudnn";
  const int64_t whole = context.plan(graph, options).value().workspace_bytes();
  options.max_workspace_bytes = whole * 3 / 4;
  const Plan plan = context.plan(graph, options).value();
  INFO(plan.explain());
  REQUIRE(plan.workspace_bytes() < whole);
  CHECK(plan.explain().find("dbias of all slices") != std::string::npos);
  test::check_execute(context, graph, plan);
}
