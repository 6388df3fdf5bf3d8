#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

#include "attngraph/recording.hpp"
#include "support/catch.hpp"
#include "support/stub_engine.hpp"

namespace {

std::atomic<int64_t> num_allocations = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  ++num_allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort asks for its buffer this way; both forms must come from one allocator.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++num_allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

using namespace attngraph;
using namespace attngraph::test;

TEST_CASE(
    "execute and the launch of a recording allocate nothing, not even to prove interleaved outputs apart",
    "[exec]") {
  // q, k, v and o are the four parts of every token of one buffer [batch, len, 4, heads, dim].
  constexpr int64_t kBatch = 8, kHeads = 2, kLen = 4, kDim = 8, kToken = 4 * kHeads * kDim;
  Program program = forward_program(kBatch, kHeads, kLen, kDim);
  for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kO})
    program.nodes[0].problem[role].stride = {kLen * kToken, kDim, kToken, 1};
  StubBehaviour behaviour;
  int64_t num_slices = 0;
  behaviour.run = [&](const Buffers&, const Slice&, const PlacedWorkspace&) { ++num_slices; };
  PlanOptions options;
  options.max_workspace_bytes = 4096;
  options.guard_bytes = 64;
  const Plan plan = plan_program(program, options, stub_engines({behaviour})).value();

  alignas(256) static std::array<float, kBatch * kLen * kToken> buffer;
  alignas(256) static std::array<std::byte, 4096> workspace;
  Bindings bindings(plan);
  for (int64_t part = 0; part < 4; ++part)
    REQUIRE(bindings.set({part + 1, buffer.data() + part * kHeads * kDim, -1}).ok());

  const Workspace scratch{workspace.data(), plan.workspace_bytes()};
  const Recording recording = Recording::make(bindings, scratch).value();
  const int64_t before = num_allocations;
  const Status status = execute(plan, bindings, scratch);
  const int64_t after = num_allocations;
  const Status launched = recording.launch();
  const int64_t after_launch = num_allocations;
  CHECK(status.ok());
  CHECK(after == before);
  CHECK(launched.ok());
  CHECK(after_launch == after);
  CHECK(before > 0);
  CHECK(num_slices > 1);
}
