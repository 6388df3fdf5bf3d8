// Attention to keys in two parts, as split keys and context parallelism have them: each part attends on its
// own, merge_partials joins the results, and the backward of each part runs with the merged o and stats. All
// of it equals attention to the undivided keys, to which the parts are views.
#include <map>
#include <string>

#include "support.hpp"

using namespace attngraph;

constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kQueries = 7, kKeys = 24, kDim = 16;
constexpr int64_t kQElems = kBatch * kHeads * kQueries * kDim, kKvElems = kBatch * kKvHeads * kKeys * kDim;
using Storages = std::map<std::string, std::vector<float>>;  // by the tensor's name

/// The training pair of attention to `count` of the keys, which lie in storage for all of them.
TrainingPair attention_to(int64_t count) {
  Graph graph;
  Layout keys = bshd({kBatch, kKvHeads, kKeys, kDim});
  keys.dims[2] = count;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kF32, bshd({kBatch, kHeads, kQueries, kDim}));
  node.k = graph.tensor("k", DataType::kF32, keys);
  node.v = graph.tensor("v", DataType::kF32, keys);
  graph.sdpa_forward(node, true);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  return require(training_pair(graph, wanted));
}

Graph merge_of_two_parts() {
  Graph graph;
  MergePartials node;
  const Layout o = bshd({kBatch, kHeads, kQueries, kDim}), stats = stats_padded(kBatch, kHeads, kQueries);
  node.o_a = graph.tensor("o_a", DataType::kF32, o), node.o_b = graph.tensor("o_b", DataType::kF32, o);
  node.stats_a = graph.tensor("stats_a", DataType::kF32, stats);
  node.stats_b = graph.tensor("stats_b", DataType::kF32, stats);
  graph.merge_partials(node, true);
  return graph;
}

/// Runs on the keys from `first` on, which lie in storage for all of them.
void run(Context& context, const Graph& graph, int64_t first, Storages& storages) {
  const Plan plan = require(context.plan(graph));
  Bindings table(plan);
  for (const Tensor& tensor : graph.tensors) {
    const bool is_of_keys = tensor.dims[1] == kKvHeads;
    std::vector<float>& storage = storages[tensor.name];
    if (storage.empty()) storage.resize(is_of_keys ? kKvElems : kQElems);
    require(table.set({tensor.uid, storage.data() + (is_of_keys ? first * kKvHeads * kDim : 0)}));
  }
  require(execute(plan, table, HostWorkspace(plan)));
}

int main() {
  constexpr int64_t kFirstPart = 10;
  Context context;
  Storages inputs, merged;
  inputs["q"] = random_floats(kQElems, 1), inputs["do"] = random_floats(kQElems, 2);
  inputs["k"] = random_floats(kKvElems, 3), inputs["v"] = random_floats(kKvElems, 4);
  Storages whole = inputs, a = inputs, b = inputs;
  const TrainingPair all = attention_to(kKeys);
  run(context, all.forward, 0, whole), run(context, all.backward, 0, whole);

  const TrainingPair part_a = attention_to(kFirstPart), part_b = attention_to(kKeys - kFirstPart);
  run(context, part_a.forward, 0, a), run(context, part_b.forward, kFirstPart, b);
  merged["o_a"] = a["o"], merged["stats_a"] = a["stats"];
  merged["o_b"] = b["o"], merged["stats_b"] = b["stats"];
  run(context, merge_of_two_parts(), 0, merged);
  require_close("o", merged["o"], whole["o"], 2e-5);
  require_close("stats", merged["stats"], whole["stats"], 1e-4);

  a["o"] = b["o"] = merged["o"], a["stats"] = b["stats"] = merged["stats"];
  run(context, part_a.backward, 0, a), run(context, part_b.backward, kFirstPart, b);
  for (const char* name : {"dq", "dk", "dv"}) {  // dk and dv are of disjoint keys
    for (size_t i = 0; i < a[name].size(); ++i) a[name][i] += b[name][i];
    require_close(name, a[name], whole[name], 1e-4);
  }
  std::puts("merged_keys: two parts give what all keys give");
}
