#include "cli/program.hpp"

#include <cmath>
#include <sstream>

#include "cli/case_check.hpp"
#include "cli/sweep.hpp"
#include "json/document.hpp"
#include "support/catch.hpp"
#include "unit/cli/program_run.hpp"

using namespace attngraph;
using namespace attngraph::cli;

namespace {

const std::string kCases = ATTNGRAPH_TEST_CASES;
const std::string kGraphs = ATTNGRAPH_SAMPLE_GRAPHS;

/// The true execute, but on every second call one element of o is off.
Library faulty(Context& context, int& calls) {
  return {context, [&calls](const Plan& plan, const Bindings& bindings, Workspace workspace) {
            const Status status = execute(plan, bindings, workspace);
            const int slot = plan.slot(uid_of(Role::kO));
            auto* o = static_cast<unsigned char*>(bindings.table().data[slot]);
            const int64_t bytes = plan.footprint_bytes(uid_of(Role::kO));
            if (calls++ % 2 == 1 && bytes > 0 && plan.slot(uid_of(Role::kDo)) < 0) o[bytes - 1] ^= 0x40;
            return status;
          }};
}

}  // namespace

TEST_CASE("check exits 0 when all passes, 1 on a failure, 2 when a file cannot be read", "[cli]") {
  const std::string good = kCases + "/window.json";
  const Exited passed = attngraph_with({"check", good, "--engine", "reference"});
  CHECK(passed.code == 0);
  CHECK(passed.out == "pass    " + good + " [reference]\n");

  std::string text = read_file(kCases + "/window.json").value();
  Case spoiled = parse_case(text).value();
  auto& list = std::get<WantedList>(spoiled.steps[0].expect.begin()->second).list;
  list[0] = {Wanted::Kind::kNumber, list[0].value + 1};
  const TemporaryFile wrong(print_case(spoiled));
  const Exited failed = attngraph_with({"check", wrong.path, good, "--engine", "reference"});
  CHECK(failed.code == 1);
  CHECK(has(failed.out, "FAIL    " + wrong.path + " [reference] step 0: uid 4 \"o\" index 0: got "));
  CHECK(has(failed.out, "pass    " + good));

  const Exited unreadable = attngraph_with({"check", kCases, wrong.path, "--engine", "reference"});
  CHECK(unreadable.code == 2);
  CHECK(has(unreadable.err, "directory"));
  const TemporaryFile malformed("{\"format\": \"attngraph.case\"");
  CHECK(attngraph_with({"check", malformed.path}).code == 2);
}

TEST_CASE("wrong use exits 2 with a message and never throws", "[cli]") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {},
           {"chekc"},
           {"check"},
           {"check", "--engine"},
           {"check", "--engine", "abacus", "x.json"},
           {"run"},
           {"run", "absent.json"},
           {"run", kCases},
           {"explain", "a", "b"},
           {"sweep", "--count", "many"},
           {"sweep", "file"},
           {"explain", kGraphs + "/packed_training.json", "--target", "abacus"}}) {
    const Exited answer = attngraph_with(words);
    INFO((words.empty() ? "" : words[0]) << ": " << answer.err);
    CHECK(answer.code == 2);
    CHECK_FALSE(answer.err.empty());
  }
  CHECK(has(attngraph_with({"check", "--engine", "abacus", "x.json"}).err, "reference"));
}

TEST_CASE("every verb explains itself with an example", "[cli]") {
  const Exited all = attngraph_with({"--help"});
  CHECK(all.code == 0);
  for (const std::string verb : {"check", "run", "explain", "sweep", "convert"}) {
    CHECK(has(all.out, verb));
    const Exited help = attngraph_with({verb, "--help"});
    CHECK(help.code == 0);
    CHECK(has(help.out, "usage: attngraph " + verb));
    CHECK(has(help.out, "example: attngraph " + verb));
  }
}

TEST_CASE("run prints one row per output and writes the same as JSON", "[cli]") {
  const TemporaryFile result("");
  const Exited answer = attngraph_with({"run", kGraphs + "/packed_training.json", "--gaps", "2", "--compare",
                                        "--engine", "reference", "--json", result.path});
  INFO(answer.err);
  CHECK(answer.code == 0);
  for (const char* tensor : {"\no ", "\nstats ", "\ndq ", "\ndk ", "\ndv "}) CHECK(has(answer.out, tensor));
  const auto document = JsonDocument::parse(read_file(result.path).value());
  REQUIRE(document.ok());
  CHECK(document->root().at("outputs").size() == 5);
  const Exited again =
      attngraph_with({"run", kGraphs + "/packed_training.json", "--gaps", "2", "--engine", "reference"});
  CHECK(has(again.out, std::string(document->root().at("outputs").at(0).at("checksum").text())));
}

TEST_CASE("run takes lengths from a file and refuses those that do not fit", "[cli]") {
  const std::string graph = kGraphs + "/packed_training.json";
  const TemporaryFile fits(R"({"q": [7, 0, 3], "kv": [7, 0, 3]})");
  CHECK(attngraph_with({"run", graph, "--lengths", fits.path, "--engine", "reference"}).code == 0);
  const TemporaryFile too_long(R"({"q": [8, 0, 3]})");
  const Exited refused = attngraph_with({"run", graph, "--lengths", too_long.path});
  CHECK(refused.code == 2);
  CHECK(has(refused.err, "q lengths: has 8; must be within 0 .. 7"));
  const TemporaryFile too_few(R"({"kv": [1]})");
  CHECK(has(attngraph_with({"run", graph, "--lengths", too_few.path}).err, "must have 3"));
  const TemporaryFile torn(R"({"q": [7, 0, 3], "kv": [7, 1, 3]})");
  CHECK(has(attngraph_with({"run", graph, "--lengths", torn.path}).err, "must be equal"));
  const TemporaryFile unknown(R"({"k": [1]})");
  CHECK(has(attngraph_with({"run", graph, "--lengths", unknown.path}).err, "unknown key"));
}

