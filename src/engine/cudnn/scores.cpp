#include "engine/cudnn/scores.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/cudnn/bias.hpp"
#include "engine/cudnn/lower.hpp"
#include "problem/layout.hpp"

namespace attngraph::cudnn {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

/// A side of a band that leaves every pair of the problem is none; one that leaves no pair is as good as any.
std::optional<int64_t> reached(const std::optional<int64_t>& side, const Problem& p) {
  const int64_t reach = p.q_len + p.kv_len;
  if (!side || *side >= reach) return std::nullopt;
  return std::max(*side, -reach);
}

}  // namespace

Lowering::Lowering(const Problem& problem)
    : score_extent{problem.batch, problem.q_heads, problem.q_len, problem.kv_len},
      score_stride{problem.q_heads * problem.q_len * problem.kv_len, problem.q_len * problem.kv_len,
                   problem.kv_len, 1},
      row_extent{problem.batch, problem.q_heads, problem.q_len, 1},
      row_stride{problem.q_heads * problem.q_len, problem.q_len, 1, 1},
      p_(problem) {
  operands_.fill(-1), offsets_.fill(-1);
}

int Lowering::add(OpTensor tensor) {
  graph_.tensors.push_back(std::move(tensor));
  return static_cast<int>(graph_.tensors.size()) - 1;
}

int Lowering::operand(Role role) {
  int& known = operands_[static_cast<size_t>(role)];
  if (known >= 0) return known;
  Operand t = p_[role];
  if (side_of(role) == Side::kNone)  // broadcast: cuDNN knows no stride of 0
    for (size_t axis = 0; axis < 4; ++axis)
      if (t.stride[axis] == 0) t.extent[axis] = 1;
  OpTensor tensor{std::string(name_of(role)), t.dtype, t.extent, strides_of(t), Place::kOperand, role};
  if (has_lengths(p_) && side_of(role) != Side::kNone) tensor.offsets = offsets(role);
  return known = add(std::move(tensor));
}

int Lowering::transposed(Role role) {
  const int index = operand(role);
  OpTensor& t = tensor(index);
  t.name += "_transposed";
  std::swap(t.extent[2], t.extent[3]);
  std::swap(t.stride[2], t.stride[3]);
  return index;
}

int Lowering::scalar(std::string name, double value, DataType dtype) {
  OpTensor tensor{std::move(name), dtype};
  tensor.place = Place::kScalar;
  tensor.value = value;
  return add(std::move(tensor));
}

int Lowering::scratch(Scratch scratch, std::string name, DataType dtype, const Four& extent,
                      const Four& stride, int offsets) {
  OpTensor tensor{std::move(name), dtype, extent, stride, Place::kScratch};
  tensor.scratch = scratch;
  tensor.offsets = offsets;
  return add(std::move(tensor));
}

int Lowering::virtual_tensor(std::string name, const Four& extent, const Four& stride, DataType dtype) {
  return add({std::move(name), dtype, extent, stride});
}

int Lowering::offsets(Role role) {
  int& known = offsets_[static_cast<size_t>(role)];
  if (known >= 0) return known;
  OpTensor tensor{std::string(name_of(role)) + "_offsets", DataType::kI64, {p_.batch + 1, 1, 1, 1}};
  tensor.place = Place::kOffsets;
  tensor.role = role;
  return known = add(std::move(tensor));
}

int Lowering::packed_offsets() {
  if (packed_offsets_ < 0 && packed_slots(p_) > 0)
    packed_offsets_ = scratch(Scratch::kPackedOffsets, "packed_offsets", DataType::kI64,
                              {p_.batch + 1, 1, 1, 1}, {1, 1, 1, 1});
  return packed_offsets_;
}

int Lowering::lengths(Scratch which, const char* name) {
  return scratch(which, name, DataType::kI32, {p_.batch, 1, 1, 1}, {1, 1, 1, 1});
}

int Lowering::q_len() {
  if (q_len_ < 0 && has_lengths(p_)) q_len_ = lengths(Scratch::kQLen, "q_len");
  return q_len_;
}

int Lowering::kv_len() {
  if (kv_len_ < 0 && has_lengths(p_)) kv_len_ = lengths(Scratch::kKvLen, "kv_len");
  return kv_len_;
}

int Lowering::pointwise(OpCode code, std::string name, int x, int b, DataType dtype, DataType compute) {
  const auto elems = [](const OpTensor& t) { return t.extent[0] * t.extent[1] * t.extent[2] * t.extent[3]; };
  const OpTensor& shape = b >= 0 && elems(tensor(x)) < elems(tensor(b)) ? tensor(b) : tensor(x);
  Op op{code, compute, x, b};
  const Four extent = shape.extent, stride = shape.stride;
  op.y = virtual_tensor(std::move(name), extent, stride, dtype);
  graph_.ops.push_back(op);
  return op.y;
}

int Lowering::select(std::string name, int scores, int keep) {
  Op op{OpCode::kSelect, DataType::kF32, scores, scalar(name + "_inf", kMinusInf), keep};
  op.y = virtual_tensor(std::move(name), score_extent, score_stride);
  graph_.ops.push_back(op);
  return op.y;
}

