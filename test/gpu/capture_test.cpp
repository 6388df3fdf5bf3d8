#include <cuda_runtime_api.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <optional>

#include "attngraph/attngraph.hpp"
#include "gpu/device.hpp"
#include "gpu/steps.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cli;
using test::check_outputs;
using test::step_of;

namespace {

/// Forward and backward of a packed batch; its lengths and offsets are drawn with the data.
Graph packed_training(DataType io) {
  std::ifstream file(ATTNGRAPH_SAMPLE_GRAPHS "/packed_training.json");
  Graph graph = parse({std::istreambuf_iterator<char>(file), {}}).value();
  for (Tensor& tensor : graph.tensors)
    if (tensor.dtype == DataType::kF32 && tensor.name != "stats") tensor.dtype = io;
  return graph;
}

/// One query row a sequence, keys of drawn length: splits of the keys, then the merge.
Graph decode() {
  Graph graph;
  SdpaForward node;
  const auto tensor = [&](const char* name, int64_t heads, int64_t len) {
    return graph.tensor(name, DataType::kF16, bshd({2, heads, len, 64}));
  };
  node.q = tensor("q", 8, 1), node.k = tensor("k", 2, 700), node.v = tensor("v", 2, 700);
  node.seq_len_kv = graph.vector("seq_len", DataType::kI32, 2);
  graph.sdpa_forward(node);
  return graph;
}

/// Gradients of heads so wide that dq has a kernel of its own, which starts while that of dk and dv ends.
Graph wide_backward(int64_t dim, int64_t v_dim) {
  Graph graph;
  SdpaForward node;
  const auto tensor = [&](const char* name, int64_t columns) {
    return graph.tensor(name, DataType::kBf16, bshd({3, 12, 130, columns}));  // enough tiles for an H200
  };
  node.q = tensor("q", dim), node.k = tensor("k", dim), node.v = tensor("v", v_dim);
  node.attributes.band = Band::causal();
  graph.sdpa_forward(node);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  return training_pair(graph, wanted).value().backward;
}

/// The launches of one call.
class Captured {
 public:
  Captured(const Bindings& bindings, Workspace workspace)
      : Captured([&](void* stream) { return execute(bindings.plan(), bindings, workspace, stream); }) {}
  explicit Captured(const std::function<Status(void*)>& call) {
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal) == cudaSuccess);
    status_ = call(stream_);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(stream_, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&launches_, graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  }
  ~Captured() {
    static_cast<void>(cudaGraphExecDestroy(launches_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  const Status& status() const { return status_; }
  void replay() const {
    REQUIRE(cudaGraphLaunch(launches_, stream_) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream_) == cudaSuccess);
  }

 private:
  Status status_;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t launches_ = nullptr;
};

}  // namespace

TEST_CASE("a captured execute replays with changed data, lengths and offsets", "[gpu]") {
  if (test::skips_without_device()) return;
  struct Row {
    const char* why;
    const char* engine;
    Graph graph;
    bool autotunes = false;
  };
  const auto [why, engine, graph, autotunes] =
      GENERATE(Row{"float32", "cuda", packed_training(DataType::kF32)},
               Row{"tensor cores", "cuda", packed_training(DataType::kBf16)},
               Row{"decode with split keys", "cuda", decode()},
               Row{"decode steps that overlap", "cuda", test::chained_decode()},
               Row{"dq that overlaps dk and dv, dim 256", "cuda", wide_backward(256, 256)},
               Row{"dq that overlaps dk and dv, dim 192 and 128", "cuda", wide_backward(192, 128)},
               Row{"packed, by cuDNN", "cudnn", packed_training(DataType::kBf16)},
               Row{"decode, by cuDNN", "cudnn", decode()}, Row{"autotuned", "cudnn", decode(), true});
  INFO(why);
  Context context;
  if (test::skips_without_engine(context, engine)) return;
  PlanOptions options;
  options.engine = engine;
  Plan plan = context.plan(graph, options).value();
  INFO(plan.explain());

  StepData data = make_step_data(graph, step_of(graph, plan, 1)).value();
  StepMemory memory(data, kNanPoison);
  REQUIRE(memory.allocate(graph, plan, {}).message() == "");
  Bindings bindings(plan);
  REQUIRE(memory.bind(bindings).message() == "");
  if (autotunes) {
    plan = context.autotune(plan, bindings, memory.workspace()).value();
    bindings = Bindings(plan);
    REQUIRE(memory.bind(bindings).message() == "");
    CHECK(plan.explain().find("autotuned: way ") != std::string::npos);
  }
  const Captured captured(bindings, memory.workspace());
  REQUIRE(captured.status().message() == "");

  for (uint64_t seed = 2; seed < 6; ++seed) {
    const Step step = step_of(graph, plan, seed);
    std::optional<StepData> drawn = make_step_data(graph, step).value();
    data = *drawn;
    REQUIRE(memory.fill().message() == "");
    captured.replay();
    REQUIRE(memory.check(graph, plan).message() == "");
    check_outputs(graph, memory, run_step(Library{context}, kReferenceEngine, step, drawn));
  }
}

TEST_CASE("a recording launches with changed data, also inside a capture", "[gpu]") {
  if (test::skips_without_device()) return;
  const std::string engine = GENERATE("cuda", "cudnn");
  INFO(engine);
  Context context;
  if (test::skips_without_engine(context, engine)) return;
  PlanOptions options;
  options.engine = engine;
  const Graph graph = packed_training(DataType::kBf16);
  const Plan plan = context.plan(graph, options).value();
  StepData data = make_step_data(graph, step_of(graph, plan, 1)).value();
  StepMemory memory(data, kNanPoison);
  REQUIRE(memory.allocate(graph, plan, {}).message() == "");
  Bindings bindings(plan);
  REQUIRE(memory.bind(bindings).message() == "");
  const auto made = Recording::make(bindings, memory.workspace());
  REQUIRE(made.status().message() == "");
  const Recording recording = *made;
  const std::function<void()> launches[] = {
      [&] { CHECK(recording.launch().message() == ""); },
      [&] { Captured([&](void* stream) { return recording.launch(stream); }).replay(); },
  };
  for (uint64_t seed = 2; seed < 4; ++seed) {
    INFO("launch " << seed - 2);
    const Step step = step_of(graph, plan, seed);
    std::optional<StepData> drawn = make_step_data(graph, step).value();
    data = *drawn;
    REQUIRE(memory.fill().message() == "");
    launches[seed - 2]();
    REQUIRE(memory.check(graph, plan).message() == "");
    check_outputs(graph, memory, run_step(Library{context}, kReferenceEngine, step, drawn));
  }
}

TEST_CASE("what waits for the device is refused inside a capture and in a recording", "[gpu]") {
  if (test::skips_without_device()) return;
  const Graph graph = decode();
  Context context;
  PlanOptions options;
  options.engine = "cuda", options.validate_bindings = true;
  const Plan plan = context.plan(graph, options).value();
  const StepData data = make_step_data(graph, step_of(graph, plan, 1)).value();
  StepMemory memory(data, kNanPoison);
  REQUIRE(memory.allocate(graph, plan, {}).ok());
  Bindings bindings(plan);
  REQUIRE(memory.bind(bindings).ok());
  const Captured captured(bindings, memory.workspace());
  CHECK(captured.status().code() == Code::kUnsupported);
  CHECK(captured.status().message() ==
        "validate_bindings: the stream is being captured; must not be, as the check waits for its answer");
  CHECK(Recording::make(bindings, memory.workspace()).status().message() == captured.status().message());
  const Captured tuning(
      [&](void* stream) { return context.autotune(plan, bindings, memory.workspace(), stream).status(); });
  CHECK(tuning.status().message() ==
        "autotune: the stream is being captured; must not be, as its times are read while it runs");
}
