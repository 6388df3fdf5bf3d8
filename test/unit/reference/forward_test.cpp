#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "engine/reference/reference.hpp"
#include "support/catch.hpp"
#include "support/node_storage.hpp"
#include "support/problems.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

const double kNan = std::nan(""), kInfinity = std::numeric_limits<double>::infinity();

/// One head of dim 1 with q = 0, so that every score is 0 before what a row of the table adds, and
/// v = 0, 1, 2, ...: o of a row is the mean of the keys it sees.
Problem uniform(int64_t q_len, int64_t kv_len) { return forward_problem({.q_len = q_len, .kv_len = kv_len}); }

NodeStorage uniform_storage(const Problem& problem) {
  NodeStorage storage(problem);
  for (const Role role : {Role::kQ, Role::kK})
    storage.set(role, std::vector<double>(static_cast<size_t>(storage.count(role)), 0.0));
  std::vector<double> v(static_cast<size_t>(storage.count(Role::kV)));
  std::iota(v.begin(), v.end(), 0.0);
  storage.set(Role::kV, v);
  return storage;
}

/// Compares float32 storage; NaN stands for an element that was not written.
void check(const std::vector<double>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": got " << got[i] << ", want " << want[i]);
    const bool same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
    CHECK((same || std::abs(got[i] - want[i]) <= 0x1p-23 * std::abs(want[i])));
  }
}

NodeStorage ran(NodeStorage storage) {
  REQUIRE(storage.run(*make_reference_engine()).ok());
  return storage;
}

}  // namespace

TEST_CASE("a band keeps the keys between its two inclusive sides", "[reference]") {
  struct Row {
    const char* why;
    Band band;
    std::vector<double> o;  ///< three rows over five keys
  };
  using enum Align;
  const Row row = GENERATE(values<Row>({
      {"no band", {}, {2, 2, 2}},
      {"causal, top left", {kTopLeft, std::nullopt, 0}, {0, 0.5, 1}},
      {"causal, bottom right: row 0 sees keys 0 to 2", {kBottomRight, std::nullopt, 0}, {1, 1.5, 2}},
      {"window of two keys", {kTopLeft, 1, 0}, {0, 0.5, 1.5}},
      {"left side only", {kBottomRight, 0, std::nullopt}, {3, 3.5, 4}},
      {"negative left: from the next key on", {kTopLeft, -1, std::nullopt}, {2.5, 3, 3.5}},
      {"negative right: row 0 sees nothing", {kTopLeft, std::nullopt, -1}, {0, 0, 0.5}},
  }));
  INFO(row.why);
  Problem problem = uniform(3, 5);
  problem.band = row.band;
  check(ran(uniform_storage(problem)).get(Role::kO), row.o);
}

TEST_CASE("the bottom right diagonal is that of each sequence's own lengths", "[reference]") {
  Problem problem = forward_problem({.batch = 2, .q_len = 2, .kv_len = 4});
  problem.band = Band::causal(Align::kBottomRight);
  add_ints(problem, Role::kSeqLenQ, 2);
  add_ints(problem, Role::kSeqLenKv, 2);
  NodeStorage storage = uniform_storage(problem);
  storage.set_ints(Role::kSeqLenQ, {1, 2});
  storage.set_ints(Role::kSeqLenKv, {3, 1});
  // Sequence 0: its row sees keys 0 to 2; row 1 is padding. Sequence 1: row 0 sees nothing.
  const NodeStorage result = ran(storage);
  check(result.get(Role::kO), {1, 0, 0, 4});
  check(result.get(Role::kStats), {std::log(3.0), -kInfinity, -kInfinity, 0});
}

TEST_CASE("a mask, a bias of -inf and a page outside the container each remove a key", "[reference]") {
  Problem masked = uniform(1, 3);
  add_matrix(masked, Role::kMask, DataType::kBool, {1, 1, 1, 3});
  add_matrix(masked, Role::kBias, DataType::kF32, {1, 1, 1, 3});
  NodeStorage storage = uniform_storage(masked);
  storage.set_ints(Role::kMask, {0, 1, 1});
  storage.set(Role::kBias, {kNan, -kInfinity, std::log(2.0)});  // a bias in a masked slot is not read
  const NodeStorage result = ran(storage);
  check(result.get(Role::kO), {2});
  check(result.get(Role::kStats), {std::log(2.0)});

  Problem paged = uniform(1, 7);
  for (const Role role : {Role::kK, Role::kV}) paged[role] = operand(DataType::kF32, dense({2, 1, 2, 1}));
  for (const Role role : {Role::kPageTableK, Role::kPageTableV})
    paged[role] = operand(DataType::kI32, dense({1, 1, 4, 1}));
  NodeStorage pages(paged);
  pages.set(Role::kQ, {0});
  pages.set(Role::kK, {0, 0, 0, 0});
  pages.set(Role::kV, {10, kNan, 20, 40});
  pages.set_ints(Role::kPageTableK, {1, 7, 0, 0});
  pages.set_ints(Role::kPageTableV, {1, 0, -1, 0});
  // Keys 0, 1 and 6: k lacks keys 2 and 3, v lacks 4 and 5; slot 1 of page 0 is behind the length.
  check(ran(pages).get(Role::kO), {70.0 / 3});
}

