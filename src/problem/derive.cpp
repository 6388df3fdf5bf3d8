#include "problem/derive.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"
#include "graph/add.hpp"
#include "graph/fields.hpp"
#include "problem/layout.hpp"

namespace attngraph {
namespace {

constexpr size_t kBatch = 0, kHeads = 1, kLen = 2, kDim = 3, kRank = 4;

bool has_full_rank(const Tensor& tensor) {
  return tensor.dims.size() == kRank && (tensor.strides.empty() || tensor.strides.size() == kRank);
}

/// Token strides that offsets made for `like` can serve are the multiples of this.
int64_t token_unit(const Tensor& like) {
  const int64_t stride = like.strides[kLen], multiplier = like.ragged->multiplier;
  return stride <= 0 || multiplier <= 0 ? 1 : stride / std::gcd(stride, multiplier);
}

/// The multiplier with which `like`'s offsets name the same tokens at another token stride, a
/// multiple of token_unit.
Result<int64_t> multiplier_for(const Tensor& like, int64_t token_stride) {
  const int64_t stride = like.strides[kLen], multiplier = like.ragged->multiplier;
  if (stride <= 0 || multiplier <= 0) return multiplier;
  return checked_mul_add(multiplier / std::gcd(stride, multiplier), token_stride / token_unit(like), 0,
                         "multiplier");
}

/// Axes from the slowest to the fastest. Broadcast axes, and the batch of a ragged tensor, whose
/// stride is never read, are slowest.
std::vector<size_t> memory_order(const Tensor& like, size_t rank) {
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  if (like.strides.size() != rank) return order;
  const auto is_slowest = [&](size_t axis) {
    return like.strides[axis] == 0 || (like.ragged && axis == kBatch);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    if (is_slowest(x) || is_slowest(y)) return is_slowest(x) && !is_slowest(y);
    return like.strides[x] > like.strides[y];
  });
  return order;
}

Result<int64_t> rounded_up(int64_t value, int64_t unit) {
  return checked_mul_add(value / unit + (value % unit != 0 ? 1 : 0), unit, 0, "token stride");
}

/// Strides of `tensor.dims` without gaps in the order given, and the multiplier that goes with them.
Status pack(Tensor& tensor, const Tensor& like, const std::vector<size_t>& order, int64_t slots) {
  tensor.strides.assign(order.size(), 0);
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t axis = order[i];
    int64_t extent = tensor.dims[axis];
    if (tensor.ragged && axis == kLen) {
      const Result<int64_t> token_stride = rounded_up(stride, token_unit(like));
      if (!token_stride.ok()) return token_stride.status();
      stride = *token_stride;
      extent = slots;
    }
    tensor.strides[axis] = stride;
    const Result<int64_t> next = checked_mul_add(stride, std::max<int64_t>(extent, 1), 0, "strides");
    if (!next.ok()) return next.status();
    stride = *next;
  }
  if (!tensor.ragged) return {};
  const Result<int64_t> multiplier = multiplier_for(like, tensor.strides[kLen]);
  if (multiplier.ok()) tensor.ragged->multiplier = *multiplier;
  return multiplier.status();
}

bool overlaps(const Tensor& tensor, int64_t slots) {
  if (tensor.strides.size() != tensor.dims.size()) return false;
  std::vector<Axis> axes;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] < 0 || tensor.strides[i] < 0) return false;
    if (tensor.ragged && i == kBatch) continue;
    axes.push_back({tensor.ragged && i == kLen ? slots : tensor.dims[i], tensor.strides[i]});
  }
  return self_overlap(axes) != Overlap::kNone;
}

}  // namespace

Tensor packed_like(const Tensor& like, std::vector<int64_t> dims, int64_t slots) {
  Tensor tensor = like;
  tensor.uid = 0;
  tensor.name.clear();
  tensor.is_virtual = false;
  tensor.dims = std::move(dims);
  if (!has_full_rank(like) || like.strides.empty() || tensor.dims.size() != kRank) tensor.ragged.reset();
  if (!pack(tensor, like, memory_order(like, tensor.dims.size()), slots).ok()) tensor.strides.clear();
  return tensor;
}

