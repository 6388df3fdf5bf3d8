/// What a framework does on a GPU, through the C interface alone.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <random>

#include "capi/process_calls.hpp"
#include "capi/support.hpp"
#include "support/catch.hpp"

using namespace attngraph::test;

namespace {

constexpr int64_t kBatch = 3, kHeads = 4, kKvHeads = 2, kLen = 150, kDim = 64;

struct Pair {
  CGraph forward, backward;
};

/// A causal training step over padded sequences of bound lengths, tokens before heads in memory.
Pair training_step(attngraph_data_type type) {
  attngraph_graph *graph = nullptr, *forward = nullptr, *backward = nullptr;
  REQUIRE(attngraph_graph_create("step", &graph, nullptr) == ATTNGRAPH_OK);
  const CGraph owner(graph);
  const auto add = [&](const char* name, attngraph_data_type of, std::vector<int64_t> dims,
                       std::vector<int64_t> strides) {
    attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
    tensor.name = name;
    tensor.data_type = of;
    tensor.rank = static_cast<int32_t>(dims.size());
    tensor.dims = dims.data(), tensor.strides = strides.data();
    int64_t uid = ATTNGRAPH_NONE;
    REQUIRE(attngraph_graph_add_tensor(graph, &tensor, &uid, nullptr) == ATTNGRAPH_OK);
    return uid;
  };
  const auto rows = [&](const char* name, int64_t heads) {
    return add(name, type, {kBatch, heads, kLen, kDim}, {kLen * heads * kDim, kDim, heads * kDim, 1});
  };
  const int64_t lengths = add("lengths", ATTNGRAPH_I32, {kBatch}, {1});
  const attngraph_port ports[] = {{"q", rows("q", kHeads)},   {"k", rows("k", kKvHeads)},
                                  {"v", rows("v", kKvHeads)}, {"o", rows("o", kHeads)},
                                  {"seq_len_q", lengths},     {"seq_len_kv", lengths}};
  attngraph_attributes attributes = ATTNGRAPH_ATTRIBUTES_INIT;
  attributes.band_right = 0;
  attngraph_node node = ATTNGRAPH_NODE_INIT;
  node.op = "sdpa_forward";
  node.ports = ports, node.num_ports = std::size(ports);
  node.attributes = &attributes;
  REQUIRE(attngraph_graph_add_node(graph, &node, nullptr) == ATTNGRAPH_OK);
  REQUIRE(attngraph_training_pair(graph, ATTNGRAPH_GRADIENT_Q | ATTNGRAPH_GRADIENT_K | ATTNGRAPH_GRADIENT_V,
                                  &forward, &backward, nullptr) == ATTNGRAPH_OK);
  return {CGraph(forward), CGraph(backward)};
}

/// Values that float32 and bfloat16 hold alike.
std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = normal(engine);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    bits &= 0xffff0000u;
    std::memcpy(&value, &bits, sizeof bits);
  }
  return values;
}

struct Inputs {
  std::map<std::string, std::vector<float>> values;
  std::vector<int32_t> lengths;
};
Inputs draw(unsigned seed, std::vector<int32_t> lengths) {
  Inputs inputs;
  for (const auto& [name, heads] : {std::pair{"q", kHeads}, {"k", kKvHeads}, {"v", kKvHeads}, {"do", kHeads}})
    inputs.values[name] = random_values(kBatch * heads * kLen * kDim, seed++);
  inputs.lengths = std::move(lengths);
  return inputs;
}

