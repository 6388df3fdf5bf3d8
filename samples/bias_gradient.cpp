// A training pair in which only the bias wants a gradient: the forward emits stats all the same,
// and the gradient agrees with a finite difference of the forward.
#include "support.hpp"

using namespace attngraph;

namespace {
constexpr int64_t kBatch = 2, kHeads = 3, kLen = 5, kDim = 8;

/// Attention with a bias that the batch shares.
Graph biased_attention() {
  const Layout tokens = bhsd({kBatch, kHeads, kLen, kDim});
  Graph graph;
  SdpaForward attention;
  attention.q = graph.tensor("q", DataType::kF32, tokens);
  attention.k = graph.tensor("k", DataType::kF32, tokens);
  attention.v = graph.tensor("v", DataType::kF32, tokens);
  attention.bias = graph.tensor("bias", DataType::kF32, bhsd({1, kHeads, kLen, kLen}));
  graph.sdpa_forward(attention);
  return graph;
}
}  // namespace

int main() {
  Gradients wanted;
  wanted.bias = true;
  const TrainingPair pair = require(training_pair(biased_attention(), wanted));
  const SdpaForward& forward = std::get<SdpaForward>(pair.forward.nodes[0]);
  const SdpaBackward& backward = std::get<SdpaBackward>(pair.backward.nodes[0]);

  Context context;
  const Plan forward_plan = require(context.plan(pair.forward));
  const Plan backward_plan = require(context.plan(pair.backward));

  constexpr int64_t kElems = kBatch * kHeads * kLen * kDim;
  std::vector<float> q = random_floats(kElems, 1), k = random_floats(kElems, 2), v = random_floats(kElems, 3);
  std::vector<float> bias = random_floats(kHeads * kLen * kLen, 4), dbias(bias.size());
  std::vector<float> dout = random_floats(kElems, 5), o(kElems), stats(kBatch * kHeads * kLen);

  // The loss whose gradient with respect to o is dout.
  const auto loss = [&] {
    require(execute(forward_plan,
                    {{*forward.q, q},
                     {*forward.k, k},
                     {*forward.v, v},
                     {*forward.bias, bias},
                     {*forward.o, o},
                     {*forward.stats, stats}},
                    HostWorkspace(forward_plan)));
    double sum = 0.0;
    for (size_t i = 0; i < o.size(); ++i) sum += double{o[i]} * double{dout[i]};
    return sum;
  };

  loss();
  require(execute(backward_plan,
                  {{*backward.q, q},
                   {*backward.k, k},
                   {*backward.v, v},
                   {*backward.bias, bias},
                   {*backward.o, o},
                   {*backward.dout, dout},
                   {*backward.stats, stats},
                   {*backward.dbias, dbias}},
                  HostWorkspace(backward_plan)));

  // Central difference: error of order step^2 in the derivative, 1e-6 / step from float32 outputs.
  constexpr float kStep = 1e-2F;
  for (size_t i = 0; i < bias.size(); ++i) {
    const float kept = bias[i];
    bias[i] = kept + kStep;
    const double above = loss();
    bias[i] = kept - kStep;
    const double below = loss();
    bias[i] = kept;
    require_close("dbias", double{dbias[i]}, (above - below) / (2 * double{kStep}), 2e-3);
  }
  std::puts("bias_gradient: every element agrees with a finite difference");
}
