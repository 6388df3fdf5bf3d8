#include <filesystem>
#include <fstream>
#include <iterator>

#include "json/graph_reader.hpp"
#include "problem/program.hpp"
#include "support/catch.hpp"

using namespace attngraph;

namespace {

std::string expected_stage(JsonValue step) {
  const auto error = step.find("expect_error");
  return error ? std::string(error->at("stage").text()) : "";
}

void check_step(JsonValue step) {
  const std::string stage = expected_stage(step);
  if (stage == "parse") return;
  Graph graph;
  REQUIRE(read(step.at("graph"), graph).message() == "");
  const Status status = graph.validate();
  INFO(step.path() << ": " << status.message());
  if (stage != "validate") {
    CHECK(status.ok());
    return;
  }
  CHECK(status.code() == Code::kInvalidGraph);
  for (const JsonValue word : step.at("expect_error").at("words"))
    CHECK(status.message().find(word.text()) != std::string::npos);
}

}  // namespace

TEST_CASE("the graphs of the conformance cases validate, or are refused with the words of their case",
          "[validate]") {
  int num_refused = 0, num_steps = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ATTNGRAPH_TEST_CASES)) {
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const Result<JsonDocument> document = JsonDocument::parse(text);
    INFO(entry.path().filename());
    REQUIRE(document.ok());
    for (const JsonValue step : document->root().at("steps")) {
      ++num_steps;
      num_refused += expected_stage(step) == "validate";
      check_step(step);
    }
  }
  CHECK(num_steps >= 200);
  CHECK(num_refused >= 30);
}
