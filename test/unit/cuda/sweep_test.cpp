#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "cli/random_problem.hpp"
#include "engine/cuda/families.hpp"
#include "engine/cuda/recipe.hpp"
#include "problem/program.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cuda;

namespace {

/// Calls `visit(problem, recipe)` for the problems of an aligned sweep of `count` for one multiprocessor,
/// until it is done.
template <class Visit>
void visit_recipes(uint64_t count, const Visit& visit) {
  constexpr Target kH200 = Target::h200();
  const Target target = Target::cuda(90, 1, kH200.shared_memory_bytes, kH200.l2_bytes);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    const cli::RandomProblem drawn =
        cli::draw_problem(seed, cli::ProblemSize::kLarge, cli::ProblemRows::kAligned);
    const Result<ValidatedGraph> valid = validate(cli::graph_of(drawn, drawn.pass));
    REQUIRE(valid.ok());
    const Problem& p = valid->program.nodes.front().problem;
    if (p.batch == 0 || p.kv_heads == 0) continue;  // nothing to plan
    if (visit(p, make_recipe(p, target, {p.batch, p.kv_heads}))) return;
  }
}

}  // namespace

TEST_CASE("aligned sweeps for one multiprocessor reach every kernel of sm_90a", "[cuda]") {
  std::vector<InstanceKey> missing;
  for (const KernelInstance& row : instances())
    if (name_of(row.key.family).starts_with("hopper")) missing.push_back(row.key);
  REQUIRE(!missing.empty());
  constexpr uint64_t kProblems = 6000;  // dev.sh gpu draws 10,000
  visit_recipes(kProblems, [&](const Problem&, const Recipe& recipe) {
    for (const Step& step : recipe.steps) std::erase(missing, step.kernel);
    return missing.empty();
  });
  for (const InstanceKey& key : missing)
    UNSCOPED_INFO(name_of(key.family) << ' ' << key.size << ' ' << key.io << (key.extras ? " extras" : ""));
  CHECK(missing.empty());
}

TEST_CASE("aligned sweeps reach a forward of sm_90a over pages with pieces of every kind of tile", "[cuda]") {
  // padded head dim, rows of a piece
  std::set<std::pair<int, int>> missing = {{64, 8},   {64, 16},   {64, 128}, {128, 8},   {128, 16},
                                           {128, 64}, {128, 128}, {192, 16}, {192, 128}, {256, 16}};
  constexpr uint64_t kProblems = 6000;
  visit_recipes(kProblems, [&](const Problem& p, const Recipe& recipe) {
    for (const Step& step : recipe.steps)
      if (step.kernel.family == Family::kHopperForward && is_paged(p))
        missing.erase({step.kernel.size, recipe.key_box_rows});
    return missing.empty();
  });
  for (const auto& [dim, piece] : missing) UNSCOPED_INFO("dim " << dim << ", pieces of " << piece);
  CHECK(missing.empty());
}

TEST_CASE("aligned sweeps reach biases and masks of sm_90a in chunks of 16 bytes and in single elements",
          "[cuda]") {
  std::set<std::pair<Role, bool>> missing;
  for (const Role role : {Role::kBias, Role::kMask})
    for (const bool in_chunks : {true, false}) missing.emplace(role, in_chunks);
  constexpr uint64_t kProblems = 6000;
  visit_recipes(kProblems, [&](const Problem& p, const Recipe& recipe) {
    for (const Step& step : recipe.steps)
      for (const Role role : {Role::kBias, Role::kMask})
        if (step.kernel.reads && p.has(role)) missing.erase({role, is_in_chunks(p[role])});
    return missing.empty();
  });
  for (const auto& [role, in_chunks] : missing)
    UNSCOPED_INFO(name_of(role) << (in_chunks ? " in chunks" : " in elements"));
  CHECK(missing.empty());
}
