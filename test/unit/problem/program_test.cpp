#include "problem/program.hpp"

#include <cmath>

#include "problem/layout.hpp"
#include "support/catch.hpp"
#include "unit/problem/sample.hpp"

using namespace attngraph;
using namespace attngraph::test;
using enum Role;

namespace {

Problem problem_of(const Graph& graph) {
  const Result<ValidatedGraph> valid = validate(graph);
  INFO(valid.status().message());
  REQUIRE(valid.ok());
  return valid->program.nodes[0].problem;
}

int slot(const Program& program, size_t node, Role role) {
  return program.nodes[node].slots.data[static_cast<size_t>(role)];
}
int offsets_slot(const Program& program, size_t node, Role role) {
  return program.nodes[node].slots.offsets[static_cast<size_t>(role)];
}

/// Forward and backward of one layer; o and stats live in the workspace.
Graph two_nodes() {
  Sample s = backward();
  SdpaForward first;
  ports(first, [&](Role role, Port& port, bool) {
    if (role != kPageTableK && role != kPageTableV) port = s.port(role);
  });
  first.attributes = s.attributes();
  s[kO].is_virtual = true;
  s.graph.nodes.insert(s.graph.nodes.begin(), first);
  return s.graph;
}

}  // namespace

TEST_CASE("ragged tensors know with which others they share their offsets", "[validate]") {
  Sample s = backward();
  s.pack({kQ, kO, kDo, kDq}), s.pack({kK, kV}), s.pack({kDk, kDv});
  const Problem p = problem_of(s.graph);
  for (const Role role : {kQ, kO, kDo, kDq}) CHECK(p[role].offsets_owner == kQ);
  for (const Role role : {kK, kV}) CHECK(p[role].offsets_owner == kK);
  for (const Role role : {kDk, kDv}) CHECK(p[role].offsets_owner == kDk);
}

TEST_CASE("sizes and attributes reach the problem, and what was left out has its default", "[validate]") {
  Sample s = backward();
  s.attributes().softcap = 30;
  s.attributes().band = Band::causal(Align::kBottomRight);
  s.attributes().stats_base = StatsBase::k2;
  s.attributes().deterministic = true;
  const Problem p = problem_of(s.graph);
  CHECK(p.pass == Pass::kBackward);
  CHECK(std::array{p.batch, p.q_heads, p.kv_heads, p.q_len, p.kv_len, p.qk_dim, p.v_dim} ==
        std::array<int64_t, 7>{2, 4, 2, 3, 5, 8, 6});
  CHECK(std::array{p.q_slots, p.kv_slots} == std::array<int64_t, 2>{0, 0});
  CHECK(p.io == DataType::kF16);
  CHECK(p.scale == Approx(1 / std::sqrt(8.0)));
  CHECK(p.softcap == 30);
  CHECK(p.dropout_p == 0.25);
  CHECK(p.band == Band::causal(Align::kBottomRight));
  CHECK(p.stats_base == StatsBase::k2);
  CHECK(p.deterministic);
  s.attributes().scale = -2.5;
  CHECK(problem_of(s.graph).scale == -2.5);
}

TEST_CASE("a ragged side has the capacity that was given, or batch times len", "[validate]") {
  Sample s = packed();
  CHECK(problem_of(s.graph).q_slots == 6);
  CHECK(problem_of(s.graph).kv_slots == 10);
  s.attributes().max_total_q = 9;
  CHECK(problem_of(s.graph).q_slots == 9);
  Sample dense_sides = forward();
  dense_sides.attributes().max_total_q = 9;  // says nothing about dense tensors
  CHECK(problem_of(dense_sides.graph) == problem_of(forward().graph));
}

TEST_CASE("paged keys have the length that was given, or columns times page size", "[validate]") {
  Sample s = paged();
  CHECK(problem_of(s.graph).kv_len == 10);
  s.attributes().max_seq_len_kv = std::nullopt;
  CHECK(problem_of(s.graph).kv_len == 12);
}

TEST_CASE("only k may be paged when v has the paged length", "[validate]") {
  Sample s = paged();
  s.remove(kPageTableV);
  s.reshape(kV, {2, 2, 10, 6});
  CHECK(problem_of(s.graph).kv_len == 10);
}

TEST_CASE("strides of an output that were left out are dense, last axis fastest", "[validate]") {
  Sample s = forward();
  s[kO].strides.clear();
  s[kStats].strides.clear();
  const Problem p = problem_of(s.graph);
  CHECK(p[kO].stride == std::array<int64_t, 4>{72, 18, 6, 1});
  CHECK(p[kStats].stride == std::array<int64_t, 4>{12, 3, 1, 0});
}

TEST_CASE("descriptions that mean the same give the same problem", "[validate]") {
  Sample s = backward();
  const Problem p = problem_of(s.graph);
  s[kBias].strides[0] = 777;  // of a size-1 axis
  s.reshape(kStats, {2, 4, 3, 1});
  s.reshape(kSink, {4, 1, 1, 1});
  s.reshape(kSeqLenQ, {2, 1});
  s.reshape(kAlibiSlopes, {1, 4});
  s.reshape(kDalibiSlopes, {4});
  s.reshape(kDropoutSeed, {1, 1, 1, 1});
  CHECK(problem_of(s.graph) == p);

  Sample ragged = packed();
  const Problem packed_problem = problem_of(ragged.graph);
  ragged[kQ].strides[0] = 12345;  // the batch stride of a ragged tensor
  CHECK(problem_of(ragged.graph) == packed_problem);
  ragged[kQ].strides[2] = 64;
  CHECK(problem_of(ragged.graph) != packed_problem);
}

