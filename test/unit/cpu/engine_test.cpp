#include "engine/cpu/engine.hpp"

#include <cmath>
#include <limits>
#include <random>

#include "base/enum_names.hpp"
#include "engine/cpu/pool.hpp"
#include "engine/reference/reference.hpp"
#include "isas.hpp"
#include "support/catch.hpp"
#include "unit/reference/mixed_problem.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

/// Contract section 8.
double tolerance_of(const Problem& problem) {
  const bool forward = problem.pass == Pass::kForward;
  if (problem.io == DataType::kBf16) return forward ? 2e-2 : 4e-2;
  if (problem.io == DataType::kF16) return forward ? 4e-3 : 8e-3;
  return forward ? 2e-5 : 1e-4;
}

/// The largest deviation of a tensor in units of its tolerance; what is not a number must be equal.
double deviation(const Problem& problem, Role role, const NodeStorage& got, const NodeStorage& want) {
  const std::vector<double> g = got.get(role), w = want.get(role);
  double largest = 1, worst = 0;
  if (role >= Role::kDq) {
    largest = 0;
    for (const double x : w)
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
    largest = std::max(largest, 0.1);  // a gradient that is zero in exact arithmetic has no magnitude
  }
  const double t = tolerance_of(problem);
  for (size_t i = 0; i < w.size(); ++i) {
    if (std::isnan(w[i]) && std::isnan(g[i])) continue;
    if (g[i] == w[i]) continue;
    const double allowed =
        role == Role::kStats ? 1e-4 + 1e-5 * std::fabs(w[i]) : t * largest + t * std::fabs(w[i]);
    const double ratio = std::fabs(g[i] - w[i]) / allowed;
    worst = ratio <= worst ? worst : ratio;
    if (std::isnan(ratio)) return std::numeric_limits<double>::infinity();
  }
  return worst;
}

std::vector<Role> outputs_of(const Problem& problem) {
  std::vector<Role> roles;
  for (size_t i = 0; i < kNumRoles; ++i)
    if (const Role role = static_cast<Role>(i); problem.has(role) && is_output(problem, role))
      roles.push_back(role);
  return roles;
}

/// Runs a problem on the reference and, for every instruction set and some thread counts, on the engine.
void check_against_reference(const Problem& problem, const NodeStorage& inputs, NodeStorage& want) {
  const SliceShape whole{problem.batch, problem.kv_heads};
  REQUIRE(want.run(*make_reference_engine(), whole).ok());
  Pool pool(3);
  const auto engine = make_cpu_engine(pool);
  for (const CpuIsa isa : isas_here())
    for (const int threads : {1, 3}) {
      NodeStorage got = inputs;
      const Status status = got.run(*engine, whole, std::byte{0xFF}, Target::cpu(threads, isa));
      INFO(name_of(isa) << ", " << threads << " threads: " << problem);
      REQUIRE(status.ok());
      for (const Role role : outputs_of(problem)) {
        INFO(role);
        CHECK(deviation(problem, role, got, want) <= 1.0);
      }
    }
}

/// Forward, then backward for `gradients` from the reference's outputs.
void check_both(const Problem& forward, const NodeStorage& inputs, const std::vector<Role>& gradients,
                std::mt19937& random) {
  NodeStorage want = inputs;
  check_against_reference(forward, inputs, want);
  const Problem backward = backward_problem(forward, gradients);
  NodeStorage storage(backward);
  storage.copy_from(want);
  storage.set(Role::kDo, grid_values(random, storage.count(Role::kDo)));
  NodeStorage want_gradients = storage;
  check_against_reference(backward, storage, want_gradients);
}

struct Row {
  const char* why;
  Sizes sizes;
  DataType io;
  Band band;
};

}  // namespace

TEST_CASE("problems of mixed features agree with the reference on every instruction set", "[cpu]") {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const MixedProblem mixed = mixed_problem(random);
    INFO("seed " << seed);
    check_both(mixed.forward, mixed.inputs, mixed.gradients, random);
  }
}

