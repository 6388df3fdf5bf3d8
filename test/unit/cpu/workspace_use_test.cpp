#include <algorithm>
#include <vector>

#include "attngraph/context.hpp"
#include "attngraph/execute.hpp"
#include "attngraph/training.hpp"
#include "plan/planner.hpp"
#include "support/catch.hpp"

using namespace attngraph;

namespace {

constexpr int64_t kBehind = 4096;  ///< bytes behind the workspace
constexpr int kThreads = 3;

/// Runs tasks one after the other, from number `first` on: the first takes all the work that tasks share.
struct Turn {
  int64_t first = 0;
  static void run(void* self, int64_t num_tasks, void (*task)(void* arg, int64_t index), void* arg) {
    for (int64_t i = 0; i < num_tasks; ++i) task(arg, (static_cast<Turn*>(self)->first + i) % num_tasks);
  }
};

struct Sizes {
  int64_t q_heads, kv_heads, q_len, kv_len, dim;
};

Graph forward_of(const Sizes& s, DataType io) {
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", io, bshd({2, s.q_heads, s.q_len, s.dim}));
  node.k = graph.tensor("k", io, bshd({2, s.kv_heads, s.kv_len, s.dim}));
  node.v = graph.tensor("v", io, bshd({2, s.kv_heads, s.kv_len, s.dim}));
  graph.sdpa_forward(node);
  return graph;
}

Graph backward_of(const Graph& forward, bool wants_bias = false) {
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true, wanted.bias = wants_bias;
  return training_pair(forward, wanted).value().backward;
}

Graph with_bias(Graph graph, const Sizes& s) {
  std::get<SdpaForward>(graph.nodes[0]).bias =
      graph.tensor("bias", DataType::kF32, bhsd({1, s.q_heads, s.q_len, s.kv_len}));
  return graph;
}

/// Which bytes of a workspace and behind it a plan writes, whichever of its workers does the work.
class Written {
 public:
  Written(const Graph& graph, const Plan& plan, Turn& turn)
      : plan_(plan), bytes_(static_cast<size_t>(plan.workspace_bytes() + kBehind)), touched_(bytes_) {
    for (const Tensor& tensor : graph.tensors)
      storages_.emplace_back(static_cast<size_t>(plan.footprint_bytes(tensor.uid)) / 4 + 1, 0.25F);
    for (turn.first = 0; turn.first < kThreads; ++turn.first)
      for (const auto poison : {std::byte{0}, std::byte{0xff}}) run(graph, poison);
  }

  /// The byte behind the last one written in begin .. end-1; `begin`: none.
  int64_t end_of(int64_t begin, int64_t end) const {
    while (end > begin && !touched_[static_cast<size_t>(end - 1)]) --end;
    return end;
  }

 private:
  struct alignas(kWorkspaceAlign) Block {
    std::byte bytes[kWorkspaceAlign];
  };

  void run(const Graph& graph, std::byte poison) {
    std::vector<Block> memory(bytes_ / sizeof(Block) + 1);
    auto* workspace = reinterpret_cast<std::byte*>(memory.data());
    std::fill(workspace, workspace + bytes_, poison);
    Bindings bindings(plan_);
    for (size_t i = 0; i < storages_.size(); ++i)
      REQUIRE(bindings.set({graph.tensors[i].uid, storages_[i]}).ok());
    REQUIRE(execute(plan_, bindings, {workspace, plan_.workspace_bytes()}).message() == "");
    for (size_t i = 0; i < bytes_; ++i)
      if (workspace[i] != poison) touched_[i] = true;
  }

  const Plan& plan_;
  size_t bytes_;
  std::vector<bool> touched_;
  std::vector<std::vector<float>> storages_;
};

}  // namespace

TEST_CASE("execute writes into each region of its workspace and nothing behind it, whoever does the work",
          "[cpu]") {
  constexpr Sizes kFew{4, 2, 200, 150, 40}, kDecode{8, 2, 1, 700, 64};
  struct Row {
    const char* why;
    Graph graph;
  };
  const auto [why, graph] = GENERATE_COPY(
      Row{"forward", forward_of(kFew, DataType::kF32)},
      Row{"forward bf16", forward_of(kFew, DataType::kBf16)},
      Row{"decode", forward_of(kDecode, DataType::kF32)},
      Row{"decode f16", forward_of(kDecode, DataType::kF16)},
      Row{"backward", backward_of(forward_of(kFew, DataType::kF32))},
      Row{"backward bf16", backward_of(forward_of(kFew, DataType::kBf16))},
      Row{"backward with dbias", backward_of(with_bias(forward_of(kFew, DataType::kF32), kFew), true)});
  INFO(why);
  Turn turn;
  ContextOptions context_options;
  context_options.num_threads = kThreads;
  context_options.executor = {Turn::run, &turn};
  Context context(context_options);
  PlanOptions options;
  options.engine = "cpu";
  options.guard_bytes = GENERATE(0, 64);  // with guards no two regions share bytes
  const Plan plan = context.plan(graph, options).value();
  const int64_t said = plan.workspace_bytes();
  const Written written(graph, plan, turn);
  CHECK(written.end_of(said, said + kBehind) == said);
  const WorkspaceLayout& layout = plan.state().core->workspace;
  for (size_t i = 0; i < layout.regions().size(); ++i) {
    const Region region = layout.regions()[i];
    INFO(layout.entries()[i].booking.name);
    CHECK((region.bytes == 0 || written.end_of(region.offset, region.offset + region.bytes) > region.offset));
  }
}
