#include "engine/cudnn/lower.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "engine/cudnn/bias.hpp"
#include "engine/cudnn/scores.hpp"
#include "problem/layout.hpp"

namespace attngraph::cudnn {
namespace {

using enum OpCode;

bool leaves_rows(const Band& band, int64_t q_len, int64_t kv_len) {
  for (const int64_t row : {int64_t{0}, q_len - 1})
    if (const KeyRange keys = band.keys(row, q_len, kv_len); keys.begin == keys.end) return true;
  return false;
}

/// The tensor by whose rows a ragged scratch tensor goes.
Role primal_of_scratch(Scratch scratch) {
  switch (scratch) {
    case Scratch::kDk:
    case Scratch::kDkByQHead:
      return Role::kK;
    case Scratch::kDv:
    case Scratch::kDvByQHead:
      return Role::kV;
    default:
      return Role::kQ;
  }
}

OpGraph lower_forward(const Problem& p) {
  Lowering l(p);
  const int scores = l.banded(l.scores());
  const int sink = p.has(Role::kSink) ? l.operand(Role::kSink) : -1;
  int largest = l.reduce(kReduceMax, "max", scores, l.row_extent);
  if (sink >= 0) largest = l.pointwise(kMax, "max_with_sink", largest, sink);
  const int exponent = l.pointwise(kExp, "exp", l.pointwise(kSub, "shifted", scores, largest));
  int sum = l.reduce(kReduceAdd, "sum", exponent, l.row_extent);
  if (sink >= 0) {
    const int term = l.pointwise(kExp, "sink_exp", l.pointwise(kSub, "sink_shifted", sink, largest));
    sum = l.pointwise(kAdd, "sum_with_sink", sum, term);
  }
  const int stats =
      p.has(Role::kStats) ? l.operand(Role::kStats) : l.virtual_tensor("stats", l.row_extent, l.row_stride);
  const int log = l.pointwise(kLog, "log", sum);
  Op add{kAdd, DataType::kF32, largest, log};
  add.y = stats;
  l.op(add);
  const int weights = l.pointwise(kDiv, "weights", exponent, sum, p.io);
  Op product{kMatmul, DataType::kF32, weights, l.operand(Role::kV)};
  product.y = l.operand(Role::kO), product.m_len = l.q_len(), product.k_len = l.kv_len();
  l.op(product);
  return std::move(l).take();
}

/// Backward's operations; members are what several of them read.
class Backward {
 public:
  explicit Backward(const Problem& p) : p_(p), l_(p) {}

  OpGraph build() {
    const int dout = l_.operand(Role::kDo);
    const int stats = own_stats();
    const int row_sums = sum_rows(dout);
    int scores = l_.scores();
    scores = l_.pointwise(kSub, "minus_stats", scores, stats);
    const int weights = l_.pointwise(kExp, "weights", l_.banded(scores));
    product_over_rows(Role::kDv, "weights_transposed", weights, dout);
    const int d_scores = score_gradient(weights, dout, row_sums);
    product_over_rows(Role::kDk, "dscores_transposed", d_scores, l_.operand(Role::kQ));
    query_gradient(d_scores);
    return std::move(l_).take();
  }

 private:
  /// A float32 array a row of q: packed by our own offsets, tokens then heads, or dense.
  int row_array(Scratch scratch, std::string name) {
    const int offsets = l_.packed_offsets();
    const Lowering::Four packed = {p_.q_heads * p_.q_len, 1, p_.q_heads, 1};
    return l_.scratch(scratch, std::move(name), DataType::kF32, l_.row_extent,
                      offsets < 0 ? l_.row_stride : packed, offsets);
  }

  int own_stats() {
    return copies_stats(p_) ? row_array(Scratch::kStats, "own_stats") : l_.operand(Role::kStats);
  }

  /// delta = sum over v_dim of do * o. cuDNN's engines are matched with the product by one.
  int sum_rows(int dout) {
    const int product = l_.pointwise(kMul, "do_o", dout, l_.operand(Role::kO));
    const int64_t row = p_.q_heads * p_.v_dim;
    l_.tensor(product).stride = {p_.q_len * row, p_.q_len * p_.v_dim, row, 1};
    const int sum = l_.reduce(kReduceAdd, "do_o_sum", product, l_.row_extent);
    Op by_one{kMul, DataType::kF32, sum, l_.scalar("one", 1.0)};
    by_one.y = row_array(Scratch::kRowSums, "row_sums");
    l_.op(by_one);
    return by_one.y;
  }

  /// The gradient of k or v as an output, or the scratch that stands in for one that nobody asked for.
  int kv_gradient(Role gradient) {
    if (p_.has(gradient)) return l_.operand(gradient);
    const bool is_dk = gradient == Role::kDk;
    return unasked(gradient, is_dk ? Scratch::kDk : Scratch::kDv, is_dk ? Role::kK : Role::kV);
  }
  int unasked(Role gradient, Scratch scratch, Role primal) {
    const Operand& t = p_[primal];
    return l_.scratch(scratch, "unasked_" + std::string(name_of(gradient)), t.dtype, t.extent, strides_of(t),
                      has_lengths(p_) ? l_.offsets(primal) : -1);
  }