TEST_CASE("problems of many tiles agree with the reference on every instruction set", "[cpu]") {
  const Row row = GENERATE(values<Row>({
      {"several tiles and an odd tail", {1, 2, 1, 203, 611, 72, 40}, DataType::kF32, {}},
      {"a causal band", {1, 1, 1, 300, 300, 64, 64}, DataType::kF32, Band::causal()},
      {"a window that skips whole panels",
       {1, 1, 1, 250, 700, 16, 16},
       DataType::kF32,
       {Align::kBottomRight, 100, 20}},
      {"bfloat16 with odd head dims",
       {1, 2, 2, 131, 277, 33, 65},
       DataType::kBf16,
       Band::causal(Align::kBottomRight)},
      {"float16", {1, 1, 1, 100, 260, 80, 80}, DataType::kF16, {}},
      {"one query row over keys that are split", {1, 4, 1, 1, 1100, 64, 64}, DataType::kBf16, {}},
      {"heads that share a tile",
       {2, 8, 1, 13, 300, 32, 32},
       DataType::kF32,
       Band::causal(Align::kBottomRight)},
  }));
  INFO(row.why);
  std::mt19937 random(5);
  Problem forward = forward_problem(row.sizes, row.io);
  forward.scale = 0.125;
  forward.band = row.band;
  NodeStorage inputs(forward);
  for (const Role role : {Role::kQ, Role::kK, Role::kV})
    inputs.set(role, grid_values(random, inputs.count(role)));
  check_both(forward, inputs, {Role::kDq, Role::kDk, Role::kDv}, random);
}

TEST_CASE("a scale and a softcap at the ends of what float32 holds agree with the reference", "[cpu]") {
  struct Row {
    double scale, softcap, q;  ///< q's largest element, so that scores stay near 1
  };
  const Row row = GENERATE(
      values<Row>({{2.35e38, 0, 1e-38}, {1e38, 3, 1e-38}, {1, 1.2e-38, 1}, {1, 1e6, 1}, {0.5, 2.3e38, 1}}));
  INFO("scale " << row.scale << ", softcap " << row.softcap);
  std::mt19937 random(9);
  Problem forward = forward_problem({1, 2, 1, 33, 45, 8, 8}, DataType::kF32);
  forward.scale = row.scale, forward.softcap = row.softcap;
  NodeStorage inputs(forward);
  for (const Role role : {Role::kQ, Role::kK, Role::kV})
    inputs.set(role, grid_values(random, inputs.count(role)));
  std::vector<double> q = inputs.get(Role::kQ);
  for (double& element : q) element *= row.q;
  inputs.set(Role::kQ, q);
  check_both(forward, inputs, {Role::kDv}, random);
}

TEST_CASE("more rows or workspace than int64 counts are refused with their numbers", "[cpu]") {
  struct Row {
    Problem problem;
    int64_t batch, heads, group, q_len;
    const char* words;  ///< empty: accepted
  };
  constexpr int64_t kBig = int64_t{1} << 54;
  const Problem forward = forward_problem({1, 1, 1, 4, 5, 8, 8}, DataType::kF32);
  const Problem of_dq = backward_problem(forward, {Role::kDq}),
                of_dv = backward_problem(forward, {Role::kDv});
  const Row row = GENERATE_COPY(values<Row>({
      {forward, 1, 1, 1, kBig, ""},
      {of_dv, 1, 1, 1, kBig, ""},
      {of_dv, 16, 1, 16, 16 * kBig,
       "batch * q_heads * q_len is 9223372036854775807; needs at most 288230376151711744"},
      {of_dv, 1, 1, 16, 16 * kBig,
       "batch * q_heads * q_len is 4611686018427387904; needs at most 288230376151711744"},
      {of_dv, kBig, 32, 0, 0, "batch * kv_heads is 576460752303423488; needs at most 288230376151711744"},
      {of_dq, 1, 1, 16, kBig,
       "workspace is dq sums: 288230376151711744 * 32 + 0 exceeds int64; needs less than 2^63 bytes"},
  }));
  Problem problem = row.problem;
  problem.batch = row.batch, problem.kv_heads = row.heads, problem.q_heads = row.heads * row.group;
  problem.q_len = row.q_len;
  Pool pool(1);
  const auto reasons = make_cpu_engine(pool)->refusals(problem, Target::cpu(1, CpuIsa::kPortable));
  CHECK((reasons.empty() ? "" : describe(reasons.front())) == std::string(row.words));
}