Tensor sibling_of(const Tensor& tensor, int64_t slots) {
  if (overlaps(tensor, slots)) return packed_like(tensor, tensor.dims, slots);
  Tensor sibling = tensor;
  sibling.uid = 0;
  sibling.name.clear();
  sibling.is_virtual = false;
  return sibling;
}

Tensor padded_stats(const Tensor& q) {
  Tensor like;
  return packed_like(like, {q.dims[kBatch], q.dims[kHeads], q.dims[kLen], 1}, 0);
}

Tensor token_major_stats(const Tensor& q) {
  Tensor stats = padded_stats(q);
  const int64_t heads = q.dims[kHeads];
  if (!q.ragged || q.strides.size() != kRank || heads <= 0 || heads % token_unit(q) != 0) return stats;
  const Result<int64_t> multiplier = multiplier_for(q, heads);
  if (!multiplier.ok()) return stats;
  stats.strides = stats_token_major(q.dims[kBatch], heads, q.dims[kLen]).strides;
  stats.ragged = Ragged{q.ragged->offsets, *multiplier};
  return stats;
}

int64_t slots_of(const std::optional<int64_t>& max_total, const Tensor& tensor) {
  if (max_total) return *max_total;
  if (tensor.dims.size() != kRank) return 0;
  const Result<int64_t> slots = checked_mul_add(tensor.dims[kBatch], tensor.dims[kLen], 0, "slots");
  return slots.ok() ? *slots : 0;
}

const std::optional<int64_t>& max_total_of(const SdpaAttributes& attributes, Role role) {
  return side_of(role) == Side::kKv ? attributes.max_total_kv : attributes.max_total_q;
}

SdpaForward& Graph::sdpa_forward(SdpaForward node, bool with_stats) {
  const Tensor* q = node.q ? find(*node.q) : nullptr;
  const Tensor* v = node.v ? find(*node.v) : nullptr;
  const bool has_shapes = q && v && has_full_rank(*q) && has_full_rank(*v);
  if (has_shapes) {
    const Tensor stats = padded_stats(*q);
    const std::vector<int64_t> dims = {q->dims[kBatch], q->dims[kHeads], q->dims[kLen], v->dims[kDim]};
    const Tensor o = packed_like(*q, dims, slots_of(node.attributes.max_total_q, *q));
    if (!node.o) node.o = add_tensor(*this, o, "o");
    if (!node.stats && with_stats) node.stats = add_tensor(*this, stats, "stats");
  }
  return std::get<SdpaForward>(nodes.emplace_back(std::move(node)));
}

MergePartials& Graph::merge_partials(MergePartials node, bool with_stats) {
  const auto add_like = [&](const Port& model, const char* label) -> Port {
    const Tensor* tensor = model ? find(*model) : nullptr;
    if (tensor == nullptr) return std::nullopt;
    return add_tensor(*this, sibling_of(*tensor, slots_of(node.attributes.max_total_q, *tensor)), label);
  };
  if (!node.o) node.o = add_like(node.o_a, "o");
  if (!node.stats && with_stats) node.stats = add_like(node.stats_a, "stats");
  return std::get<MergePartials>(nodes.emplace_back(std::move(node)));
}

SdpaBackward& Graph::sdpa_backward(SdpaBackward node) {
  if (!node.dq && !node.dk && !node.dv && !node.dbias && !node.dsink && !node.dalibi_slopes) {
    const PortTable inputs = ports_by_role(node);
    ports(node, [&](Role role, Port& port, bool) {
      if (role != Role::kDq && role != Role::kDk && role != Role::kDv) return;
      const Role primal_role = *primal_of(role);
      const Port uid = inputs[static_cast<size_t>(primal_role)];
      const Tensor* primal = uid ? find(*uid) : nullptr;
      if (!primal) return;
      const int64_t slots = slots_of(max_total_of(node.attributes, primal_role), *primal);
      port = add_tensor(*this, sibling_of(*primal, slots), std::string(name_of(role)));
    });
  }
  return std::get<SdpaBackward>(nodes.emplace_back(std::move(node)));
}

}  // namespace attngraph
