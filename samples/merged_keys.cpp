// Attention to keys in two parts, as split keys and context parallelism have them: each part attends on its
// own, merge_partials joins the results, and the backward of each part runs with the merged o and stats. All
// of it equals attention to the undivided keys, to which the parts are views.
#include "support.hpp"

using namespace attngraph;

constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kQueries = 7, kKeys = 24, kDim = 16;
constexpr int64_t kStatsElems = kBatch * kHeads * kQueries;
constexpr int64_t kQElems = kStatsElems * kDim, kKvElems = kBatch * kKvHeads * kKeys * kDim;

using Floats = std::vector<float>;
struct Step {
  Floats o = Floats(kQElems), stats = Floats(kStatsElems), dq = o, dk = Floats(kKvElems), dv = dk;
};
struct Inputs {
  Floats q = random_floats(kQElems, 1), k = random_floats(kKvElems, 2), v = random_floats(kKvElems, 3),
         dout = random_floats(kQElems, 4);
};

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

/// Runs the forward or the backward for keys `first` .. of the storage.
void run(Context& context, const Graph& graph, int64_t first, Inputs& in, Step& step) {
  const Plan plan = require(context.plan(graph));
  Bindings table(plan);
  const int64_t skipped = first * kKvHeads * kDim;
  for (const Tensor& tensor : graph.tensors) {
    const auto bind = [&](const char* name, Floats& storage, int64_t offset) {
      if (tensor.name == name) require(table.set({tensor.uid, storage.data() + offset}));
    };
    bind("q", in.q, 0), bind("k", in.k, skipped), bind("v", in.v, skipped), bind("do", in.dout, 0);
    bind("o", step.o, 0), bind("stats", step.stats, 0);
    bind("dq", step.dq, 0), bind("dk", step.dk, skipped), bind("dv", step.dv, skipped);
  }
  require(execute(plan, table, HostWorkspace(plan)));
}

void merge(Context& context, Step& a, Step& b, Step& merged) {
  Graph graph;
  MergePartials node;
  const Layout o = bshd({kBatch, kHeads, kQueries, kDim}), stats = stats_padded(kBatch, kHeads, kQueries);
  node.o_a = graph.tensor("o_a", DataType::kF32, o), node.o_b = graph.tensor("o_b", DataType::kF32, o);
  node.stats_a = graph.tensor("stats_a", DataType::kF32, stats);
  node.stats_b = graph.tensor("stats_b", DataType::kF32, stats);
  node = graph.merge_partials(node, true);
  const Plan plan = require(context.plan(graph));
  require(execute(plan,
                  {{*node.o_a, a.o},
                   {*node.stats_a, a.stats},
                   {*node.o_b, b.o},
                   {*node.stats_b, b.stats},
                   {*node.o, merged.o},
                   {*node.stats, merged.stats}},
                  HostWorkspace(plan)));
}

int main() {
  constexpr int64_t kFirstPart = 10;
  Context context;
  Inputs in;
  Step whole, a, b, merged;
  const TrainingPair all = attention_to(kKeys);
  run(context, all.forward, 0, in, whole), run(context, all.backward, 0, in, whole);

  const TrainingPair part_a = attention_to(kFirstPart), part_b = attention_to(kKeys - kFirstPart);
  run(context, part_a.forward, 0, in, a), run(context, part_b.forward, kFirstPart, in, b);
  merge(context, a, b, merged);
  require_close("o", merged.o, whole.o, 2e-5), require_close("stats", merged.stats, whole.stats, 1e-4);

  a.o = b.o = merged.o, a.stats = b.stats = merged.stats;
  run(context, part_a.backward, 0, in, a), run(context, part_b.backward, kFirstPart, in, b);
  for (size_t i = 0; i < a.dq.size(); ++i) a.dq[i] += b.dq[i];
  for (size_t i = 0; i < a.dk.size(); ++i) a.dk[i] += b.dk[i], a.dv[i] += b.dv[i];  // of disjoint keys
  require_close("dq", a.dq, whole.dq, 1e-4), require_close("dk", a.dk, whole.dk, 1e-4);
  require_close("dv", a.dv, whole.dv, 1e-4);
  std::puts("merged_keys: two parts give what all keys give");
}
