#include <attngraph/attngraph.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/catch.hpp"

namespace attngraph {
namespace {

std::vector<std::filesystem::path> sample_graphs() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(ATTNGRAPH_SAMPLE_GRAPHS))
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  return paths;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("every sample graph parses, validates and survives printing") {
  const std::vector<std::filesystem::path> paths = sample_graphs();
  REQUIRE(paths.size() >= 8);
  for (const std::filesystem::path& path : paths) {
    INFO(path);
    const Result<Graph> graph = parse(read(path));
    INFO(graph.status().message());
    REQUIRE(graph.ok());
    CHECK(graph->validate().message().empty());
    const Result<Graph> again = parse(print(*graph));
    REQUIRE(again.ok());
    CHECK((*again == *graph));
  }
}

TEST_CASE("every sample graph has a plan on this host") {
  Context context;
  for (const std::filesystem::path& path : sample_graphs()) {
    INFO(path);
    const Result<Graph> graph = parse(read(path));
    REQUIRE(graph.ok());
    const Result<Plan> plan = context.plan(*graph);
    CHECK(plan.status().message().empty());
  }
}

}  // namespace
}  // namespace attngraph
