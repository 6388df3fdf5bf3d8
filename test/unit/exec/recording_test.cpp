#include "attngraph/recording.hpp"

#include <array>

#include "support/catch.hpp"
#include "support/stub_engine.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

/// A plan for a host, and the memory of its four tensors [2, 1, 4, 8] of float32.
struct Fixture {
  alignas(256) std::array<std::array<std::byte, 256>, 4> tensors{};
  alignas(256) std::array<std::byte, 4096> workspace{};
  int64_t num_runs = 0;
  const std::byte* last_o = nullptr;
  Plan plan = make_plan();

  Plan make_plan() {
    StubBehaviour behaviour;
    behaviour.run = [this](const Buffers& buffers, const Slice&, const PlacedWorkspace&) {
      ++num_runs, last_o = buffers[Role::kO];
    };
    return plan_program(forward_program(2, 1, 4, 8), {}, stub_engines({behaviour})).value();
  }
  Bindings bind() {
    Bindings bindings(plan);
    for (size_t i = 0; i < 4; ++i)
      REQUIRE(bindings.set({static_cast<Uid>(i) + 1, tensors[i].data(), 256}).ok());
    return bindings;
  }
  Workspace scratch() { return {workspace.data(), plan.workspace_bytes()}; }
};

}  // namespace

TEST_CASE("a recording on a host runs nothing when it is made, and the call at each launch", "[exec]") {
  Fixture f;
  Bindings bindings = f.bind();
  const Recording recording = Recording::make(bindings, f.scratch()).value();
  CHECK(f.num_runs == 0);
  REQUIRE(bindings.set({4, f.workspace.data(), 256}).ok());  // the recording has its own pointers
  for (int64_t launches = 1; launches < 4; ++launches) {
    CHECK(recording.launch().ok());
    CHECK(f.num_runs == launches);
    CHECK(f.last_o == f.tensors[3].data());
  }
}

TEST_CASE("a call that execute refuses is not recorded", "[exec]") {
  Fixture f;
  CHECK(Recording::make(Bindings(f.plan), f.scratch()).status().message() ==
        "q (uid 1): is not bound; execute needs its pointer");
  Bindings small = f.bind();
  REQUIRE(small.set({3, f.tensors[2].data(), 252}).ok());
  const Status status = Recording::make(small, f.scratch()).status();
  CHECK(status.code() == Code::kBadBinding);
  CHECK(status.message() == "v (uid 3): has 252 bytes; needs 256");
}
