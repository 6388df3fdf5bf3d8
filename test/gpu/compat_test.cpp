#include <cuda_runtime_api.h>

#include <cmath>
#include <map>

#include "compat/attention.hpp"
#include "device/device.hpp"
#include "gpu/device.hpp"
#include "support/catch.hpp"

using namespace attngraph::test;

namespace {

/// A forward's tensors in device memory.
class OnDevice {
 public:
  OnDevice(Attention& a, int64_t workspace_bytes) {
    put(kQ, a.q), put(kK, a.k), put(kV, a.v);
    put(kO, std::vector<float>(a.q.size(), NAN)), put(kStats, std::vector<float>(a.q.size() / 4, NAN));
    workspace_ = attngraph::device::Memory::allocate(workspace_bytes).value();
  }

  Pack pack() const {
    Pack pointers;
    for (const auto& [uid, memory] : memory_) pointers[uid] = memory.data();
    return pointers;
  }
  void* workspace() const { return workspace_.data(); }
  std::vector<float> o() const {
    const attngraph::device::Memory& memory = memory_.at(kO);
    std::vector<float> values(static_cast<size_t>(memory.bytes()) / sizeof(float));
    REQUIRE(memory.copy_out(reinterpret_cast<std::byte*>(values.data())).message() == "");
    return values;
  }

 private:
  void put(int64_t uid, const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    memory_[uid] = attngraph::device::Memory::allocate(bytes).value();
    REQUIRE(memory_[uid].copy_in(reinterpret_cast<const std::byte*>(values.data())).message() == "");
  }

  std::map<int64_t, attngraph::device::Memory> memory_;
  attngraph::device::Memory workspace_;
};

void check_near(const std::vector<float>& got, const std::vector<float>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t at = 0; at < got.size(); ++at) {
    INFO("element " << at << ": " << got[at] << " for " << want[at]);
    CHECK(std::abs(got[at] - want[at]) <= 2e-5F * (1 + std::abs(want[at])));  // contract section 8, float32
  }
}

void launch(cudaGraph_t graph) {
  cudaGraphExec_t launches = nullptr;
  REQUIRE(cudaGraphInstantiate(&launches, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphLaunch(launches, nullptr) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  REQUIRE(cudaGraphExecDestroy(launches) == cudaSuccess);
}

}  // namespace

TEST_CASE("a graph with derived slopes runs, and is recorded and updated in a CUDA graph", "[gpu]") {
  if (skips_without_device()) return;
  Attention a, other;
  a.alibi = other.alibi = true, a.right = other.right = 0;
  a.draw(1), other.draw(2);
  fe::graph::Graph graph = forward(a);
  graph.set_attngraph_options({});
  const fe::error_t built = graph.build({fe::HeurMode_t::A});
  INFO(built.get_message());
  REQUIRE(built.is_good());
  const OnDevice first(a, graph.get_workspace_size()), second(other, graph.get_workspace_size()),
      third(other, graph.get_workspace_size());
  REQUIRE(graph.execute(nullptr, first.pack(), first.workspace()).get_message() == "");
  check_near(first.o(), documented(a).o);

  cudaGraph_t recorded = nullptr;
  REQUIRE(cudaGraphCreate(&recorded, 0) == cudaSuccess);
  CHECK(graph.update_cuda_graph(nullptr, second.pack(), second.workspace(), recorded).get_message() ==
        "cuda graph: has 0 nodes; must have the one child graph that was recorded before");
  REQUIRE(graph.populate_cuda_graph(nullptr, second.pack(), second.workspace(), recorded).get_message() ==
          "");
  launch(recorded);
  check_near(second.o(), documented(other).o);
  CHECK(graph.populate_cuda_graph(nullptr, second.pack(), second.workspace(), recorded).get_message() ==
        "cuda graph: has 1 nodes; must be empty");
  REQUIRE(graph.update_cuda_graph(nullptr, third.pack(), third.workspace(), recorded).get_message() == "");
  launch(recorded);
  check_near(third.o(), documented(other).o);
  REQUIRE(cudaGraphDestroy(recorded) == cudaSuccess);
}