  /// dv = p^T do or dk = ds^T q, summed over the query heads of a group.
  void product_over_rows(Role gradient, std::string name, int by_score, int rows) {
    Op reshape{kReshape, DataType::kF32, by_score};
    reshape.y = l_.virtual_tensor(std::move(name), {p_.batch, p_.q_heads, p_.kv_len, p_.q_len},
                                  {l_.score_stride[0], l_.score_stride[1], 1, p_.kv_len}, p_.io);
    l_.op(reshape);
    const int output = kv_gradient(gradient);
    Op product{kMatmul, DataType::kF32, reshape.y, rows};
    product.m_len = l_.kv_len(), product.k_len = l_.q_len();
    product.y = p_.group() == 1 ? output : by_q_head(gradient, output);
    l_.op(product);
    if (p_.group() == 1) return;
    Op reduce{kReduceAdd, DataType::kF32, product.y};
    reduce.y = output;
    l_.op(reduce);
  }

  /// dk or dv of every query head. cuDNN keeps a dense one to itself; a packed one lies in the workspace by
  /// the offsets of the output, which cuDNN multiplies by the group.
  int by_q_head(Role gradient, int output) {
    const OpTensor t = l_.tensor(output);
    const int64_t len = p_.kv_len, dim = t.extent[3];
    const Lowering::Four extent = {p_.batch, p_.q_heads, len, dim};
    const std::string name = std::string(name_of(gradient)) + "_by_q_head";
    if (packed_slots(p_) == 0)
      return l_.virtual_tensor(name, extent, {p_.q_heads * len * dim, len * dim, dim, 1}, p_.io);
    const Scratch scratch = gradient == Role::kDk ? Scratch::kDkByQHead : Scratch::kDvByQHead;
    const int64_t token = t.stride[2] * p_.group();
    return l_.scratch(scratch, name, p_.io, extent, {len * token, dim, token, 1}, t.offsets);
  }

  /// ds = p * (dp - delta), through softcap and scale.
  int score_gradient(int weights, int dout, int row_sums) {
    Op product{kMatmul, DataType::kF32, dout, l_.transposed(Role::kV)};
    product.m_len = l_.q_len(), product.n_len = l_.kv_len();
    product.y = l_.virtual_tensor("dp", l_.score_extent, l_.score_stride);
    l_.op(product);
    int d = l_.pointwise(kSub, "dp_minus_sums", product.y, row_sums);
    d = l_.pointwise(kMul, "dscores", d, weights);
    if (p_.has(Role::kDbias)) bias_gradient(d);
    if (p_.softcap > 0) {
      const int cap = l_.scalar("softcap_backward", p_.softcap);
      d = l_.pointwise(kTanhBackward, "dtanh", l_.pointwise(kMul, "dcapped", d, cap), l_.softcap_argument());
      d = l_.pointwise(kDiv, "dover_cap", d, cap);
    }
    return l_.pointwise(kMul, "dscores_scaled", d, l_.scale());
  }

  /// dbias = ds before softcap's derivative, summed over the axes that the bias broadcasts. cuDNN 9.19 has
  /// an engine for sums of the io type alone.
  void bias_gradient(int d_scores) {
    Op reduce{kReduceAdd, DataType::kF32, d_scores};
    const Lowering::Four extent = p_[Role::kDbias].extent;
    reduce.y = l_.scratch(Scratch::kDbias, "dbias_sums", p_.io, extent, packed_strides(extent));
    l_.op(reduce);
  }

  /// dq = ds k, summed in float32, but with dbias, where cuDNN keeps ds and has one product of it. Packed
  /// sums lie at the strides and offsets of q.
  void query_gradient(int d_scores) {
    const OpTensor kt = l_.tensor(l_.operand(Role::kK));
    Op reshape{kReshape, DataType::kF32, l_.operand(Role::kK)};
    reshape.y = l_.virtual_tensor("k_again", {kt.extent[0], kt.extent[1], kt.extent[3], kt.extent[2]},
                                  {kt.stride[0], kt.stride[1], kt.stride[3], kt.stride[2]});
    l_.tensor(reshape.y).offsets = kt.offsets;
    l_.op(reshape);
    const OpTensor q = l_.tensor(l_.operand(Role::kQ));
    const int output = p_.has(Role::kDq) ? l_.operand(Role::kDq) : unasked(Role::kDq, Scratch::kDq, Role::kQ);
    const Lowering::Four dense = {p_.q_heads * p_.q_len * p_.qk_dim, p_.q_len * p_.qk_dim, p_.qk_dim, 1};
    Op product{kMatmul, DataType::kF32, d_scores, reshape.y};
    product.m_len = l_.q_len(), product.k_len = l_.kv_len();
    product.y = output;
    if (p_.has(Role::kDbias)) return l_.op(product);
    product.y = l_.scratch(Scratch::kDqSums, "dq_sums", DataType::kF32, q.extent,
                           packed_slots(p_) == 0 ? dense : q.stride, packed_slots(p_) == 0 ? -1 : q.offsets);
    l_.op(product);
    Op copy{kCopy, DataType::kF32, product.y};
    copy.y = output;
    l_.op(copy);
  }

