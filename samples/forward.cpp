// A forward pass: say what is wanted, plan it, run it, look at the result.
#include "support.hpp"

using namespace attngraph;

int main() {
  // Causal attention, four query heads to each kv head, tensors in [batch, len, heads, dim] order.
  constexpr int64_t kBatch = 2, kHeads = 8, kKvHeads = 2, kLen = 16, kDim = 32;
  Graph graph;
  SdpaForward attention;
  attention.q = graph.tensor("q", DataType::kF32, bshd({kBatch, kHeads, kLen, kDim}));
  attention.k = graph.tensor("k", DataType::kF32, bshd({kBatch, kKvHeads, kLen, kDim}));
  attention.v = graph.tensor("v", DataType::kF32, bshd({kBatch, kKvHeads, kLen, kDim}));
  attention.attributes.band = Band::causal();
  attention = graph.sdpa_forward(attention, /*with_stats=*/true);  // adds o and stats

  Context context;
  const Plan plan = require(context.plan(graph));
  std::puts(plan.explain().c_str());

  std::vector<float> q = random_floats(kBatch * kLen * kHeads * kDim, 1);
  std::vector<float> k = random_floats(kBatch * kLen * kKvHeads * kDim, 2);
  std::vector<float> v = random_floats(kBatch * kLen * kKvHeads * kDim, 3);
  std::vector<float> o(q.size()), stats(static_cast<size_t>(kBatch * kHeads * kLen));
  require(execute(
      plan,
      {{*attention.q, q}, {*attention.k, k}, {*attention.v, v}, {*attention.o, o}, {*attention.stats, stats}},
      HostWorkspace(plan)));

  // One row by hand: sequence 1, head 5, row 9 sees keys 0 .. 9 of kv head 5 / 4.
  constexpr int64_t kRow = 9, kHead = 5, kKvHead = kHead / (kHeads / kKvHeads);
  const float* q_row = &q[((kLen + kRow) * kHeads + kHead) * kDim];
  const auto kv_row = [&](std::vector<float>& data, int64_t key) {
    return &data[static_cast<size_t>(((kLen + key) * kKvHeads + kKvHead) * kDim)];
  };
  double sum = 0.0, weighted[kDim] = {};
  for (int64_t key = 0; key <= kRow; ++key) {
    double score = 0.0;
    for (int64_t d = 0; d < kDim; ++d) score += double{q_row[d]} * double{kv_row(k, key)[d]};
    const double weight = std::exp(score / std::sqrt(double{kDim}));
    sum += weight;
    for (int64_t d = 0; d < kDim; ++d) weighted[d] += weight * double{kv_row(v, key)[d]};
  }
  const float* o_row = &o[((kLen + kRow) * kHeads + kHead) * kDim];
  for (int64_t d = 0; d < kDim; ++d) require_close("o", double{o_row[d]}, weighted[d] / sum, 2e-5);
  require_close("stats", double{stats[(kHeads + kHead) * kLen + kRow]}, std::log(sum), 1e-4);
  std::puts("forward: the row computed by hand agrees");
}