TEST_CASE("scale, softcap, bias and slopes apply in the contract's order", "[reference]") {
  Problem problem = uniform(2, 1);
  problem.scale = 0.5;
  problem.softcap = 2;
  problem.stats_base = StatsBase::k2;
  add_matrix(problem, Role::kBias, DataType::kF32, {1, 1, 1, 1});
  add_head_vector(problem, Role::kAlibiSlopes);
  NodeStorage storage = uniform_storage(problem);
  storage.set(Role::kQ, {3, 3});
  storage.set(Role::kK, {4});
  storage.set(Role::kBias, {0.25});
  storage.set(Role::kAlibiSlopes, {0.125});
  // One key: stats are the score, 2 tanh(6 / 2) + 0.25 - slope for row 1, over ln 2.
  const double score = 2 * std::tanh(3.0) + 0.25;
  check(ran(storage).get(Role::kStats), {score / std::log(2.0), (score - 0.125) / std::log(2.0)});
}

TEST_CASE("a sink takes its share of the sum and is the stats of a row that sees nothing", "[reference]") {
  Problem problem = uniform(2, 2);
  problem.band = {Align::kTopLeft, std::nullopt, -1};
  add_head_vector(problem, Role::kSink);
  NodeStorage storage = uniform_storage(problem);
  storage.set(Role::kV, {4, 8});
  storage.set(Role::kSink, {std::log(3.0)});
  const NodeStorage result = ran(storage);
  check(result.get(Role::kO), {0, 1});  // row 1: weight 1 of 1 + 3 on the value 4
  check(result.get(Role::kStats), {static_cast<float>(std::log(3.0)), std::log(4.0)});
  storage.set(Role::kSink, {1000});  // e^1000 exceeds double
  check(ran(storage).get(Role::kO), {0, 0});
  check(ran(storage).get(Role::kStats), {1000, 1000});
}

TEST_CASE("dropout of 0 changes no bit and of 1 gives zero", "[reference]") {
  Problem problem = uniform(3, 3);
  const NodeStorage plain = ran(uniform_storage(problem));
  problem.dropout_p = 1;
  check(ran(uniform_storage(problem)).get(Role::kO), {0, 0, 0});
  check(ran(uniform_storage(problem)).get(Role::kStats), plain.get(Role::kStats));
  // Words of the all-zero call: row 0 has 6627e8d5 and e169c58d, so a half drops key 0 alone.
  Problem one_row = forward_problem({.q_len = 1, .kv_len = 2});
  one_row.dropout_p = 0.5;
  add_ints(one_row, Role::kDropoutSeed, 1);
  NodeStorage storage = uniform_storage(one_row);
  storage.set(Role::kV, {kNan, 3});
  storage.set_ints(Role::kDropoutSeed, {0});
  check(ran(storage).get(Role::kO), {3});  // p = 1/2, scaled by 2; stats count both keys
  check(ran(storage).get(Role::kStats), {std::log(2.0)});
}

TEST_CASE("a ragged output has exactly its rows written and its gaps are not read", "[reference]") {
  Problem problem = forward_problem({.batch = 2, .q_len = 2, .kv_len = 2});
  add_ints(problem, Role::kSeqLenQ, 2);
  add_ints(problem, Role::kSeqLenKv, 2);
  make_ragged(problem, Side::kQ, 5);
  make_ragged(problem, Side::kKv, 4);
  NodeStorage storage(problem);
  storage.set_ints(Role::kSeqLenQ, {1, 9});  // clamped to 2
  storage.set_ints(Role::kSeqLenKv, {2, 2});
  storage.set_offsets(Side::kQ, {1, 3, 5});
  storage.set_offsets(Side::kKv, {0, 3, 4});  // sequence 1 is cut to the one row inside
  storage.set(Role::kQ, {kNan, 0, kNan, 0, 0});
  storage.set(Role::kK, {0, 0, kNan, 0});
  storage.set(Role::kV, {1, 3, kNan, 5});
  check(ran(storage).get(Role::kO), {kNan, 2, kNan, 5, 5});
}

TEST_CASE("a bias of +inf or NaN spoils its own rows only", "[reference]") {
  Problem problem = uniform(3, 2);
  add_matrix(problem, Role::kBias, DataType::kF32, {1, 1, 3, 2});
  NodeStorage storage = uniform_storage(problem);
  storage.set(Role::kBias, {kInfinity, 0, 0, 0, kNan, 0});
  check(ran(storage).get(Role::kO), {kNan, 0.5, kNan});
}

TEST_CASE("results are rounded once to the type of o", "[reference]") {
  Problem problem = forward_problem({.q_len = 1, .kv_len = 2}, DataType::kBf16);
  NodeStorage storage = uniform_storage(problem);
  storage.set(Role::kV, {1, 1.0 + 0x1p-7});  // the mean is half way: to even
  check(ran(storage).get(Role::kO), {1});
}

TEST_CASE("no sequences, heads, rows, keys or dims are success", "[reference]") {
  for (const Sizes& sizes : {Sizes{.batch = 0}, Sizes{.q_heads = 0, .kv_heads = 0}, Sizes{.q_len = 0}})
    CHECK(ran(uniform_storage(forward_problem(sizes))).get(Role::kO).empty());
  const NodeStorage no_keys = ran(uniform_storage(forward_problem({.kv_len = 0})));
  check(no_keys.get(Role::kO), {0});
  check(no_keys.get(Role::kStats), {-kInfinity});
  check(ran(uniform_storage(forward_problem({.kv_len = 4, .qk_dim = 0}))).get(Role::kO), {1.5});
  check(ran(uniform_storage(forward_problem({.kv_len = 4, .v_dim = 0}))).get(Role::kStats), {std::log(4.0)});
}
