#include "mixed_problem.hpp"

#include <limits>

namespace attngraph::test {
namespace {

int64_t draw(std::mt19937& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
}

bool one_in(std::mt19937& random, uint32_t n) { return random() % n == 0; }

void draw_band(std::mt19937& random, Band& band) {
  if (one_in(random, 2)) band.align = Align::kBottomRight;
  if (one_in(random, 3)) band.left = draw(random, -1, 5);
  if (one_in(random, 2)) band.right = draw(random, -1, 3);
}

void draw_tensors(std::mt19937& random, Problem& p) {
  const auto extent = [&](int64_t full) { return one_in(random, 2) ? 1 : full; };
  const auto matrix = [&](Role role, DataType dtype) {
    add_matrix(p, role, dtype, {extent(p.batch), extent(p.q_heads), extent(p.q_len), extent(p.kv_len)});
  };
  if (one_in(random, 2)) matrix(Role::kBias, DataType::kF32);
  if (one_in(random, 3)) matrix(Role::kMask, DataType::kBool);
  if (one_in(random, 2)) add_head_vector(p, Role::kSink);
  if (one_in(random, 3)) add_head_vector(p, Role::kAlibiSlopes);
  if (p.has(Role::kAlibiSlopes) && one_in(random, 2))
    p[Role::kAlibiSlopes] = operand(DataType::kF32, dense({p.batch, p.q_heads, 1, 1}));
  if (one_in(random, 2)) {
    add_ints(p, Role::kSeqLenQ, p.batch);
    add_ints(p, Role::kSeqLenKv, p.batch, DataType::kI64);
    if (one_in(random, 2)) make_ragged(p, Side::kQ, p.batch * p.q_len + 3);
    if (one_in(random, 2)) make_ragged(p, Side::kKv, p.batch * p.kv_len + 3);
  }
  if (one_in(random, 3)) {
    p.dropout_p = 0.25;
    add_ints(p, Role::kDropoutSeed, 1, DataType::kI64);
  }
}

void fill_inputs(std::mt19937& random, const Problem& p, NodeStorage& inputs) {
  for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kBias, Role::kSink, Role::kAlibiSlopes})
    if (p.has(role)) inputs.set(role, grid_values(random, inputs.count(role)));
  if (p.has(Role::kBias) && one_in(random, 2)) {
    std::vector<double> bias = inputs.get(Role::kBias);
    for (double& x : bias)
      if (one_in(random, 6)) x = -std::numeric_limits<double>::infinity();
    inputs.set(Role::kBias, bias);
  }
  std::vector<int64_t> mask(static_cast<size_t>(p.has(Role::kMask) ? inputs.count(Role::kMask) : 0));
  for (int64_t& kept : mask) kept = one_in(random, 4) ? 0 : 1;
  if (p.has(Role::kMask)) inputs.set_ints(Role::kMask, mask);
  std::vector<int64_t> q_lens, kv_lens, q_offsets, kv_offsets;
  for (int64_t b = 0; b < p.batch; ++b) {
    q_lens.push_back(draw(random, 0, p.q_len));
    kv_lens.push_back(draw(random, 0, p.kv_len));
    q_offsets.push_back(b * p.q_len + draw(random, 0, 1) + b);
    kv_offsets.push_back(b * p.kv_len + draw(random, 0, 1) + b);
  }
  q_offsets.push_back(p.q_slots), kv_offsets.push_back(p.kv_slots);
  if (p.has(Role::kSeqLenQ))
    inputs.set_ints(Role::kSeqLenQ, q_lens), inputs.set_ints(Role::kSeqLenKv, kv_lens);
  inputs.set_offsets(Side::kQ, q_offsets), inputs.set_offsets(Side::kKv, kv_offsets);
  if (p.has(Role::kDropoutSeed)) inputs.set_ints(Role::kDropoutSeed, {static_cast<int64_t>(random())});
}

}  // namespace

std::vector<double> grid_values(std::mt19937& random, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& x : values) x = static_cast<double>(draw(random, -64, 64) + draw(random, -64, 64)) / 64;
  return values;
}

MixedProblem mixed_problem(std::mt19937& random) {
  const int64_t kv_heads = draw(random, 1, 2);
  Problem p = forward_problem({.batch = draw(random, 1, 3),
                               .q_heads = kv_heads * draw(random, 1, 2),
                               .kv_heads = kv_heads,
                               .q_len = draw(random, 1, 5),
                               .kv_len = draw(random, 1, 6),
                               .qk_dim = draw(random, 1, 5),
                               .v_dim = draw(random, 1, 4)});
  p.scale = 0.5;
  if (one_in(random, 2)) p.softcap = 1.5;
  if (one_in(random, 2)) p.stats_base = StatsBase::k2;
  draw_band(random, p.band);
  draw_tensors(random, p);
  MixedProblem mixed{p, NodeStorage(p), {Role::kDq, Role::kDk, Role::kDv}};
  fill_inputs(random, p, mixed.inputs);
  if (p.has(Role::kBias)) mixed.gradients.push_back(Role::kDbias);
  if (p.has(Role::kSink)) mixed.gradients.push_back(Role::kDsink);
  if (p.has(Role::kAlibiSlopes)) mixed.gradients.push_back(Role::kDalibiSlopes);
  return mixed;
}

}  // namespace attngraph::test
