#include <cmath>
#include <string>
#include <vector>

#include "cli/case.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cli;

namespace {

const std::string kGraph = R"({"format": "attngraph.graph", "version": 1,
  "tensors": [{"uid": 1, "name": "q", "dtype": "f32", "dims": [1, 1, 2, 1], "strides": [2, 2, 1, 1]},
              {"uid": 2, "name": "o", "dtype": "f32", "dims": [1, 1, 2, 1]}],
  "nodes": [{"op": "sdpa_forward", "inputs": {"q": 1, "k": 1, "v": 1}, "outputs": {"o": 2}}]})";

std::string case_with(const std::string& members) {
  return R"({"format": "attngraph.case", "version": 1, "name": "n", "why": "w", "steps": [{"graph": )" +
         kGraph + ", " + members + "}]}";
}

struct Row {
  const char* why;
  std::string json;
  std::vector<std::string> words;
};

}  // namespace

TEST_CASE("a case that is not in the format is refused with its path, value and rule", "[cli]") {
  const Row row = GENERATE(values<Row>({
      {"no JSON", "{", {"document"}},
      {"another format",
       R"({"format": "attngraph.graph", "version": 1, "steps": []})",
       {"format", "attngraph.case"}},
      {"another version", R"({"format": "attngraph.case", "version": 2, "steps": []})", {"version", "2"}},
      {"no steps", R"({"format": "attngraph.case", "version": 1})", {"steps"}},
      {"an unknown key", case_with(R"("expct": {})"), {"steps[0].expct", "unknown key"}},
      {"nothing expected", case_with(R"("bind": {})"), {"steps[0]", "expects nothing"}},
      {"expect and no bind", case_with(R"("expect": {"2": "reference"})"), {"steps[0]", "bind"}},
      {"a uid that is none",
       case_with(R"("bind": {"q": {"values": []}}, "expect": {"2": "reference"})"),
       {"steps[0].bind.q", "must be a uid"}},
      {"a source of no kind",
       case_with(R"("bind": {"1": {"valus": []}}, "expect": {"2": "reference"})"),
       {"steps[0].bind.1", "values, fill, random, view_of or null"}},
      {"a negative count",
       case_with(R"("bind": {"1": {"fill": 0, "count": -1}}, "expect": {"2": "reference"})"),
       {"steps[0].bind.1.count", "-1", "at least 0"}},
      {"a fill without count",
       case_with(R"("bind": {"1": {"fill": 0}}, "expect": {"2": "reference"})"),
       {"steps[0].bind.1", "count"}},
      {"a word for a number",
       case_with(R"("bind": {"1": {"values": ["many"]}}, "expect": {"2": "reference"})"),
       {"steps[0].bind.1.values[0]", "many", "\"-inf\""}},
      {"a null that is false",
       case_with(R"("bind": {"1": {"null": false}}, "expect": {"2": "reference"})"),
       {"steps[0].bind.1.null", "must be true"}},
      {"an answer of no kind",
       case_with(R"("bind": {}, "expect": {"2": "oracle"})"),
       {"steps[0].expect.2", "oracle", "\"reference\""}},
      {"a word for an element",
       case_with(R"("bind": {}, "expect": {"2": {"values": ["never"]}})"),
       {"steps[0].expect.2.values[0]", "never", "\"untouched\""}},
      {"a negative tolerance",
       case_with(R"("bind": {}, "expect": {"2": "reference"}, "tolerance": {"abs": -1, "rel": 0})"),
       {"steps[0].tolerance", "below 0"}},
      {"a stage of no name",
       case_with(R"("expect_error": {"stage": "later", "code": "internal", "words": []})"),
       {"steps[0].expect_error.stage", "later", "validate"}},
  }));
  INFO(row.why);
  const Result<Case> read = parse_case(row.json);
  REQUIRE_FALSE(read.ok());
  CHECK(read.status().code() == Code::kInvalidGraph);
  for (const std::string& word : row.words) {
    INFO(read.status().message() << "\nwant: " << word);
    CHECK(read.status().message().find(word) != std::string::npos);
  }
}

TEST_CASE("a graph that does not parse is kept as its step's answer", "[cli]") {
  std::string json =
      case_with(R"("expect_error": {"stage": "parse", "code": "invalid_graph", "words": ["f64"]})");
  json.replace(json.find("f32"), 3, "f64");
  const Result<Case> read = parse_case(json);
  REQUIRE(read.ok());
  CHECK(read->steps[0].text.status.message().find("f64") != std::string::npos);
}

TEST_CASE("a printed case reads back to the same case", "[cli]") {
  const std::string json = case_with(R"("bind": {
      "1": {"values": [0.1, 9007199254740993, "nan", "-inf"]}, "3": {"fill": "inf", "count": 4},
      "4": {"random": {"seed": 9}, "count": 5}, "5": {"view_of": 1, "offset": 2}, "6": {"null": true}},
    "expect": {"2": {"values": [1, "any", "untouched", "nan"]}, "7": "reference", "8": {"fill": 0.5},
               "9": {"same_as": {"step": 0, "uid": 4}}},
    "tolerance": {"abs": 0.001, "rel": 0}, "workspace_bytes_at_most": 12,
    "workspace": {"short_by_bytes": 1, "misaligned_by_bytes": 2}, "validate_bindings": true)");
  const Result<Case> first = parse_case(json);
  REQUIRE(first.ok());
  const std::string printed = print_case(*first);
  const Result<Case> second = parse_case(printed);
  REQUIRE(second.ok());
  CHECK(print_case(*second) == printed);
  const Step& step = second->steps[0];
  CHECK(step.text.graph == first->steps[0].text.graph);
  const auto& list = std::get<Values>(step.bind->at(1)).list;
  CHECK(list[0].real() == 0.1);
  CHECK(std::get<int64_t>(list[1].value) == 9007199254740993);
  CHECK(std::isnan(list[2].real()));
  CHECK(std::get<View>(step.bind->at(5)).offset == 2);
  CHECK(std::holds_alternative<NullPointer>(step.bind->at(6)));
  CHECK(std::get<WantedList>(step.expect.at(2)).list[2].kind == Wanted::Kind::kUntouched);
  CHECK(std::get<SameAs>(step.expect.at(9)).uid == 4);
  CHECK(step.tolerance->abs == 0.001);
  CHECK(step.workspace_bytes_at_most == 12);
  CHECK(step.workspace.misaligned_by_bytes == 2);
  CHECK(step.validate_bindings);
}
