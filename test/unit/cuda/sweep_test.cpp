#include <algorithm>
#include <vector>

#include "cli/random_problem.hpp"
#include "engine/cuda/recipe.hpp"
#include "problem/program.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cuda;

TEST_CASE("aligned sweeps for one multiprocessor reach every kernel of sm_90a", "[cuda]") {
  constexpr Target kH200 = Target::h200();
  const Target target = Target::cuda(90, 1, kH200.shared_memory_bytes, kH200.l2_bytes);
  std::vector<InstanceKey> missing;
  for (const KernelInstance& row : instances())
    if (name_of(row.key.family).starts_with("hopper")) missing.push_back(row.key);
  REQUIRE(!missing.empty());
  constexpr uint64_t kProblems = 6000;  // dev.sh gpu draws 10,000
  for (uint64_t seed = 1; seed <= kProblems && !missing.empty(); ++seed) {
    const cli::RandomProblem drawn =
        cli::draw_problem(seed, cli::ProblemSize::kLarge, cli::ProblemRows::kAligned);
    const Result<ValidatedGraph> valid = validate(cli::graph_of(drawn, drawn.pass));
    REQUIRE(valid.ok());
    const Problem& p = valid->program.nodes.front().problem;
    if (p.batch == 0 || p.kv_heads == 0) continue;  // nothing to plan
    for (const Step& step : make_recipe(p, target, {p.batch, p.kv_heads}).steps)
      std::erase(missing, step.kernel);
  }
  for (const InstanceKey& key : missing)
    UNSCOPED_INFO(name_of(key.family) << ' ' << key.size << ' ' << key.io << " rows " << key.rows
                                      << (key.extras ? " extras" : ""));
  CHECK(missing.empty());
}