/// Both passes planned for one engine, over memory of its kind. CUDA copies between host and device alike.
class Step {
 public:
  Step(attngraph_context* context, const Pair& graphs, const char* engine, attngraph_data_type type)
      : type_(type), on_device_(std::string(engine) != "cpu") {
    for (const CGraph* graph : {&graphs.forward, &graphs.backward}) {
      attngraph_plan_options options = ATTNGRAPH_PLAN_OPTIONS_INIT;
      options.engine = engine;
      attngraph_plan* plan = nullptr;
      Message message;
      const auto status = attngraph_plan_create(context, graph->get(), nullptr, &options, &plan, message);
      INFO(message.text);
      REQUIRE(status == ATTNGRAPH_OK);
      passes_.emplace_back();
      passes_.back().plan.reset(plan);
      bind(passes_.back());
    }
  }
  ~Step() {
    for (const auto& [name, memory] : memory_) release(memory.data);
    for (const Pass& pass : passes_) release(pass.call.workspace);
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Outputs and workspaces start as NaN.
  void set(const Inputs& inputs) {
    for (const auto& [name, memory] : memory_) poison(memory);
    for (const Pass& pass : passes_) poison({pass.call.workspace, pass.call.workspace_bytes});
    for (const auto& [name, values] : inputs.values) {
      std::vector<std::byte> bytes(values.size() * element_bytes(name));
      for (size_t i = 0; i < values.size(); ++i)  // the upper half of a float is the same value in bfloat16
        std::memcpy(&bytes[i * element_bytes(name)],
                    reinterpret_cast<const std::byte*>(&values[i]) + sizeof(float) - element_bytes(name),
                    element_bytes(name));
      copy(memory_.at(name).data, bytes.data(), bytes.size());
    }
    copy(memory_.at("lengths").data, inputs.lengths.data(), inputs.lengths.size() * sizeof(int32_t));
  }

  attngraph_status run(void* stream, Message& message) {
    for (Pass& pass : passes_) {
      pass.call.stream = stream;
      const attngraph_status status = attngraph_execute(pass.plan.get(), &pass.call, message);
      if (status != ATTNGRAPH_OK) return status;
    }
    return ATTNGRAPH_OK;
  }

  std::vector<float> read(const std::string& name) const {
    const Memory& memory = memory_.at(name);
    std::vector<std::byte> bytes(static_cast<size_t>(memory.bytes));
    copy(bytes.data(), memory.data, bytes.size());
    std::vector<float> values(bytes.size() / element_bytes(name));
    for (size_t i = 0; i < values.size(); ++i)
      std::memcpy(reinterpret_cast<std::byte*>(&values[i]) + sizeof(float) - element_bytes(name),
                  &bytes[i * element_bytes(name)], element_bytes(name));
    return values;
  }

 private:
  struct Memory {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  struct Pass {
    CPlan plan;
    std::vector<void*> pointers;
    attngraph_call call = ATTNGRAPH_CALL_INIT;
  };

  size_t element_bytes(const std::string& name) const {
    return type_ == ATTNGRAPH_F32 || name == "stats" ? sizeof(float) : 2;
  }
  static void copy(void* to, const void* from, size_t bytes) {
    REQUIRE(cudaMemcpy(to, from, bytes, cudaMemcpyDefault) == cudaSuccess);
  }
  void* allocate(int64_t bytes) const {
    const auto rounded = static_cast<size_t>((bytes / 256 + 1) * 256);
    if (!on_device_) return std::aligned_alloc(256, rounded);
    void* data = nullptr;
    REQUIRE(cudaMalloc(&data, rounded) == cudaSuccess);
    return data;
  }
  void release(void* data) const {
    if (on_device_)
      static_cast<void>(cudaFree(data));
    else
      std::free(data);
  }
  void poison(const Memory& memory) const {
    const std::vector<char> nan(static_cast<size_t>(memory.bytes), '\xff');
    copy(memory.data, nan.data(), nan.size());
  }
  void bind(Pass& pass) {
    const int32_t num_slots = attngraph_plan_num_slots(pass.plan.get());
    for (int32_t slot = 0; slot < num_slots; ++slot) {
      attngraph_slot info = ATTNGRAPH_SLOT_INIT;
      REQUIRE(attngraph_plan_slot_info(pass.plan.get(), slot, &info, nullptr) == ATTNGRAPH_OK);
      Memory& memory = memory_[info.name];
      if (memory.data == nullptr) memory = {allocate(info.bytes), info.bytes};
      pass.pointers.push_back(memory.data);
    }
    pass.call.pointers = pass.pointers.data();
    pass.call.num_pointers = num_slots;
    pass.call.workspace_bytes = attngraph_plan_workspace_bytes(pass.plan.get());
    pass.call.workspace = allocate(pass.call.workspace_bytes);
  }

  attngraph_data_type type_;
  bool on_device_;
  std::map<std::string, Memory> memory_;
  std::vector<Pass> passes_;
};

struct Tolerance {
  double absolute = 0, relative = 0;
};
/// "" or the first element where two engines differ by more than each may from the truth (section 8 of
/// docs/numerics.md).
std::string first_difference(const std::vector<float>& got, const std::vector<float>& want,
                             Tolerance tolerance) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double distance = std::abs(double{got[i]} - double{want[i]});
    const double allowed = 2 * (tolerance.absolute + tolerance.relative * std::abs(double{want[i]}));
    if (got[i] == want[i] || (std::isfinite(want[i]) && distance <= allowed)) continue;
    return "element " + std::to_string(i) + ": got " + std::to_string(got[i]) + ", want " +
           std::to_string(want[i]);
  }
  return "";
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(double{value}));
  return most;
}

