#include "attngraph/execute.hpp"

#include <array>
#include <cstring>

#include "support/catch.hpp"
#include "support/stub_engine.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

/// Memory for the four tensors [2, 1, 4, 8] of float32 and a workspace.
struct Memory {
  alignas(256) std::array<std::byte, 256> q{}, k{}, v{}, o{};
  alignas(256) std::array<std::byte, 4096> workspace{};

  Bindings bind(const Plan& plan) {
    Bindings bindings(plan);
    Uid uid = 1;
    for (std::array<std::byte, 256>* tensor : {&q, &k, &v, &o})
      REQUIRE(bindings.set({uid++, tensor->data(), 256}).ok());
    return bindings;
  }
  Workspace scratch(const Plan& plan) { return {workspace.data(), plan.workspace_bytes()}; }
};

Plan small_plan(const PlanOptions& options = {}, StubBehaviour behaviour = {}) {
  return plan_program(forward_program(2, 1, 4, 8), options, stub_engines({std::move(behaviour)})).value();
}

void check_refused(const Status& status, const std::string& message) {
  CHECK(status.code() == Code::kBadBinding);
  CHECK(status.message() == message);
}

}  // namespace

TEST_CASE("a complete binding runs", "[exec]") {
  Memory memory;
  const Plan plan = small_plan();
  CHECK(execute(plan, memory.bind(plan), memory.scratch(plan)).ok());
  CHECK(execute(plan,
                {{1, memory.q.data()}, {2, memory.k.data()}, {3, memory.v.data()}, {4, memory.o.data()}},
                memory.scratch(plan))
            .ok());
}

TEST_CASE("a tensor without a pointer is named", "[exec]") {
  Memory memory;
  const Plan plan = small_plan();
  Bindings missing(plan);
  check_refused(execute(plan, missing, memory.scratch(plan)),
                "q (uid 1): is not bound; execute needs its pointer");
  Bindings null = memory.bind(plan);
  REQUIRE(null.set({2, nullptr, 256}).ok());
  check_refused(execute(plan, null, memory.scratch(plan)), "k (uid 2): is bound to null; needs 256 bytes");
}

TEST_CASE("storage that is too small or misaligned is named with both sizes", "[exec]") {
  Memory memory;
  const Plan plan = small_plan();
  Bindings small = memory.bind(plan);
  REQUIRE(small.set({3, memory.v.data(), 252}).ok());
  check_refused(execute(plan, small, memory.scratch(plan)), "v (uid 3): has 252 bytes; needs 256");
  Bindings misaligned = memory.bind(plan);
  REQUIRE(misaligned.set({3, memory.workspace.data() + 2052, -1}).ok());
  check_refused(execute(plan, misaligned, memory.scratch(plan)),
                "v (uid 3): lies 4 bytes past a multiple of 16; must be aligned to it");
}

TEST_CASE("a uid that the plan lacks cannot be bound", "[exec]") {
  const Plan plan = small_plan();
  Bindings bindings(plan);
  check_refused(bindings.set({77, nullptr, -1}), "uid 77: is bound; the plan has no tensor with this uid");
}

TEST_CASE("bindings of another plan are refused", "[exec]") {
  Memory memory;
  const Plan plan = small_plan(), other = small_plan();
  check_refused(execute(plan, memory.bind(other), memory.scratch(plan)),
                "bindings: were made for another plan; make them from this one");
}

TEST_CASE("a workspace that is short, null or misaligned is refused with needed and given bytes", "[exec]") {
  Memory memory;
  const Plan plan = small_plan();
  REQUIRE(plan.workspace_bytes() == 2048);
  const Bindings bindings = memory.bind(plan);
  check_refused(execute(plan, bindings, {memory.workspace.data(), 2047}),
                "workspace: has 2047 bytes; needs 2048");
  check_refused(execute(plan, bindings, {nullptr, 2048}), "workspace: is null; needs 2048 bytes");
  check_refused(execute(plan, bindings, {memory.workspace.data() + 16, 2048}),
                "workspace: lies 16 bytes past a multiple of 256; must be aligned to it");
}

TEST_CASE("an output that shares an element with another tensor or the workspace is refused", "[exec]") {
  Memory memory;
  const Plan plan = small_plan();
  Bindings bindings = memory.bind(plan);
  REQUIRE(bindings.set({4, memory.q.data(), 256}).ok());
  check_refused(execute(plan, bindings, memory.scratch(plan)),
                "o (uid 4): overlaps q (uid 1); they must share no element");
  REQUIRE(bindings.set({4, memory.workspace.data() + 1024, 256}).ok());
  check_refused(execute(plan, bindings, memory.scratch(plan)),
                "o (uid 4): overlaps the workspace; they must share no element");
}