TEST_CASE("any split into slices gives the same bits", "[cpu]") {
  Pool pool(2);
  const auto engine = make_cpu_engine(pool);
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const MixedProblem mixed = mixed_problem(random);
    const Problem backward = backward_problem(mixed.forward, mixed.gradients);
    INFO("seed " << seed << ": " << backward);
    NodeStorage forward = mixed.inputs;
    const Target target = Target::cpu(2, cpu::best_isa());
    REQUIRE(forward.run(*engine, {backward.batch, backward.kv_heads}, std::byte{0xFF}, target).ok());
    NodeStorage inputs(backward);
    inputs.copy_from(forward);
    inputs.set(Role::kDo, grid_values(random, inputs.count(Role::kDo)));
    NodeStorage whole = inputs;
    REQUIRE(whole.run(*engine, {backward.batch, backward.kv_heads}, std::byte{0xFF}, target).ok());
    for (const SliceShape& shape : {SliceShape{1, backward.kv_heads}, SliceShape{1, 1}}) {
      NodeStorage split_forward = mixed.inputs, split = inputs;
      REQUIRE(split_forward.run(*engine, shape, std::byte{0}, target).ok());
      REQUIRE(split.run(*engine, shape, std::byte{0}, target).ok());
      CHECK(split_forward.bytes(Role::kO) == forward.bytes(Role::kO));
      for (const Role gradient : mixed.gradients) CHECK(split.bytes(gradient) == whole.bytes(gradient));
    }
  }
}

TEST_CASE("the threads that happen to run a plan do not change a bit", "[cpu]") {
  struct Serial final : Executor {
    void run(int64_t num_workers, void (*worker)(void* arg, int64_t index), void* arg) override {
      for (int64_t index = num_workers; index-- > 0;) worker(arg, index);
    }
  } serial;
  Pool pool(4);
  std::mt19937 random(3);
  Problem forward = forward_problem({1, 2, 1, 150, 400, 24, 24});
  NodeStorage inputs(forward);
  for (const Role role : {Role::kQ, Role::kK, Role::kV})
    inputs.set(role, grid_values(random, inputs.count(role)));
  NodeStorage pooled = inputs, alone = inputs;
  const Target target = Target::cpu(4, cpu::best_isa());
  REQUIRE(pooled.run(*make_cpu_engine(pool), {1, 1}, std::byte{0xFF}, target).ok());
  REQUIRE(alone.run(*make_cpu_engine(serial), {1, 1}, std::byte{0xFF}, target).ok());
  CHECK(pooled.bytes(Role::kO) == alone.bytes(Role::kO));
  const Problem backward = backward_problem(forward, {Role::kDq, Role::kDk, Role::kDv});
  NodeStorage storage(backward);
  storage.copy_from(pooled);
  storage.set(Role::kDo, grid_values(random, storage.count(Role::kDo)));
  pooled = alone = storage;
  REQUIRE(pooled.run(*make_cpu_engine(pool), {1, 1}, std::byte{0xFF}, target).ok());
  REQUIRE(alone.run(*make_cpu_engine(serial), {1, 1}, std::byte{0xFF}, target).ok());
  for (const Role gradient : {Role::kDq, Role::kDk, Role::kDv})
    CHECK(pooled.bytes(gradient) == alone.bytes(gradient));
}

TEST_CASE("a plan for an instruction set that this machine lacks is refused when it runs", "[cpu]") {
  if (cpu::machine_runs(CpuIsa::kAvx512Bf16)) return;
  Pool pool(1);
  NodeStorage storage(forward_problem({}));
  const Status status =
      storage.run(*make_cpu_engine(pool), {1, 1}, std::byte{0}, Target::cpu(1, CpuIsa::kAvx512Bf16));
  CHECK(status.code() == Code::kBackend);
  CHECK(status.message().find("the plan is for avx512bf16") != std::string::npos);
  CHECK(status.message().find("plan for this machine's target") != std::string::npos);
}