int Lowering::index(std::string name, int axis, int scores, DataType compute) {
  Op op{OpCode::kIndex, compute, scores};
  op.axis = axis;
  op.y = virtual_tensor(std::move(name), score_extent, score_stride, DataType::kI32);
  graph_.ops.push_back(op);
  return op.y;
}

int Lowering::reduce(OpCode code, std::string name, int x, const Four& extent) {
  Op op{code, DataType::kF32, x};
  op.y = virtual_tensor(std::move(name), extent, row_stride);
  graph_.ops.push_back(op);
  return op.y;
}

int Lowering::scores() {
  Op product{OpCode::kMatmul, DataType::kF32, operand(Role::kQ), transposed(Role::kK)};
  product.m_len = q_len(), product.n_len = kv_len();
  product.y = virtual_tensor("qk", score_extent, score_stride);
  op(product);
  scale_ = scalar("scale", p_.scale);
  int scores = pointwise(OpCode::kMul, "scaled", product.y, scale_);
  if (p_.softcap > 0) {
    const int cap = scalar("softcap", p_.softcap);
    softcap_argument_ = pointwise(OpCode::kDiv, "over_cap", scores, cap);
    scores = pointwise(OpCode::kMul, "capped", pointwise(OpCode::kTanh, "tanh", softcap_argument_), cap);
  }
  if (const int added = bias(); added >= 0) scores = pointwise(OpCode::kAdd, "biased", scores, added);
  if (p_.has(Role::kAlibiSlopes) && !puts_slopes_in_bias(p_)) scores = with_slopes(scores);
  return has_lengths(p_) ? padded(scores) : scores;
}

int Lowering::bias() {
  if (!makes_bias(p_)) return p_.has(Role::kBias) ? operand(Role::kBias) : -1;
  const Operand own = own_bias(p_);
  return scratch(Scratch::kBias, "own_bias", own.dtype, own.extent, strides_of(own));
}

int Lowering::with_slopes(int scores) {
  const int row = index("slope_row", 2, scores, DataType::kI32);
  const int col = index("slope_col", 3, scores, DataType::kI32);
  const int distance = pointwise(OpCode::kSub, "distance", col, row, DataType::kI32, DataType::kI32);
  const int term = pointwise(OpCode::kMul, "slope_term", distance, operand(Role::kAlibiSlopes));
  return pointwise(OpCode::kAdd, "sloped", scores, term);
}

int Lowering::padded(int scores) {
  using enum DataType;
  const int row = index("pad_row", 2, scores, kI32), col = index("pad_col", 3, scores, kI32);
  const int in_q = pointwise(OpCode::kLess, "row_inside", row, q_len(), kBool, kBool);
  const int in_kv = pointwise(OpCode::kLess, "col_inside", col, kv_len(), kBool, kBool);
  return select("padded", scores, pointwise(OpCode::kAnd, "inside", in_q, in_kv, kBool, kBool));
}

int Lowering::banded(int scores) {
  if (const auto right = reached(p_.band.right, p_)) scores = right_band(scores, *right);
  if (const auto left = reached(p_.band.left, p_)) scores = left_band(scores, *left);
  return scores;
}

int Lowering::right_band(int scores, int64_t right) {
  using enum DataType;
  int row = index("right_row", 2, scores);
  const int col = index("right_col", 3, scores);
  if (p_.band.align == Align::kBottomRight) {
    const bool fixed = !has_lengths(p_);
    const int nk = fixed ? scalar("right_kv_len", static_cast<double>(p_.kv_len), kI32) : kv_len();
    const int nq = fixed ? scalar("right_q_len", static_cast<double>(p_.q_len), kI32) : q_len();
    row = pointwise(OpCode::kAdd, "right_row_kv", row, nk, kI32, kI32);
    row = pointwise(OpCode::kSub, "right_diagonal", row, nq, kI32, kI32);
  }
  if (right != 0) {
    const int bound = scalar("right", static_cast<double>(right), kI32);
    row = pointwise(OpCode::kAdd, "right_last", row, bound, kI32, kI32);
  }
  return select("right_banded", scores,
                pointwise(OpCode::kGreaterEqual, "right_keep", row, col, kBool, kBool));
}

int Lowering::left_band(int scores, int64_t left) {
  using enum DataType;
  const int row = index("left_row", 2, scores);
  int col = index("left_col", 3, scores);
  const double own = static_cast<double>(left + 1);  // cuDNN's left bound counts the row's own key
  if (p_.band.align == Align::kBottomRight && has_lengths(p_)) {
    col = pointwise(OpCode::kAdd, "left_col_bound", col, scalar("left", own, kI32), kI32, kI32);
    col = pointwise(OpCode::kSub, "left_col_kv", col, kv_len(), kI32, kI32);
    col = pointwise(OpCode::kAdd, "left_last", col, q_len(), kI32, kI32);
  } else {
    const double shift = static_cast<double>(p_.band.offset(p_.q_len, p_.kv_len));
    col = pointwise(OpCode::kAdd, "left_last", col, scalar("left", own - shift), kF32);
  }
  return select("left_banded", scores, pointwise(OpCode::kGreater, "left_keep", col, row, kBool, kBool));
}

}  // namespace attngraph::cudnn
