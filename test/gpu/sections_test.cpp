#include "engine/cuda/recipe.hpp"
#include "gpu/device.hpp"
#include "gpu/steps.hpp"
#include "problem/program.hpp"

using namespace attngraph;

namespace {

/// 70 packed sequences of three heads; lengths and gaps are drawn with the data. L2 would hold them all, but
/// a section has at most 32.
Graph packed_forward() {
  constexpr int64_t kBatch = 70, kLen = 300;
  constexpr Shape kRows{kBatch, 3, kLen, 8};
  Graph graph;
  SdpaForward node;
  const auto packed = [&](const char* name, Uid offsets) {
    return graph.tensor(name, DataType::kBf16, thd(kRows), Ragged{offsets, thd(kRows).token_stride()});
  };
  const Uid q_offsets = graph.vector("q_offsets", DataType::kI32, kBatch + 1);
  const Uid kv_offsets = graph.vector("kv_offsets", DataType::kI32, kBatch + 1);
  node.q = packed("q", q_offsets), node.k = packed("k", kv_offsets), node.v = packed("v", kv_offsets);
  node.seq_len_q = graph.vector("seq_len_q", DataType::kI32, kBatch);
  node.seq_len_kv = graph.vector("seq_len_kv", DataType::kI32, kBatch);
  node.attributes.max_total_q = node.attributes.max_total_kv = kBatch * kLen;
  graph.sdpa_forward(node);
  return graph;
}

/// Heads of 307 KB of keys and values behind a causal mask, of which two thirds of the L2 of an H200 hold
/// 136.
Graph dense_forward() {
  constexpr int64_t kHeads = 140, kDim = 128;
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kBf16, bshd({1, kHeads, 64, kDim}));
  node.k = graph.tensor("k", DataType::kBf16, bshd({1, kHeads, 600, kDim}));
  node.v = graph.tensor("v", DataType::kBf16, bshd({1, kHeads, 600, kDim}));
  node.attributes.band = Band::causal(Align::kBottomRight);
  graph.sdpa_forward(node);
  return graph;
}

/// Heads of two tiles of keys and 11 steps each, of which an H200 takes 16 at once.
Graph deterministic_backward() {
  constexpr int64_t kHeads = 64;
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kBf16, bshd({1, kHeads, 680, 128}));
  node.k = graph.tensor("k", DataType::kBf16, bshd({1, kHeads, 130, 128}));
  node.v = graph.tensor("v", DataType::kBf16, bshd({1, kHeads, 130, 8}));
  node.attributes.deterministic = true;
  graph.sdpa_forward(node);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  return training_pair(graph, wanted).value().backward;
}

/// Whether one launch of the family takes the heads of the graph's one node in more than one section.
bool has_sections(const Graph& graph, cuda::Family family) {
  const ValidatedGraph valid = validate(graph).value();
  const Problem& p = valid.program.nodes.front().problem;
  for (const cuda::Step& step :
       cuda::make_recipe(p, device::cuda_target().value(), {p.batch, p.kv_heads}).steps) {
    if (step.kernel.family != family) continue;
    const int64_t heads = step.grid == cuda::Grid::kKvHeads ? p.kv_heads : p.q_heads;
    return step.sequences_together > 0 ? step.sequences_together < p.batch
                                       : step.heads_together < p.batch * heads;
  }
  return false;
}

}  // namespace

TEST_CASE("heads of a second section on sm_90a agree with the reference", "[gpu]") {
  if (test::skips_without_device()) return;
  struct Row {
    const char* why;
    Graph (*graph)();
    cuda::Family family;
  };
  const Row row = GENERATE(
      values<Row>({{"packed forward", packed_forward, cuda::Family::kHopperForward},
                   {"dense forward", dense_forward, cuda::Family::kHopperForward},
                   {"deterministic backward", deterministic_backward, cuda::Family::kHopperBackward}}));
  INFO(row.why);
  const Graph graph = row.graph();
  if (device::cuda_target().value().sm_version == 90) CHECK(has_sections(graph, row.family));
  Context context;
  PlanOptions options;
  options.engine = "cuda";
  const Plan plan = context.plan(graph, options).value();
  INFO(plan.explain());
  test::check_execute(context, graph, plan);
}
