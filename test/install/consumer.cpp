// What a user's program does first, through the installed headers and library alone: describe a
// graph, send it through JSON, plan it and run it. Exits 0 when the result is right.
#include <attngraph/attngraph.hpp>
#include <cstdio>
#include <string>
#include <vector>

using namespace attngraph;

namespace {

int fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  return 1;
}

}  // namespace

int main() {
  const Layout layout = bhsd({2, 4, 8, 16});
  Graph graph;
  SdpaForward attention;
  attention.q = graph.tensor("q", DataType::kF32, layout);
  attention.k = graph.tensor("k", DataType::kF32, layout);
  attention.v = graph.tensor("v", DataType::kF32, layout);
  attention.attributes.band = Band::causal();
  attention = graph.sdpa_forward(attention);

  const Result<Graph> copy = parse(print(graph));
  if (!copy) return fail(copy.status().message());
  if (*copy != graph) return fail("the graph changed on its way through JSON");

  Context context;
  const Result<Plan> plan = context.plan(*copy);
  if (!plan) return fail(plan.status().message());

  // Equal values, whatever their weights: the mean is the same value.
  std::vector<float> q(1024, 0.5F), k(1024, 0.25F), v(1024, 3.0F), o(1024);
  const Status ran =
      execute(*plan, {{*attention.q, q}, {*attention.k, k}, {*attention.v, v}, {*attention.o, o}},
              HostWorkspace(*plan));
  if (!ran.ok()) return fail(ran.message());
  for (const float value : o)
    if (value < 2.9999F || value > 3.0001F) return fail("o is " + std::to_string(value) + "; must be 3");
  return 0;
}
