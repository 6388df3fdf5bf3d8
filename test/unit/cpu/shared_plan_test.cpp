#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "attngraph/context.hpp"
#include "attngraph/execute.hpp"
#include "attngraph/training.hpp"
#include "support/catch.hpp"

using namespace attngraph;

namespace {

/// A training step whose keys are split over threads, with dropout of seed 0.
TrainingPair split_training_step() {
  constexpr int64_t kBatch = 1, kQHeads = 4, kKvHeads = 2, kQLen = 70, kKvLen = 600, kDim = 24;
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kF32, bhsd({kBatch, kQHeads, kQLen, kDim}));
  node.k = graph.tensor("k", DataType::kF32, bshd({kBatch, kKvHeads, kKvLen, kDim}));
  node.v = graph.tensor("v", DataType::kF32, bshd({kBatch, kKvHeads, kKvLen, kDim}));
  node.dropout_seed = graph.vector("seed", DataType::kI64, 1);
  node.attributes.dropout_p = 0.1;
  node.attributes.band = Band::causal(Align::kBottomRight);
  graph.sdpa_forward(node);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  return training_pair(graph, wanted).value();
}

/// Memory for all tensors of a step, by uid; a tensor of both passes has one.
using Memory = std::map<Uid, std::vector<float>>;

/// Runs one pass in a workspace of its own.
Status run(const Graph& graph, const Plan& plan, Memory& memory) {
  Bindings bindings(plan);
  for (const Tensor& tensor : graph.tensors) {
    const auto count = static_cast<size_t>(plan.footprint_bytes(tensor.uid)) / sizeof(float);
    auto [at, is_new] = memory.try_emplace(tensor.uid, count);
    if (is_new && tensor.dtype == DataType::kF32) {
      std::mt19937 random(static_cast<uint32_t>(tensor.uid));
      for (float& x : at->second) x = std::normal_distribution<float>()(random);
    }
    if (Status set = bindings.set({tensor.uid, at->second}); !set.ok()) return set;
  }
  return execute(plan, bindings, HostWorkspace(plan));
}

}  // namespace

TEST_CASE("eight threads that share a forward and a backward plan get the bits of one", "[cpu][threads]") {
  ContextOptions options;
  options.num_threads = 3;  // a pool that some find busy
  Context context(options);
  PlanOptions on_cpu;
  on_cpu.engine = "cpu";
  const TrainingPair step = split_training_step();
  const Plan forward = context.plan(step.forward, context.host_target(), on_cpu).value();
  const Plan backward = context.plan(step.backward, context.host_target(), on_cpu).value();
  const auto run_step = [&](Memory& memory) {
    return run(step.forward, forward, memory).ok() && run(step.backward, backward, memory).ok();
  };
  Memory alone;
  REQUIRE(run_step(alone));
  std::atomic<int> equal = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round)
        if (Memory memory; run_step(memory) && memory == alone) ++equal;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(equal == 8 * 5);
}
