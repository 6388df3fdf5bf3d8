#include <cmath>
#include <limits>

#include "engine/reference/reference.hpp"
#include "support/catch.hpp"
#include "support/node_storage.hpp"
#include "support/problems.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

const double kNan = std::nan(""), kInfinity = std::numeric_limits<double>::infinity();

NodeStorage ran(NodeStorage storage) {
  REQUIRE(storage.run(*make_reference_engine()).ok());
  return storage;
}

}  // namespace

TEST_CASE("rows that see nothing add to no gradient, whatever their stats and do hold", "[reference]") {
  Problem forward = forward_problem({.q_len = 3, .kv_len = 2});
  forward.band = {Align::kTopLeft, std::nullopt, -1};
  add_head_vector(forward, Role::kSink);
  Problem problem = backward_problem(forward, {Role::kDq, Role::kDk, Role::kDv, Role::kDsink});
  for (const double empty_stats : {kInfinity, -kInfinity, 5.0}) {
    NodeStorage storage(problem);
    storage.set(Role::kQ, {1, 1, 1});
    storage.set(Role::kK, {2, 0});
    storage.set(Role::kV, {3, 3});
    storage.set(Role::kSink, {5});
    storage.set(Role::kStats, {empty_stats, kInfinity, -kInfinity});
    storage.set(Role::kO, {0, 0, 0});
    storage.set(Role::kDo, {kNan, 1, 1});
    const NodeStorage result = ran(storage);
    CHECK(result.get(Role::kDq) == std::vector<double>{0, 0, 0});
    CHECK(result.get(Role::kDk) == std::vector<double>{0, 0});
    CHECK(result.get(Role::kDv) == std::vector<double>{0, 0});
    CHECK(result.get(Role::kDsink) == std::vector<double>{0});
  }
}

TEST_CASE("padding rows of dense gradients are zero and do there is not read", "[reference]") {
  Problem forward = forward_problem({.q_len = 2, .kv_len = 3});
  add_ints(forward, Role::kSeqLenQ, 1);
  add_ints(forward, Role::kSeqLenKv, 1);
  add_matrix(forward, Role::kBias, DataType::kF32, {1, 1, 2, 3});
  Problem problem = backward_problem(forward, {Role::kDq, Role::kDk, Role::kDv, Role::kDbias});
  NodeStorage storage(problem);
  storage.set_ints(Role::kSeqLenQ, {1});
  storage.set_ints(Role::kSeqLenKv, {2});
  storage.set(Role::kQ, {1, kNan});
  storage.set(Role::kK, {0, 0, kNan});
  storage.set(Role::kV, {0, 4, kNan});
  storage.set(Role::kBias, {0, 0, kNan, kNan, kNan, kNan});
  storage.set(Role::kO, {2, kNan});
  storage.set(Role::kDo, {1, kNan});
  storage.set(Role::kStats, {std::log(2.0), kNan});
  const NodeStorage result = ran(storage);
  // p = 1/2 each, delta = 2, ds = (0 - 2) / 2 and (4 - 2) / 2; ln 2 in float32 is off by 2^-26.
  const auto close = [](const std::vector<double>& got, const std::vector<double>& want) {
    for (size_t i = 0; i < want.size(); ++i) CHECK(std::abs(got[i] - want[i]) <= 0x1p-23);
  };
  close(result.get(Role::kDq), {0, 0});
  close(result.get(Role::kDk), {-1, 1, 0});
  close(result.get(Role::kDv), {0.5, 0.5, 0});
  close(result.get(Role::kDbias), {-1, 1, 0, 0, 0, 0});
}

TEST_CASE("sums over no sequences are written as zero", "[reference]") {
  Problem forward = forward_problem({.batch = 0, .q_heads = 2, .kv_heads = 2, .q_len = 2, .kv_len = 2});
  add_head_vector(forward, Role::kSink);
  add_matrix(forward, Role::kBias, DataType::kF32, {1, 1, 1, 2});
  const NodeStorage result = ran(NodeStorage(backward_problem(forward, {Role::kDbias, Role::kDsink})));
  CHECK(result.get(Role::kDsink) == std::vector<double>{0, 0});
  CHECK(result.get(Role::kDbias) == std::vector<double>{0, 0});
}

TEST_CASE("a problem whose scratch memory leaves int64 is refused", "[reference]") {
  Problem problem = forward_problem({.kv_len = int64_t{1} << 40, .qk_dim = int64_t{1} << 22});
  const auto reasons = make_reference_engine()->refusals(problem, Target::cpu(1));
  REQUIRE(reasons.size() == 1);
  CHECK(reasons[0].subject == "workspace");
  CHECK(reasons[0].has.find("exceeds int64") != std::string::npos);
  CHECK(make_reference_engine()->refusals(problem, Target::h200()).size() == 2);
}
