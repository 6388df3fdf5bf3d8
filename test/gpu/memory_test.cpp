#include <algorithm>
#include <vector>

#include "attngraph/context.hpp"
#include "attngraph/execute.hpp"
#include "attngraph/training.hpp"
#include "cli/guarded.hpp"
#include "gpu/device.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cli;

namespace {

/// Backward of a small problem: its plan has regions.
Plan guarded_plan(Context& context) {
  Graph graph;
  SdpaForward node;
  const auto tensor = [&](const char* name) {
    return graph.tensor(name, DataType::kBf16, bhsd({1, 2, 40, 64}));
  };
  node.q = tensor("q"), node.k = tensor("k"), node.v = tensor("v");
  graph.sdpa_forward(node);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  PlanOptions options;
  options.engine = "cuda", options.guard_bytes = 512;
  return context.plan(training_pair(graph, wanted).value().backward, options).value();
}

}  // namespace

TEST_CASE("guarded device memory is aligned as asked for and carries bytes both ways", "[gpu]") {
  if (test::skips_without_device()) return;
  for (const int64_t alignment : {1, 16, 256, 4096}) {
    auto memory = GuardedMemory::make({100, alignment, 0, MemoryKind::kCuda}, "q");
    REQUIRE(memory.status().message() == "");
    const auto address = reinterpret_cast<uintptr_t>(memory->data());
    CHECK(address % static_cast<uintptr_t>(2 * alignment) == static_cast<uintptr_t>(alignment));
    memory->fill(std::byte{7}, std::byte{9});
    REQUIRE(memory->upload().ok());
    memory->fill(std::byte{0}, std::byte{9});
    REQUIRE(memory->download().ok());
    CHECK(std::all_of(memory->bytes().begin(), memory->bytes().end(),
                      [](std::byte b) { return b == std::byte{7}; }));
    CHECK(memory->check_guards().message() == "");
  }
}

TEST_CASE("a byte beside a workspace region in device memory is found", "[gpu]") {
  if (test::skips_without_device()) return;
  Context context;
  const Plan plan = guarded_plan(context);
  REQUIRE(plan.workspace_bytes() > 1024);
  auto memory = device::Memory::allocate(plan.workspace_bytes());
  REQUIRE(memory.ok());
  // The pattern of an execute that touches nothing but its guards, then one byte of the first guard spoiled.
  std::vector<std::byte> bytes(static_cast<size_t>(plan.workspace_bytes()));
  for (size_t at = 0; at < bytes.size(); ++at) bytes[at] = guard_byte(static_cast<int64_t>(at));
  REQUIRE(memory->copy_in(bytes.data()).ok());
  CHECK(check_guards(plan, {memory->data(), memory->bytes()}).message() == "");
  bytes[511] ^= std::byte{1};
  REQUIRE(memory->copy_in(bytes.data()).ok());
  const Status overrun = check_guards(plan, {memory->data(), memory->bytes()});
  CHECK(overrun.code() == Code::kInternal);
  CHECK(overrun.message().find("at workspace bytes 511 to 511") != std::string::npos);
}