  const Problem& p_;
  Lowering l_;
};

}  // namespace

Problem slice_of(const Problem& problem, const SliceShape& shape) {
  Problem p = problem;
  p.batch = shape.batch;
  p.kv_heads = shape.kv_heads;
  p.q_heads = shape.kv_heads * problem.group();
  for (size_t i = 0; i < kNumRoles; ++i) {
    Operand& t = p.operands[i];
    const bool is_kv = side_of(static_cast<Role>(i)) == Side::kKv;
    if (t.extent[0] == problem.batch) t.extent[0] = p.batch;
    if (t.extent[1] == (is_kv ? problem.kv_heads : problem.q_heads))
      t.extent[1] = is_kv ? p.kv_heads : p.q_heads;
  }
  return p;
}

bool has_lengths(const Problem& p) {
  const bool is_tall = p.band.align == Align::kBottomRight && p.q_len > p.kv_len;
  return is_tall || p.has(Role::kSeqLenQ) || p.has(Role::kCuSeqLenQ) || p.has(Role::kSeqLenKv) ||
         p.has(Role::kCuSeqLenKv);
}

bool band_leaves_rows(const Problem& p) { return leaves_rows(p.band, p.q_len, p.kv_len); }
bool band_leaves_keys(const Problem& p) { return leaves_rows(p.band.transposed(), p.kv_len, p.q_len); }

bool copies_stats(const Problem& p) {
  return has_lengths(p) || band_leaves_rows(p) || p.has(Role::kBias) || makes_bias(p) ||
         p.stats_base != StatsBase::kE;
}

bool lies_alike(const Operand& primal, const Operand& gradient) {
  if (!gradient.present) return true;
  return primal.ragged == gradient.ragged && primal.offsets_owner == gradient.offsets_owner &&
         primal.multiplier == gradient.multiplier && primal.stride == gradient.stride;
}

int64_t packed_slots(const Problem& p) {
  const auto is_packed = [&](Role primal, Role gradient) {
    return p[primal].ragged && lies_alike(p[primal], p[gradient]) && dim(p[primal]) % 16 == 0;
  };
  const auto by_token = [](const Operand& t) { return heads(t) * dim(t) <= len_stride(t); };
  if (p.pass == Pass::kForward || !is_packed(Role::kQ, Role::kDq) || p.v_dim % 16 != 0) return 0;
  const bool is_grouped = p.group() > 1;
  if (is_grouped && !(is_packed(Role::kK, Role::kDk) && is_packed(Role::kV, Role::kDv))) return 0;
  if (is_grouped && !(by_token(p[Role::kK]) && by_token(p[Role::kV]))) return 0;
  // Sequences of outputs lie apart, so their lengths sum up to no more than the capacity.
  return p.has(Role::kDq) ? p.q_slots : p.batch * p.q_len;
}

std::array<int64_t, 4> strides_of(const Operand& t) {
  std::array<int64_t, 4> stride = t.stride;
  if (t.ragged) stride[0] = t.extent[2] * t.stride[2];
  int64_t inner = 1;
  for (size_t axis = 4; axis-- > 0; inner *= t.extent[axis])
    if (stride[axis] == 0) stride[axis] = inner;
  return stride;
}

OpGraph lower(const Problem& p) { return p.pass == Pass::kForward ? lower_forward(p) : Backward(p).build(); }

Result<int64_t> scratch_bytes(const Problem& p, const OpTensor& t) {
  std::array<Axis, 4> axes;
  for (size_t i = 0; i < 4; ++i) axes[i] = {t.extent[i], t.stride[i]};
  if (t.offsets >= 0 && p[primal_of_scratch(t.scratch)].ragged) {  // heads, token slots, dim
    const bool is_row_array = t.scratch == Scratch::kStats || t.scratch == Scratch::kRowSums;
    const bool is_q = side_of(primal_of_scratch(t.scratch)) == Side::kQ;
    axes[0] = {1, 0};
    axes[2].extent = is_row_array ? packed_slots(p) : is_q ? p.q_slots : p.kv_slots;
  }
  const auto elems = footprint_elems(axes);
  if (!elems.ok()) return elems;
  return checked_mul_add(*elems, element_bytes(t.dtype), 0, t.name);
}

}  // namespace attngraph::cudnn
