#include "cli/case_check.hpp"

#include <cmath>
#include <cstring>

#include "cli/compare.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cli;

namespace {

constexpr Uid kQ = 1, kV = 2, kO = 3, kStats = 4;

Values ones(size_t count) { return {std::vector<Number>(count, Number{1.0})}; }
WantedList numbers(std::initializer_list<double> list) {
  WantedList wanted;
  for (const double value : list) wanted.list.push_back({Wanted::Kind::kNumber, value});
  return wanted;
}

/// Three rows of one element over three keys of value 1, 2 and 3: o = 2, stats = 1 + ln 3.
Case three_rows() {
  Step step;
  Graph& graph = step.text.graph;
  const Layout rows = bhsd({1, 1, 3, 1});
  REQUIRE(graph.tensor("q", DataType::kF32, rows) == kQ);
  REQUIRE(graph.tensor("v", DataType::kF32, rows) == kV);
  REQUIRE(graph.tensor("o", DataType::kF32, rows) == kO);
  REQUIRE(graph.tensor("stats", DataType::kF32, rows) == kStats);
  SdpaForward node;
  node.q = kQ, node.k = kQ, node.v = kV, node.o = kO, node.stats = kStats;
  graph.nodes.push_back(node);
  step.bind = std::map<Uid, Source>{{kQ, ones(3)}, {kV, Values{{{1.0}, {2.0}, {3.0}}}}};
  const double stats = 1 + std::log(3.0);
  step.expect = {{kO, numbers({2, 2, 2})}, {kStats, numbers({stats, stats, stats})}};
  return {"three rows", "", {step}};
}

Verdict check(const Case& described, Library library) {
  return CaseCheck(described, library).run(kReferenceEngine);
}
Verdict check(const Case& described) {
  Context context;
  return check(described, Library{context});
}

void check_fails(const Verdict& verdict, std::initializer_list<const char*> words) {
  INFO(verdict.why);
  CHECK(verdict.kind == Verdict::Kind::kFail);
  for (const char* word : words) {
    INFO("want: " << word);
    CHECK(verdict.why.find(word) != std::string::npos);
  }
}

/// Runs the plan, then does `harm` to the memory of the tensors that were bound.
using Harm = void (*)(int call, float* q, float* o, const Workspace& workspace);
Verdict check_harmed(const Case& described, Harm harm) {
  Context context;
  int calls = 0;
  const auto execute_and_harm = [&](const Plan& plan, const Bindings& bindings, Workspace workspace) {
    const Status status = execute(plan, bindings, workspace);
    const auto data = [&](Uid uid) { return static_cast<float*>(bindings.table().data[plan.slot(uid)]); };
    harm(calls++, data(kQ), data(kO), workspace);
    return status;
  };
  return check(described, Library{context, execute_and_harm});
}

}  // namespace

TEST_CASE("a right answer passes, also one within the tolerance", "[cli]") {
  CHECK(check(three_rows()).kind == Verdict::Kind::kPass);
  Case close = three_rows();
  close.steps[0].expect[kO] = numbers({2.00003, 2, 2});  // 2e-5 + 2e-5 * 2
  CHECK(check(close).kind == Verdict::Kind::kPass);
}

TEST_CASE("a wrong element fails with uid, name, index, got and want", "[cli]") {
  Case wrong = three_rows();
  wrong.steps[0].expect[kO] = numbers({2, 2.0001, 2});
  check_fails(check(wrong), {"step 0", "uid 3 \"o\" index 1", "got 2,", "want 2.0001"});
  wrong.steps[0].tolerance = Tolerance{1e-3, 0};
  CHECK(check(wrong).kind == Verdict::Kind::kPass);
  for (const double special : {std::nan(""), static_cast<double>(INFINITY), static_cast<double>(-INFINITY)}) {
    wrong.steps[0].expect[kO] = numbers({2, 2, special});
    check_fails(check(wrong), {"index 2"});
  }
}

TEST_CASE("stats have their own tolerance", "[cli]") {
  Case wrong = three_rows();
  const double stats = 1 + std::log(3.0);
  wrong.steps[0].expect[kStats] = numbers({stats, stats, stats + 1e-4});
  CHECK(check(wrong).kind == Verdict::Kind::kPass);
  wrong.steps[0].expect[kStats] = numbers({stats, stats, stats + 1.5e-4});
  check_fails(check(wrong), {"\"stats\" index 2"});
}

