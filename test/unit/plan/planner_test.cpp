#include "plan/planner.hpp"

#include <algorithm>
#include <set>

#include "plan/slices.hpp"
#include "support/catch.hpp"
#include "support/stub_engine.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

bool has_words(const std::string& message, std::initializer_list<const char*> words) {
  return std::all_of(words.begin(), words.end(),
                     [&](const char* word) { return message.find(word) != std::string::npos; });
}

Reason reason(const char* subject, const char* has, const char* wants) {
  return {Code::kUnsupported, subject, has, wants, ""};
}

}  // namespace

TEST_CASE("the first engine of the order that takes the problem plans it", "[plan]") {
  StubBehaviour picky;
  picky.name = "picky";
  picky.refusals = {reason("qk_dim", "12", "a multiple of 8")};
  const Plan plan = plan_program(forward_program(1, 1, 4, 12), {}, stub_engines({picky, {}})).value();
  CHECK(plan.engines() == std::vector<std::string>{"stub"});
  CHECK(has_words(plan.explain(), {"passed over picky: qk_dim is 12; needs a multiple of 8"}));
}

TEST_CASE("a refusal names every engine with every reason", "[plan]") {
  StubBehaviour a, b;
  a.name = "a", b.name = "b";
  a.refusals = {reason("qk_dim", "12", "a multiple of 8"), reason("softcap", "3", "0")};
  b.refusals = {reason("target", "sm_90", "host memory")};
  const auto refused = plan_program(forward_program(1, 1, 4, 12), {}, stub_engines({a, b}));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == Code::kUnsupported);
  CHECK(refused.status().message() ==
        "no engine runs f32 forward b1 h1:1 s4:4 d12:12\n  a: qk_dim is 12; needs a multiple of 8\n"
        "  a: softcap is 3; needs 0\n  b: target is sm_90; needs host memory");
}

TEST_CASE("an engine without kernels for a merge is passed over with that reason", "[plan]") {
  Program program = forward_program(1, 1, 4, 12);
  program.nodes[0].problem.pass = Pass::kMerge;
  CHECK(plan_program(program, {}, stub_engines({{}})).status().message() ==
        "no engine runs f32 merge_partials b1 h1 s4 d12\n"
        "  stub: node is merge_partials; needs forward or backward");
}

TEST_CASE("scores whose scale or softcap leaves float32 are refused with the end of what is taken",
          "[plan]") {
  struct Row {
    double scale, softcap;
    const char* words;
  };
  const Row row = GENERATE(values<Row>({
      {0.125, 0, ""},
      {0, 0, ""},
      {-2.35e38, 0, ""},
      {-2.36e38, 0, "scale is -2.36e+38; needs a magnitude of 2.3586574916681825e+38 at most"},
      {1e308, 0, "scale is 1e+308; needs a magnitude of 2.3586574916681825e+38 at most"},
      {0.125, 2.35e38, ""},
      {0.125, 1.18e-38, ""},
      {0.125, 2.36e38, "softcap is 2.36e+38; needs 0 or 1.1754943508222875e-38 to 2.3586574916681825e+38"},
      {0.125, 1e-46, "softcap is 1e-46; needs 0 or 1.1754943508222875e-38 to 2.3586574916681825e+38"},
      {1.17e38, 2, ""},
      {1.18e38, 2,
       "scale is 1.18e+38; needs a magnitude of 1.1793287458340913e+38 at most with a softcap of 2"},
      {-2e18, 1e-20,
       "scale is -2e+18; needs a magnitude of 1179328745834091264 at most with a softcap of 1e-20"},
  }));
  Problem problem = forward_program(1, 1, 4, 8).nodes[0].problem;
  problem.scale = row.scale, problem.softcap = row.softcap;
  const std::vector<Reason> reasons = needs_float_scores(problem);
  CHECK((reasons.empty() ? "" : describe(reasons.front())) == row.words);
}

TEST_CASE("a problem in words keeps every digit of its softcap and dropout", "[plan]") {
  Problem problem = forward_program(1, 1, 4, 8).nodes[0].problem;
  problem.softcap = 30.0000001, problem.dropout_p = 0.1234567;
  CHECK(has_words(text(problem), {"softcap 30.0000001", "dropout 0.1234567"}));
}

TEST_CASE("products stand for scores where a scale is positive and not tiny", "[plan]") {
  Problem problem = forward_program(1, 1, 4, 8).nodes[0].problem;
  const auto stand = [&](double scale) {
    problem.scale = scale;
    return keeps_order_of_products(problem);
  };
  CHECK(stand(0.125));
  CHECK(stand(1e-36));
  CHECK_FALSE(stand(9e-37));
  CHECK_FALSE(stand(1e-50));
  CHECK_FALSE(stand(0));
  CHECK_FALSE(stand(-0.125));
}

TEST_CASE("an engine that is named plans alone, and an unknown one is refused", "[plan]") {
  StubBehaviour a, b;
  a.name = "a", b.name = "b";
  PlanOptions options;
  options.engine = "b";
  CHECK(plan_program(forward_program(1, 1, 4, 8), options, stub_engines({a, b})).value().engines().front() ==
        "b");
  options.engine += 'c';
  const auto refused = plan_program(forward_program(1, 1, 4, 8), options, stub_engines({a, b}));
  CHECK(refused.status().code() == Code::kUnsupported);
  CHECK(has_words(refused.status().message(), {"engine", "is bc", "a, b"}));
}

