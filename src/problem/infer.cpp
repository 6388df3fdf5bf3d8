#include <algorithm>
#include <cmath>

#include "base/checked.hpp"
#include "problem/layout.hpp"
#include "problem/validate.hpp"

namespace attngraph {
namespace {

/// Strides of dims without gaps, last axis fastest; an extent of 0 counts as 1, so that heads of a
/// ragged tensor stay apart.
Result<std::array<int64_t, 4>> dense_strides(const Tensor& tensor) {
  std::array<int64_t, 4> strides = {};
  int64_t stride = 1;
  for (size_t i = tensor.dims.size(); i-- > 0;) {
    strides[i] = stride;
    auto next = checked_mul_add(stride, std::max<int64_t>(tensor.dims[i], 1), 0, "dense strides");
    if (!next.ok()) return next.status();
    stride = *next;
  }
  return strides;
}

}  // namespace

Status place_operand(Draft& draft, Role role, const std::array<int, 4>& axes) {
  const Tensor& tensor = draft[role];
  std::array<int64_t, 4> strides = {};
  if (tensor.strides.empty()) {
    auto dense = dense_strides(tensor);
    if (!dense.ok()) return refuse(draft, role, dense.status().message());
    strides = *dense;
  } else {
    std::copy(tensor.strides.begin(), tensor.strides.end(), strides.begin());
  }
  Operand& t = draft.problem[role];
  t.present = true;
  t.dtype = tensor.dtype;
  t.alignment = tensor.alignment;
  t.extent.fill(1);
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    const size_t axis = static_cast<size_t>(axes[i]);
    t.extent[axis] = tensor.dims[i];
    t.stride[axis] = strides[i];
  }
  t.ragged = tensor.ragged.has_value();
  for (size_t axis = 0; axis < 4; ++axis)
    // The capacity of a ragged tensor reads the stride of len, whatever the longest sequence is.
    if (t.extent[axis] == 1 && !(t.ragged && axis == 2)) t.stride[axis] = 0;
  if (!t.ragged) return {};
  const Tensor& offsets = draft.offsets_of(role);
  t.stride[0] = 0;
  t.multiplier = tensor.ragged->multiplier;
  t.offsets_dtype = offsets.dtype;
  t.offsets_alignment = offsets.alignment;
  // One entry (batch 0) has no stride; a wrong rank is refused later.
  t.offsets_stride = offsets.dims.empty() || offsets.dims[0] == 1 ? 0 : offsets.strides[0];
  return {};
}

Result<int64_t> infer_slots(const Draft& draft, Side side) {
  const Problem& problem = draft.problem;
  bool is_ragged = false;
  for (size_t i = 0; i < kNumRoles; ++i)
    is_ragged |= problem.operands[i].ragged && side_of(static_cast<Role>(i)) == side;
  if (!is_ragged) return int64_t{0};
  const auto& given = side == Side::kQ ? draft.attributes.max_total_q : draft.attributes.max_total_kv;
  if (given) return *given;
  return checked_mul_add(problem.batch, side == Side::kQ ? problem.q_len : problem.kv_len, 0,
                         "default capacity batch * len");
}

double default_scale(int64_t qk_dim) { return 1.0 / std::sqrt(static_cast<double>(qk_dim)); }

}  // namespace attngraph