TEST_CASE("tensors of no element need no pointer", "[exec]") {
  const Plan plan = plan_program(forward_program(0, 1, 4, 8), {}, stub_engines({{}})).value();
  Bindings bindings(plan);
  for (Uid uid = 1; uid <= 4; ++uid) REQUIRE(bindings.set({uid, nullptr, 0}).ok());
  CHECK(execute(plan, bindings, {}).ok());
}

TEST_CASE("regions hold their fill when an engine starts, in every slice", "[exec]") {
  Memory memory;
  StubBehaviour behaviour;
  behaviour.regions = [](const Problem&, const SliceShape& shape) {
    std::vector<Booking> bookings(3);
    bookings[0].name = "zeros", bookings[0].bytes = 256 * shape.batch, bookings[0].fill = Fill::kZero;
    bookings[1].name = "maxima", bookings[1].bytes = 64, bookings[1].fill = Fill::kMinusInf;
    bookings[2].name = "sums", bookings[2].bytes = 64, bookings[2].fill = Fill::kZero;
    bookings[2].scope = Scope::kNode;
    return bookings;
  };
  std::vector<std::array<float, 3>> seen;
  behaviour.run = [&seen](const Buffers&, const Slice&, const PlacedWorkspace& workspace) {
    std::array<float, 3> values;
    for (int i = 0; i < 3; ++i) {
      float* value = reinterpret_cast<float*>(workspace[RegionId{i}]);
      values[static_cast<size_t>(i)] = *value;
      *value = 7;
    }
    seen.push_back(values);
  };
  PlanOptions options;
  options.max_workspace_bytes = 256 + 256 + 64;  // one sequence a slice
  const Plan plan = small_plan(options, behaviour);
  memory.workspace.fill(std::byte{0xFF});
  REQUIRE(execute(plan, memory.bind(plan), memory.scratch(plan)).ok());
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(seen == std::vector<std::array<float, 3>>{{0, -inf, 0}, {0, -inf, 7}});
}

TEST_CASE("an overrun is named with its region, its bytes and its place", "[exec]") {
  struct Row {
    int region;
    int64_t at, bytes;
    const char* message;
  };
  const Row row = GENERATE(values<Row>({
      {0, 100, 5,
       "workspace region first of node 0: was overrun by 5 bytes past its end, at workspace bytes 356 to "
       "360; "
       "nothing outside a region may be written"},
      {1, -3, 3,
       "workspace region second of node 0: was overrun by 3 bytes before its begin, at workspace bytes 509 "
       "to 511; "
       "nothing outside a region may be written"},
      {1, 50, 1,
       "workspace region second of node 0: was overrun by 1 bytes past its end, at workspace bytes 562 to "
       "562; "
       "nothing outside a region may be written"},
  }));
  Memory memory;
  StubBehaviour behaviour;
  behaviour.regions = [](const Problem&, const SliceShape&) {
    std::vector<Booking> bookings(2);
    bookings[0].name = "first", bookings[0].bytes = 100;
    bookings[1].name = "second", bookings[1].bytes = 50;
    return bookings;
  };
  behaviour.run = [&row](const Buffers&, const Slice&, const PlacedWorkspace& workspace) {
    std::memset(workspace[RegionId{0}], 0xFF, 100);
    std::memset(workspace[RegionId{1}], 0xFF, 50);
    std::memset(workspace[RegionId{row.region}] + row.at, 0xFF, static_cast<size_t>(row.bytes));
  };
  PlanOptions options;
  options.guard_bytes = 64;
  const Plan plan = small_plan(options, behaviour);
  REQUIRE(execute(plan, memory.bind(plan), memory.scratch(plan)).ok());
  const Status overrun = check_guards(plan, memory.scratch(plan));
  CHECK(overrun.code() == Code::kInternal);
  CHECK(overrun.message() == row.message);
}

TEST_CASE("guards of a run that stays inside are intact", "[exec]") {
  Memory memory;
  StubBehaviour behaviour;
  behaviour.run = [](const Buffers&, const Slice&, const PlacedWorkspace& workspace) {
    std::memset(workspace[RegionId{0}], 0xFF, 2048);
  };
  PlanOptions options;
  options.guard_bytes = 256;
  const Plan plan = small_plan(options, behaviour);
  CHECK(plan.workspace_bytes() == 256 + 2048 + 256);
  REQUIRE(execute(plan, memory.bind(plan), memory.scratch(plan)).ok());
  CHECK(check_guards(plan, memory.scratch(plan)).ok());
}