TEST_CASE("o under dropout has the rounding of p in its tolerance, where the io type rounds it", "[cli]") {
  const auto atol = [](DataType io, double dropout_p) {
    Graph graph = three_rows().steps[0].text.graph;
    for (Tensor& tensor : graph.tensors)
      if (tensor.uid != kStats) tensor.dtype = io;
    std::get<SdpaForward>(graph.nodes[0]).attributes.dropout_p = dropout_p;
    const std::vector<OutputRule> rules = output_rules(graph);
    REQUIRE((rules.size() == 2 && rules[0].uid == kO && rules[1].tolerance.abs == 1e-4));
    return rules[0].tolerance.abs;
  };
  CHECK(atol(DataType::kBf16, 0) == 2e-2);
  CHECK(atol(DataType::kBf16, 1) == 2e-2);
  CHECK(atol(DataType::kBf16, 0.75) == Approx(2e-2 + 4 * 0x1p-8));
  CHECK(atol(DataType::kF16, 0.75) == Approx(4e-3 + 4 * 0x1p-11));
  CHECK(atol(DataType::kF32, 0.75) == 2e-5);
}

TEST_CASE("an element that is written where untouched is wanted fails", "[cli]") {
  Case wrong = three_rows();
  std::get<WantedList>(wrong.steps[0].expect[kO]).list[2] = {Wanted::Kind::kUntouched, 0};
  check_fails(check(wrong), {"index 2", "got 2", "want untouched"});
}

TEST_CASE("an element that is left alone fails where a number is wanted, and passes as untouched", "[cli]") {
  Case longer = three_rows();  // storage of four elements for a footprint of three
  longer.steps[0].expect[kO] = numbers({2, 2, 2, 2});
  check_fails(check(longer), {"index 3", "got untouched", "want 2"});
  std::get<WantedList>(longer.steps[0].expect[kO]).list[3] = {Wanted::Kind::kUntouched, 0};
  CHECK(check(longer).kind == Verdict::Kind::kPass);
}

TEST_CASE("an engine that writes nothing fails, whatever the poison", "[cli]") {
  Case zeros = three_rows();  // the right answer is zero: equal to the second run's poison
  zeros.steps[0].bind->at(kV) = Values{std::vector<Number>(3, Number{0.0})};
  zeros.steps[0].expect[kO] = WantedEverywhere{{Wanted::Kind::kNumber, 0}};
  CHECK(check(zeros).kind == Verdict::Kind::kPass);
  const auto undo = [](int call, float*, float* o, const Workspace&) {
    std::memset(o, call == 0 ? 0xFF : 0, 12);
  };
  check_fails(check_harmed(zeros, undo), {"uid 3", "index 0", "got untouched", "want 0"});
}

TEST_CASE("an overrun of a buffer or of the workspace fails in either run", "[cli]") {
  check_fails(check_harmed(three_rows(),
                           [](int call, float*, float* o, const Workspace&) { o[3] = call == 0 ? 1 : 2; }),
              {"uid 3 \"o\"", "behind the storage changed"});
  check_fails(check_harmed(three_rows(),
                           [](int call, float*, float* o, const Workspace&) {
                             if (call == 1) o[-1] = 1;
                           }),
              {"uid 3 \"o\"", "4 bytes before the storage changed"});
  check_fails(check_harmed(three_rows(),
                           [](int, float*, float*, const Workspace& w) {
                             static_cast<std::byte*>(w.data)[w.bytes] = std::byte{1};
                           }),
              {"workspace", "1 bytes behind the storage changed"});
}

TEST_CASE("a write into an input fails", "[cli]") {
  check_fails(check_harmed(three_rows(), [](int, float* q, float*, const Workspace&) { q[1] += 1; }),
              {"uid 1 \"q\"", "an input was written"});
}

TEST_CASE("results that differ between the poisons fail, however little", "[cli]") {
  check_fails(check_harmed(three_rows(),
                           [](int call, float*, float* o, const Workspace&) {
                             if (call == 1) o[2] = std::nextafter(o[2], 3.0f);
                           }),
              {"uid 3 \"o\" index 2", "NaN poison", "zero poison"});
}

TEST_CASE("an output without expectation fails, and so does an expectation without output", "[cli]") {
  Case missing = three_rows();
  missing.steps[0].expect.erase(kStats);
  check_fails(check(missing), {"uid 4 \"stats\"", "without expect"});
  Case extra = three_rows();
  extra.steps[0].expect[kQ] = AsReference{};
  check_fails(check(extra), {"expect.1", "no output"});
  Case too_short = three_rows();
  too_short.steps[0].expect[kO] = numbers({2, 2});
  check_fails(check(too_short), {"step 0", "has 8 bytes"});
}

