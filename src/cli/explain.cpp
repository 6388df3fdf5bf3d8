#include <array>

#include "attngraph/context.hpp"
#include "attngraph/json.hpp"
#include "base/message.hpp"
#include "cli/engines.hpp"
#include "cli/files.hpp"
#include "cli/program.hpp"

namespace attngraph::cli {
namespace {

constexpr std::array kOptions = {
    Option{"--target", "NAME", "plan for cpu (this machine's host, the default), a100, h100, h200 or b200"},
    Option{"--engine", "NAME", "plan with this engine alone"},
    Option{"--json", nullptr, "print JSON"},
    Option{"--svg", "FILE", "draw the workspace's regions over the phases into FILE"},
};

/// Errors: kInvalidGraph naming the targets that are known.
Result<Target> read_target(const Context& context, const Arguments& arguments) {
  const std::string name = arguments.value("--target").value_or("cpu");
  if (name == "cpu") return context.host_target();
  for (const auto& [known, target] : {std::pair{"a100", Target::a100()}, std::pair{"h100", Target::h100()},
                                      std::pair{"h200", Target::h200()}, std::pair{"b200", Target::b200()}})
    if (name == known) return target;
  return fail(Code::kInvalidGraph, "--target: is ", name, "; must be one of cpu, a100, h100, h200, b200");
}

Result<int> run(const Arguments& arguments, Io& io) {
  const Result<Graph> graph = read_graph(arguments);
  ATTNGRAPH_RETURN_IF_ERROR(graph.status());
  Context context;
  const Result<Target> target = read_target(context, arguments);
  ATTNGRAPH_RETURN_IF_ERROR(target.status());
  const auto engines = chosen_engines(context, arguments);
  ATTNGRAPH_RETURN_IF_ERROR(engines.status());
  PlanOptions options;
  options.engine = arguments.value("--engine").value_or("");
  const Result<Plan> plan = context.plan(*graph, *target, options);
  ATTNGRAPH_RETURN_IF_ERROR(plan.status());
  if (const auto path = arguments.value("--svg"))
    ATTNGRAPH_RETURN_IF_ERROR(write_file(*path, plan->explain_svg()));
  io.out << (arguments.has("--json") ? plan->explain_json() : plan->explain());
  io.out << std::flush;
  return int{kSuccess};
}

}  // namespace

const Verb kExplain = {
    "explain",
    "GRAPH.json",
    "say how a graph would run: problem, engines with reasons, workspace",
    "Prints the problem in one line, every engine with all its reasons, and the workspace\n"
    "map as a table. Planning for a GPU needs none.\n\n"
    "example: attngraph explain samples/graphs/llama3_8b_packed_training.json --target h100",
    kOptions,
    run};

}  // namespace attngraph::cli
