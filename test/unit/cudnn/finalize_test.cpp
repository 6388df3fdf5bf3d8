#include <iostream>

#include "engine/cudnn/build.hpp"
#include "engine/cudnn/lower.hpp"
#include "support/catch.hpp"
#include "unit/cudnn/lowered.hpp"

using namespace attngraph;
using namespace attngraph::cudnn;
using namespace attngraph::test;

// cuDNN finalizes operation graphs without a handle, a device or a driver, and answers there for every
// extent, stride, type and offset tensor.
TEST_CASE("cuDNN takes the operations of every lowered problem", "[cudnn]") {
  const auto library = Library::find(ATTNGRAPH_TEST_CUDNN, Linker::system());
  if (!library.ok()) {
    std::cout << "skipped: " << library.status().message() << '\n';
    return;
  }
  for (const Lowered& row : lowered_problems()) {
    const auto graph = BackendGraph::make(**library, lower(row.problem), nullptr);
    INFO(row.name << ": " << graph.status().message());
    CHECK(graph.ok());
  }
}

TEST_CASE("cuDNN's refusal of a descriptor names the tensor", "[cudnn]") {
  const auto library = Library::find(ATTNGRAPH_TEST_CUDNN, Linker::system());
  if (!library.ok()) {
    std::cout << "skipped: " << library.status().message() << '\n';
    return;
  }
  OpGraph graph = lower(lowered_problems().front().problem);
  graph.tensors[0].extent[0] = -1;
  const auto made = BackendGraph::make(**library, graph, nullptr);
  REQUIRE(!made.ok());
  CHECK(made.status().code() == Code::kBackend);
  for (const char* word : {"tensor q", "CUDNN_STATUS_BAD_PARAM", "must succeed"})
    CHECK(made.status().message().find(word) != std::string::npos);
}