bool skips(const attngraph_context* context, const std::string& engine) {
  attngraph_target target = ATTNGRAPH_TARGET_INIT;
  Message message;
  if (attngraph_context_target(context, engine.c_str(), &target, message) != ATTNGRAPH_OK)
    std::cout << "skipped: " << message.text << std::endl;
  else if (engine == "cudnn" && target.cudnn_version == 0)
    std::cout << "skipped: there is no cuDNN" << std::endl;
  else
    return false;
  return true;
}

}  // namespace

TEST_CASE("a training step captured at its first run replays with other inputs, and allocates nothing",
          "[gpu]") {
  struct Row {
    const char* engine;
    attngraph_data_type type;
    double forward, backward;  // tolerances
  };
  const auto [engine, type, forward, backward] =
      GENERATE(Row{"cuda", ATTNGRAPH_F32, 2e-5, 1e-4}, Row{"cuda", ATTNGRAPH_BF16, 2e-2, 4e-2},
               Row{"cudnn", ATTNGRAPH_BF16, 2e-2, 4e-2});
  const CContext context = make_context();
  if (skips(context.get(), engine)) return;
  INFO(engine << (type == ATTNGRAPH_F32 ? " f32" : " bf16"));
  const Pair graphs = training_step(type);
  Step device(context.get(), graphs, engine, type), host(context.get(), graphs, "cpu", type);

  cudaStream_t stream = nullptr;
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t replayed = nullptr;
  Message message;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  const attngraph_status status = device.run(stream, message);
  REQUIRE(cudaStreamEndCapture(stream, &captured) == cudaSuccess);
  INFO(message.text);
  REQUIRE(status == ATTNGRAPH_OK);
  REQUIRE(cudaGraphInstantiate(&replayed, captured, 0) == cudaSuccess);

  unsigned seed = 1;
  for (const std::vector<int32_t>& lengths :
       {std::vector<int32_t>{kLen, kLen, kLen}, {0, 1, 97}, {kLen, 64, 0}}) {
    const Inputs inputs = draw(seed += 10, lengths);
    device.set(inputs), host.set(inputs);
    REQUIRE(cudaGraphLaunch(replayed, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    REQUIRE(host.run(nullptr, message) == ATTNGRAPH_OK);
    CHECK(first_difference(device.read("o"), host.read("o"), {forward, forward}) == "");
    CHECK(first_difference(device.read("stats"), host.read("stats"), {1e-4, 1e-5}) == "");
    for (const char* gradient : {"dq", "dk", "dv"}) {
      const std::vector<float> want = host.read(gradient);
      CHECK(first_difference(device.read(gradient), want, {backward * largest(want), backward}) == "");
    }
  }

  const ProcessCalls before = own_calls();  // drivers and cuDNN allocate for themselves
  REQUIRE(device.run(stream, message) == ATTNGRAPH_OK);
  const ProcessCalls after = own_calls();
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(after.allocations == before.allocations);
  CHECK(after.environment_reads == before.environment_reads);
  static_cast<void>(cudaGraphExecDestroy(replayed));
  static_cast<void>(cudaGraphDestroy(captured));
  static_cast<void>(cudaStreamDestroy(stream));
}
