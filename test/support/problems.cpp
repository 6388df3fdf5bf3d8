#include "support/problems.hpp"

#include "problem/layout.hpp"

namespace attngraph::test {
Operand operand(DataType dtype, const Layout& layout) {
  Operand t;
  t.present = true;
  t.dtype = dtype;
  for (size_t axis = 0; axis < 4; ++axis) {
    t.extent[axis] = layout.dims[axis];
    t.stride[axis] = layout.dims[axis] == 1 ? 0 : layout.strides[axis];
  }
  return t;
}

Problem forward_problem(const Sizes& s, DataType io) {
  Problem p;
  p.batch = s.batch, p.q_heads = s.q_heads, p.kv_heads = s.kv_heads;
  p.q_len = s.q_len, p.kv_len = s.kv_len, p.qk_dim = s.qk_dim, p.v_dim = s.v_dim;
  p.io = io;
  p[Role::kQ] = operand(io, bhsd({s.batch, s.q_heads, s.q_len, s.qk_dim}));
  p[Role::kK] = operand(io, bhsd({s.batch, s.kv_heads, s.kv_len, s.qk_dim}));
  p[Role::kV] = operand(io, bhsd({s.batch, s.kv_heads, s.kv_len, s.v_dim}));
  p[Role::kO] = operand(io, bhsd({s.batch, s.q_heads, s.q_len, s.v_dim}));
  p[Role::kStats] = operand(DataType::kF32, stats_padded(s.batch, s.q_heads, s.q_len));
  return p;
}

Problem backward_problem(const Problem& forward, const std::vector<Role>& gradients) {
  Problem p = forward;
  p.pass = Pass::kBackward;
  p[Role::kDo] = p[Role::kO];
  for (const Role gradient : gradients) p[gradient] = p[primal_of(gradient).value()];
  return p;
}

void add_ints(Problem& problem, Role role, int64_t count, DataType dtype) {
  problem[role] = operand(dtype, dense({count, 1, 1, 1}));
}

void add_head_vector(Problem& problem, Role role) {
  problem[role] = operand(DataType::kF32, dense({1, problem.q_heads, 1, 1}));
}

void add_matrix(Problem& problem, Role role, DataType dtype, const Shape& shape) {
  problem[role] = operand(dtype, bhsd(shape));
}

void make_ragged(Problem& problem, Side side, int64_t slots) {
  (side == Side::kQ ? problem.q_slots : problem.kv_slots) = slots;
  for (size_t i = 0; i < kNumRoles; ++i) {
    Operand& t = problem.operands[i];
    if (!t.present || side_of(static_cast<Role>(i)) != side) continue;
    const int64_t multiplier = heads(t) * dim(t);
    t = operand(t.dtype, thd({batch(t), heads(t), len(t), dim(t)}));
    t.stride[0] = 0;
    t.ragged = true;
    t.multiplier = multiplier;
    t.offsets_stride = 1;
  }
}

}  // namespace attngraph::test