TEST_CASE("a ragged tensor of length 1 keeps the stride that its capacity reads", "[validate]") {
  Sample s = packed();
  for (const Role role : {kQ, kO, kStats}) s[role].dims[2] = 1;
  const Problem p = problem_of(s.graph);
  CHECK(len_stride(p[kQ]) == 32);
  CHECK(footprint_elems(p, kQ) == 1 * 32 + 3 * 8 + 7 + 1);
}

TEST_CASE("slopes by head and by batch lie on their axes", "[validate]") {
  Sample s = forward();
  CHECK(problem_of(s.graph)[kAlibiSlopes].extent == std::array<int64_t, 4>{1, 4, 1, 1});
  s.reshape(kAlibiSlopes, {2, 4, 1});
  const Problem p = problem_of(s.graph);
  CHECK(p[kAlibiSlopes].extent == std::array<int64_t, 4>{2, 4, 1, 1});
  CHECK(p[kAlibiSlopes].stride == std::array<int64_t, 4>{4, 1, 0, 0});
}

TEST_CASE("empty and unusual shapes of the contract are legal", "[validate]") {
  Sample no_batch = plain_forward();
  for (const Role role : {kQ, kK, kV, kO}) no_batch[role].dims[0] = 0;
  CHECK(problem_of(no_batch.graph).batch == 0);

  Sample no_heads = plain_forward();
  for (const Role role : {kQ, kK, kV, kO}) no_heads[role].dims[1] = 0;
  CHECK(problem_of(no_heads.graph).group() == 0);

  Sample no_rows = packed();
  for (const Role role : {kQ, kO, kStats}) no_rows[role].dims[2] = 0;
  no_rows.attributes().max_total_q = 5;
  CHECK(problem_of(no_rows.graph).q_slots == 5);

  Sample broadcast = plain_forward();
  broadcast[kK].strides = {0, 0, 8, 1};
  CHECK(problem_of(broadcast.graph)[kK].stride == std::array<int64_t, 4>{0, 0, 8, 1});

  Sample no_dim = plain_forward();
  no_dim.reshape(kQ, {2, 4, 3, 0});
  no_dim.reshape(kK, {2, 2, 5, 0});
  no_dim.attributes().scale = 1.0;
  CHECK(problem_of(no_dim.graph).qk_dim == 0);
}

TEST_CASE("dropout that draws nothing needs no seed, and a forward may ask to be deterministic",
          "[validate]") {
  for (const double p : {0.0, 1.0}) {
    Sample s = plain_forward();
    s.attributes().dropout_p = p;
    s.attributes().deterministic = true;
    CHECK(problem_of(s.graph).dropout_p == p);
    CHECK(problem_of(s.graph).deterministic);
  }
}

TEST_CASE("head-major stats may have fewer slots than the default capacity", "[validate]") {
  Sample s = packed();
  s[kStats].strides = {1, 4, 1, 1};  // 4 slots, sequences up to 3 rows; batch * len is 6
  CHECK(problem_of(s.graph).q_slots == 6);
}

TEST_CASE("slots are numbered by first use, data of a node before its offsets", "[validate]") {
  const Result<ValidatedGraph> valid = validate(packed().graph);
  REQUIRE(valid.ok());
  const Program& program = valid->program;
  CHECK(slot(program, 0, kQ) == 0);
  CHECK(slot(program, 0, kK) == 1);
  CHECK(slot(program, 0, kV) == 2);
  CHECK(slot(program, 0, kO) == 3);
  CHECK(slot(program, 0, kStats) == 4);
  CHECK(slot(program, 0, kSeqLenQ) == 5);
  CHECK(slot(program, 0, kSeqLenKv) == 6);
  CHECK(slot(program, 0, kBias) == kNoSlot);
  for (const Role role : {kQ, kO, kStats}) CHECK(offsets_slot(program, 0, role) == 7);
  for (const Role role : {kK, kV}) CHECK(offsets_slot(program, 0, role) == 8);
  CHECK(offsets_slot(program, 0, kSeqLenQ) == kNoSlot);
  CHECK(program.num_slots() == 9);
  CHECK(valid->slot_names[4].name == "stats'");
  CHECK(valid->slot_names[4].uid == 5);
  CHECK(valid->slot_names[7].name == "offsets'");
}

TEST_CASE("nodes share the slot of a tensor that one makes and the other reads", "[validate]") {
  const Result<ValidatedGraph> valid = validate(two_nodes());
  INFO(valid.status().message());
  REQUIRE(valid.ok());
  const Program& program = valid->program;
  REQUIRE(program.nodes.size() == 2);
  for (const Role role : {kQ, kK, kO, kStats, kDropoutSeed})
    CHECK(slot(program, 0, role) == slot(program, 1, role));
  for (int i = 0; i < program.num_slots(); ++i)
    CHECK(program.virtual_slots[static_cast<size_t>(i)] == (i == slot(program, 0, kO)));
}

TEST_CASE("uids and names alone do not change the program", "[validate]") {
  Graph renamed = two_nodes();
  const Program program = validate(renamed).value().program;
  for (Tensor& tensor : renamed.tensors) tensor.uid = 1000 - tensor.uid, tensor.name += " renamed";
  for (Node& node : renamed.nodes) {
    const auto renumber = [](Role, Port& port, bool) {
      if (port) port = 1000 - *port;
    };
    std::visit([&](auto& n) { n.name = "other", ports(n, renumber); }, node);
  }
  CHECK(validate(renamed).value().program == program);
  std::get<SdpaForward>(renamed.nodes[0]).attributes.softcap = 1;
  CHECK(validate(renamed).value().program != program);
}