TEST_CASE("an expected error must come from its stage with its code and words", "[cli]") {
  Case refused = three_rows();
  Step& step = refused.steps[0];
  step.text.graph.find(kV)->dims = {1, 1, 4, 1};
  step.expect.clear();
  step.expect_error = ExpectedError{Stage::kValidate, Code::kInvalidGraph, {"v", "4", "3"}};
  CHECK(check(refused).kind == Verdict::Kind::kPass);
  step.expect_error->words = {"v", "44"};
  check_fails(check(refused), {"want the word \"44\""});
  step.expect_error = ExpectedError{Stage::kBind, Code::kInvalidGraph, {}};
  check_fails(check(refused), {"validate gives invalid_graph", "want invalid_graph from bind"});
  step.expect_error = ExpectedError{Stage::kValidate, Code::kBackend, {}};
  check_fails(check(refused), {"want backend"});
  step.text.graph.find(kV)->dims = {1, 1, 3, 1};
  check_fails(check(refused), {"succeeds", "want backend from validate"});
  step.expect_error.reset();
  step.text.graph.find(kV)->dims = {1, 1, 4, 1};
  check_fails(check(refused), {"validate gives invalid_graph"});
}

TEST_CASE("a missing binding and a null pointer are errors of the stage bind", "[cli]") {
  Case missing = three_rows();
  missing.steps[0].bind->erase(kV);
  missing.steps[0].expect.clear();
  missing.steps[0].expect_error = ExpectedError{Stage::kBind, Code::kBadBinding, {"v"}};
  CHECK(check(missing).kind == Verdict::Kind::kPass);
  missing.steps[0].bind->emplace(kV, NullPointer{});
  CHECK(check(missing).kind == Verdict::Kind::kPass);
}

TEST_CASE("a later step's result is compared bit for bit with an earlier one's", "[cli]") {
  Case twice = three_rows();
  twice.steps.push_back(twice.steps[0]);
  twice.steps[1].expect = {{kO, SameAs{0, kO}}, {kStats, SameAs{0, kStats}}};
  CHECK(check(twice).kind == Verdict::Kind::kPass);
  check_fails(check_harmed(twice,
                           [](int call, float*, float* o, const Workspace&) {
                             if (call >= 2) o[1] = std::nextafter(o[1], 3.0f);
                           }),
              {"step 1", "uid 3 \"o\" index 1", "want the bits of"});
  twice.steps[1].expect[kO] = SameAs{1, kO};
  check_fails(check(twice), {"same_as", "earlier step"});
}

TEST_CASE("a view shares the storage of another tensor from its offset on", "[cli]") {
  Case shared = three_rows();
  Step& step = shared.steps[0];
  step.bind->at(kQ) = Values{{{1.0}, {1.0}, {1.0}, {1.0}, {2.0}, {3.0}}};
  step.bind->at(kV) = View{kQ, 3};
  step.text.graph.find(kV)->alignment = 4;
  CHECK(check(shared).kind == Verdict::Kind::kPass);
  step.bind->at(kV) = View{kV, 0};
  check_fails(check(shared), {"bind.2", "views itself"});
  step.bind->at(kV) = View{77, 0};
  check_fails(check(shared), {"bind.2", "uid 77"});
  step.bind->at(kV) = View{kQ, 7};
  check_fails(check(shared), {"bind.2.offset", "28"});
}

TEST_CASE("data that the tensor's type cannot hold is named", "[cli]") {
  Case wrong = three_rows();
  Graph& graph = wrong.steps[0].text.graph;
  const Uid lengths = graph.vector("seq_len_q", DataType::kI32, 1);
  std::get<SdpaForward>(graph.nodes[0]).seq_len_q = lengths;
  wrong.steps[0].bind->emplace(lengths, Values{{{int64_t{1} << 40}}});
  check_fails(check(wrong), {"bind.5", "1099511627776", "must fit i32"});
  wrong.steps[0].bind->at(lengths) = Values{{{1.5}}};
  check_fails(check(wrong), {"bind.5", "1.5", "must fit i32"});
  wrong.steps[0].bind->at(lengths) = Random{1, 1};
  check_fails(check(wrong), {"bind.5", "random i32"});
  wrong.steps[0].bind->at(lengths) = Repeated{{int64_t{3}}, int64_t{1} << 50};
  check_fails(check(wrong), {"bind.5.count", "at most"});
}
