#include <cmath>
#include <limits>
#include <random>

#include "engine/cpu/engine.hpp"
#include "engine/cpu/pool.hpp"
#include "engine/reference/reference.hpp"
#include "isas.hpp"
#include "support/catch.hpp"
#include "support/node_storage.hpp"
#include "support/problems.hpp"
#include "unit/reference/mixed_problem.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// o_a token by token, o_b head by head.
Problem merge_problem(DataType io, int64_t len, int64_t dim) {
  constexpr int64_t kBatch = 2, kHeads = 3;
  Problem p;
  p.pass = Pass::kMerge;
  p.batch = kBatch, p.q_heads = p.kv_heads = kHeads, p.q_len = len, p.v_dim = dim, p.io = io;
  p[Role::kOA] = p[Role::kO] = operand(io, bshd({kBatch, kHeads, len, dim}));
  p[Role::kOB] = operand(io, bhsd({kBatch, kHeads, len, dim}));
  for (const Role role : {Role::kStatsA, Role::kStatsB, Role::kStats})
    p[role] = operand(DataType::kF32, stats_padded(kBatch, kHeads, len));
  return p;
}

std::vector<double> some_stats(std::mt19937& random, int64_t count) {
  const double special[] = {kInf, -kInf, -1e4, 300};
  std::vector<double> stats = grid_values(random, count);
  for (size_t i = 0; i < stats.size(); i += 3) stats[i] = special[random() % 4];
  return stats;
}

/// Contract section 8.
double tolerance_of(DataType io) { return io == DataType::kF32 ? 2e-5 : io == DataType::kF16 ? 4e-3 : 2e-2; }

bool close(double got, double want, double abs, double rel) {
  return got == want || std::fabs(got - want) <= abs + rel * std::fabs(want);
}

}  // namespace

TEST_CASE("merges agree with the reference on every instruction set", "[cpu]") {
  const DataType io = GENERATE(DataType::kF32, DataType::kF16, DataType::kBf16);
  const auto [len, dim] = GENERATE(values<std::pair<int64_t, int64_t>>({{5, 1}, {300, 40}, {513, 77}}));
  Problem problem = merge_problem(io, len, dim);
  problem.stats_base = GENERATE(StatsBase::kE, StatsBase::k2);
  std::mt19937 random(7);
  NodeStorage inputs(problem);
  for (const Role role : {Role::kOA, Role::kOB}) inputs.set(role, grid_values(random, inputs.count(role)));
  for (const Role role : {Role::kStatsA, Role::kStatsB})
    inputs.set(role, some_stats(random, inputs.count(role)));
  NodeStorage want = inputs;
  REQUIRE(want.run(*make_reference_engine()).ok());
  const std::vector<double> want_o = want.get(Role::kO), want_stats = want.get(Role::kStats);

  Pool pool(3);
  const auto engine = make_cpu_engine(pool);
  for (const CpuIsa isa : isas_here()) {
    INFO(name_of(isa) << ": " << problem);
    NodeStorage got = inputs;
    REQUIRE(got.run(*engine, {1, 2}, std::byte{0xFF}, Target::cpu(3, isa)).ok());
    const std::vector<double> o = got.get(Role::kO), stats = got.get(Role::kStats);
    bool o_is_close = true, stats_are_close = true;
    for (size_t i = 0; i < o.size(); ++i)
      o_is_close &= close(o[i], want_o[i], tolerance_of(io), tolerance_of(io));
    for (size_t i = 0; i < stats.size(); ++i) stats_are_close &= close(stats[i], want_stats[i], 1e-4, 1e-5);
    CHECK(o_is_close);
    CHECK(stats_are_close);
  }
}

TEST_CASE("a NaN in the stats of either side reaches its row and no other", "[cpu]") {
  const Problem problem = merge_problem(DataType::kF32, 4, 8);
  Pool pool(1);
  const auto cpu = make_cpu_engine(pool), reference = make_reference_engine();
  for (const Engine* engine : {cpu.get(), reference.get()})
    for (const Role side : {Role::kStatsA, Role::kStatsB}) {
      NodeStorage storage(problem);
      for (const Role role : {Role::kOA, Role::kOB, Role::kStatsA, Role::kStatsB}) {
        std::vector<double> values(static_cast<size_t>(storage.count(role)), 1.0);
        if (role == side) values[2] = std::numeric_limits<double>::quiet_NaN();
        storage.set(role, values);
      }
      REQUIRE(storage.run(*engine).ok());
      const std::vector<double> stats = storage.get(Role::kStats);
      for (size_t row = 0; row < stats.size(); ++row) CHECK(std::isnan(stats[row]) == (row == 2));
      const std::vector<double> o = storage.get(Role::kO);  // token by token: row 2 of head 0 is token 2
      for (size_t i = 0; i < o.size(); ++i) CHECK(std::isnan(o[i]) == (i / 8 == 2 * 3));
    }
}