TEST_CASE("explain gives the workspace as a table, as JSON or as a drawing, and all reasons of a refusal",
          "[cli]") {
  const std::string graph = kGraphs + "/packed_training.json";
  CHECK(has(attngraph_with({"explain", graph, "--engine", "reference"}).out, "workspace"));
  CHECK(JsonDocument::parse(attngraph_with({"explain", graph, "--engine", "reference", "--json"}).out).ok());
  const TemporaryFile drawing("");
  CHECK(attngraph_with({"explain", graph, "--engine", "reference", "--svg", drawing.path}).code == 0);
  CHECK(has(read_file(drawing.path).value(), "</svg>"));
  const Exited unwritable =
      attngraph_with({"explain", graph, "--engine", "reference", "--svg", "/absent/a.svg"});
  CHECK(unwritable.code == 1);
  CHECK(has(unwritable.err, "mkstemp fails"));
  CHECK(unwritable.out.empty());
  const Exited refused = attngraph_with({"explain", graph, "--engine", "reference", "--target", "h100"});
  CHECK(refused.code == 1);
  CHECK(has(refused.err, "host memory"));
}

TEST_CASE("a sweep of sound engines finds nothing and counts what it did", "[cli]") {
  const Exited answer = attngraph_with({"sweep", "--count", "60", "--engine", "reference"});
  INFO(answer.out);
  CHECK(answer.code == 0);
  CHECK(answer.out == "60 problems from seed 1, 60 engine runs, 0 refused, 0 failed\n");
}

TEST_CASE("a sweep of what an engine takes says how many problems it passed over", "[cli]") {
  const Exited all = attngraph_with({"sweep", "--count", "8", "--engine", "cpu", "--taken"});
  CHECK(all.out == "8 problems from seed 1, 0 passed over, 8 engine runs, 0 refused, 0 failed\n");
}

TEST_CASE("a sweep of problems with one tensor passes over the others, and a name must be a role's",
          "[cli]") {
  const Exited all = attngraph_with({"sweep", "--count", "3", "--engine", "reference", "--with", "dsink"});
  INFO(all.out);
  CHECK(all.out.find("3 problems from seed 1, ") == 0);
  CHECK_FALSE(has(all.out, " 0 passed over"));
  CHECK(has(all.out, " passed over, 3 engine runs, 0 refused, 0 failed\n"));
  const Exited unknown = attngraph_with({"sweep", "--with", "biass"});
  CHECK(unknown.code == 2);
  CHECK(has(unknown.err, "--with: is \"biass\"; must be a tensor's role, such as bias"));
}

TEST_CASE("a sweep in which next to no problem counts ends", "[cli]") {
  Context context;
  SweepOptions options;
  options.engines = {kReferenceEngine};
  options.needed = Role::kDsink;
  options.most_passed_over = 2;
  std::ostringstream out, err;
  Io io{out, err, false};
  const auto counts = sweep(Library{context}, options, io);
  CHECK(counts.status().code() == Code::kUnsupported);
  const std::string message = counts.status().message();
  CHECK(has(message, "--taken or --with: of 2 problems up to seed "));
  CHECK(has(message, " none counts; must be engines that take some, and a tensor that problems have"));
}

TEST_CASE("a sweep prints a failing problem, shrunk, as a case that replays the failure", "[cli]") {
  Context context;
  int calls = 0;
  SweepOptions options;
  options.engines = {kReferenceEngine};
  options.count = 3;
  options.shrinks = true;
  std::ostringstream out, err;
  Io io{out, err, false};
  const auto counts = sweep(faulty(context, calls), options, io);
  REQUIRE(counts.ok());
  REQUIRE(counts->failed > 0);
  const std::string text = out.str();
  CHECK(has(text, "FAIL    seed 1 [reference] "));
  const size_t begin = text.find('{'), end = text.find("\n}\n") + 2;
  const Result<Case> printed = parse_case(text.substr(begin, end - begin));
  INFO(printed.status().message());
  REQUIRE(printed.ok());
  calls = 0;
  CHECK(CaseCheck(*printed, faulty(context, calls)).run(kReferenceEngine).kind == Verdict::Kind::kFail);
  CHECK(CaseCheck(*printed, Library{context}).run(kReferenceEngine).kind == Verdict::Kind::kPass);
  const Tensor& q = *printed->steps[0].text.graph.find(uid_of(Role::kQ));
  CHECK(q.dims == std::vector<int64_t>{1, 1, 1, 1});
}

TEST_CASE("one seed gives one problem, and problems differ", "[cli]") {
  int different = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CHECK(draw_problem(seed, ProblemSize::kSmall) == draw_problem(seed, ProblemSize::kSmall));
    different +=
        draw_problem(seed, ProblemSize::kSmall) == draw_problem(seed + 1, ProblemSize::kSmall) ? 0 : 1;
  }
  CHECK(different == 50);
}