TEST_CASE("a failure of an engine's planning is the plan's", "[plan]") {
  StubBehaviour broken;
  broken.plan_failure = Status(Code::kBackend, "cudaMalloc: 2 out of memory");
  const auto failed = plan_program(forward_program(1, 1, 4, 8), {}, stub_engines({broken}));
  CHECK(failed.status().code() == Code::kBackend);
}

TEST_CASE("an engine that refuses when it plans is passed over with its words", "[plan]") {
  StubBehaviour late;
  late.name = "late";
  late.refuses_late = true;
  late.plan_failure = Status(Code::kUnsupported, "the library has no kernel");
  const Plan plan = plan_program(forward_program(1, 1, 4, 8), {}, stub_engines({late, {}})).value();
  CHECK(plan.engines() == std::vector<std::string>{"stub"});
  CHECK(has_words(plan.explain(), {"passed over late: planning is refused: the library has no kernel"}));
  late.plan_failure = Status(Code::kBackend, "the library is broken");
  PlanOptions options;
  CHECK(plan_program(forward_program(1, 1, 4, 8), options, stub_engines({late, {}})).value().engines() ==
        std::vector<std::string>{"stub"});
  options.engine = "late";
  CHECK(plan_program(forward_program(1, 1, 4, 8), options, stub_engines({late, {}})).status().code() ==
        Code::kBackend);
}

TEST_CASE("an engine with plans for one batch alone is passed over when the batch may vary", "[plan]") {
  StubBehaviour fixed;
  fixed.name = "fixed";
  fixed.takes_fewer_sequences = false;
  PlanOptions options;
  CHECK(plan_program(forward_program(2, 1, 4, 8), options, stub_engines({fixed})).ok());
  options.varying.batch = true;
  const auto refused = plan_program(forward_program(2, 1, 4, 8), options, stub_engines({fixed}));
  CHECK(has_words(refused.status().message(),
                  {"fixed: varying is batch; needs a batch that every call brings whole"}));
}

TEST_CASE("a virtual tensor is a region from its maker to its last reader", "[plan]") {
  ProgramNode first = forward_node(1, 1, 4, 8), second = first;
  second.slots.data[static_cast<size_t>(Role::kQ)] = 3;
  second.slots.data[static_cast<size_t>(Role::kO)] = 4;
  const Program program{{first, second}, {false, false, false, true, false}};
  const Plan plan = plan_program(program, {}, stub_engines({{}})).value();
  CHECK(plan.slot(4) == -1);
  CHECK(plan.slot(5) == 4);
  const WorkspaceLayout& workspace = plan.state().core->workspace;
  const RegionId region = plan.state().core->virtual_regions[3];
  CHECK(workspace.region(region).bytes == 128);
  const Lifetime lifetime = workspace.entries()[static_cast<size_t>(region.index)].booking.lifetime;
  CHECK(lifetime.first == 0);
  CHECK(lifetime.last == 1);
  // Both accumulators share 1024 bytes; the virtual tensor lives beside either.
  CHECK(plan.workspace_bytes() == 1024 + 128);
}

TEST_CASE("a row of the order that names a class of problems counts for that class alone", "[plan]") {
  EngineSet set;
  for (const char* name : {"usual", "other"}) {
    StubBehaviour behaviour;
    behaviour.name = name;
    set.engines.push_back(std::make_unique<StubEngine>(behaviour));
  }
  const auto is_long = [](const Problem& p, const Target&) { return p.q_len >= 100; };
  const OrderRow order[] = {{Pass::kForward, MemoryKind::kHost, "other", is_long},
                            {Pass::kForward, MemoryKind::kHost, "usual"},
                            {Pass::kForward, MemoryKind::kHost, "other"}};
  set.order = order;
  const auto names = [&](int64_t len) {
    std::string list;
    for (const Engine* engine : set.ordered(forward_node(1, 1, len, 8).problem, Target::cpu(1)))
      list += std::string(engine->name()) + ' ';
    return list;
  };
  CHECK(names(99) == "usual other ");
  CHECK(names(100) == "other usual ");
}

TEST_CASE("slices cover every sequence and head once, in order", "[plan]") {
  for (const int64_t batch : {0, 1, 5, 8})
    for (const int64_t heads : {0, 1, 3, 4})
      for (const int64_t slice_batch : {1, 2, 5})
        for (const int64_t slice_heads : {1, 2, 4}) {
          const SliceShape shape{slice_batch, slice_heads};
          const SliceCounts counts = count_slices(shape, batch, heads);
          std::vector<std::pair<int64_t, int64_t>> seen;
          for (int64_t i = 0; i < counts.total(); ++i) {
            const Slice slice = slice_at(i, counts, shape, batch, heads);
            CHECK(slice.is_first == (i == 0));
            CHECK(slice.is_last == (i == counts.total() - 1));
            for (int64_t b = slice.batch_begin; b < slice.batch_end; ++b)
              for (int64_t h = slice.kv_head_begin; h < slice.kv_head_end; ++h) seen.emplace_back(b, h);
          }
          CHECK(counts.total() >= 1);
          CHECK(seen.size() == static_cast<size_t>(batch * heads));
          CHECK(std::set<std::pair<int64_t, int64_t>>(seen.begin(), seen.end()).size() == seen.size());
        }
}
