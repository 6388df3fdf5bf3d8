#include "engine/reference/reference.hpp"
#include "mixed_problem.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::test;

TEST_CASE("any split into slices, over any workspace contents, gives the same bits", "[reference]") {
  const auto engine = make_reference_engine();
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const MixedProblem mixed = mixed_problem(random);
    const Problem problem = backward_problem(mixed.forward, mixed.gradients);
    INFO("seed " << seed << ": " << problem);
    NodeStorage forward = mixed.inputs;
    REQUIRE(forward.run(*engine).ok());
    NodeStorage whole(problem);
    whole.copy_from(forward);
    whole.set(Role::kDo, grid_values(random, whole.count(Role::kDo)));
    NodeStorage pieces = whole;
    REQUIRE(whole.run(*engine).ok());
    for (int64_t batch = 1; batch <= problem.batch; ++batch)
      for (int64_t heads = 1; heads <= problem.kv_heads; ++heads) {
        NodeStorage split_forward = mixed.inputs, split = pieces;
        REQUIRE(split_forward.run(*engine, {batch, heads}, std::byte{0}).ok());
        REQUIRE(split.run(*engine, {batch, heads}, std::byte{0}).ok());
        CHECK(split_forward.bytes(Role::kO) == forward.bytes(Role::kO));
        CHECK(split_forward.bytes(Role::kStats) == forward.bytes(Role::kStats));
        for (const Role gradient : mixed.gradients) CHECK(split.bytes(gradient) == whole.bytes(gradient));
      }
  }
}

TEST_CASE("a sum over batch and heads has one order whatever the split", "[reference]") {
  Problem forward = forward_problem({.batch = 2, .q_heads = 2, .kv_heads = 2});
  add_matrix(forward, Role::kBias, DataType::kF32, {1, 1, 1, 1});
  NodeStorage storage(backward_problem(forward, {Role::kDbias}));
  for (const Role role : {Role::kQ, Role::kK, Role::kO, Role::kStats}) storage.set(role, {0, 0, 0, 0});
  storage.set(Role::kBias, {0});
  storage.set(Role::kV, {1, 1, 1, 1});
  // The terms of sequence 0, then 1: in double, 2^60 swallows the 1 or has been cancelled before.
  storage.set(Role::kDo, {0x1p60, -0x1p60, 1, 0});
  std::vector<double> sums;
  for (const SliceShape& shape : {SliceShape{2, 2}, SliceShape{2, 1}, SliceShape{1, 2}, SliceShape{1, 1}}) {
    REQUIRE(storage.run(*make_reference_engine(), shape).ok());
    sums.push_back(storage.get(Role::kDbias)[0]);
  }
  CHECK(sums == std::vector<double>(4, sums[0]));
}
