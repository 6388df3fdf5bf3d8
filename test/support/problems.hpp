#pragma once

#include <cstdint>
#include <vector>

#include "attngraph/layout.hpp"
#include "problem/problem.hpp"

namespace attngraph::test {

/// Extents of a problem whose tensors are all dense.
struct Sizes {
  int64_t batch = 1, q_heads = 1, kv_heads = 1, q_len = 1, kv_len = 1, qk_dim = 1, v_dim = 1;
};

/// A tensor as a problem holds it. Shapes: four axes, see Operand.
Operand operand(DataType dtype, const Layout& layout);

/// A forward problem with dense q, k, v, o (memory order batch, heads, len, dim) and stats; scale 1.
Problem forward_problem(const Sizes& sizes, DataType io = DataType::kF32);

/// The backward of a forward problem for `gradients`, each in the layout of its primal.
Problem backward_problem(const Problem& forward, const std::vector<Role>& gradients);

/// Adds a vector over the batch (lengths; cu lengths have one entry more) or of one element (seeds).
void add_ints(Problem& problem, Role role, int64_t count, DataType dtype = DataType::kI32);
/// Adds a sink or slopes [heads].
void add_head_vector(Problem& problem, Role role);
/// Adds a bias or mask of the given extents, dense.
void add_matrix(Problem& problem, Role role, DataType dtype, const Shape& shape);
/// Makes q, o, stats (kQ) or k, v (kKv) ragged with token offsets, memory order tokens, heads, dim.
void make_ragged(Problem& problem, Side side, int64_t slots);

}  // namespace attngraph::test
