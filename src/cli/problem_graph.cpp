#include <algorithm>
#include <numeric>

#include "cli/problem_layout.hpp"
#include "graph/fields.hpp"

namespace attngraph::cli {
namespace {

constexpr int64_t kUnreadStride = 7919;  // of a ragged tensor's batch axis

bool is_kv_like(Role role) {
  return role == Role::kK || role == Role::kV || role == Role::kDk || role == Role::kDv;
}

int64_t bit(bool full, int64_t extent) { return full ? extent : 1; }

/// Rank and extents of a tensor.
std::vector<int64_t> dims_of(const RandomProblem& p, Role role) {
  const int64_t heads = is_kv_like(role) ? p.kv_heads : p.q_heads();
  const int64_t len = is_kv_like(role) ? p.kv_len : p.q_len;
  const bool is_paged = p.page_size > 0;
  switch (role) {
    case Role::kK:
    case Role::kV: {
      const int64_t dim = role == Role::kK ? p.qk_dim : p.v_dim;
      if (is_paged) return {num_pages(p), heads, p.page_size, dim};
      return {p.batch, heads, len, dim};
    }
    case Role::kQ:
    case Role::kDq:
    case Role::kDk:
      return {p.batch, heads, len, p.qk_dim};
    case Role::kO:
    case Role::kOA:
    case Role::kOB:
    case Role::kDo:
    case Role::kDv:
      return {p.batch, heads, len, p.v_dim};
    case Role::kStats:
    case Role::kStatsA:
    case Role::kStatsB:
      if (p.stats_rank3) return {p.batch, heads, len};
      return {p.batch, heads, len, 1};
    case Role::kBias:
    case Role::kDbias:
      return {bit(p.bias_full[0], p.batch), bit(p.bias_full[1], heads), bit(p.bias_full[2], p.q_len),
              bit(p.bias_full[3], p.kv_len)};
    case Role::kMask:
      return {bit(p.mask_full[0], p.batch), bit(p.mask_full[1], heads), bit(p.mask_full[2], p.q_len),
              bit(p.mask_full[3], p.kv_len)};
    case Role::kAlibiSlopes:
    case Role::kDalibiSlopes:
      if (p.slopes_rank == 1) return {heads};
      return {p.slopes_rank == 2 ? 1 : p.batch, heads};
    case Role::kSink:
    case Role::kDsink:
      return {heads};
    case Role::kSeqLenQ:
    case Role::kSeqLenKv:
      return {p.batch};
    case Role::kCuSeqLenQ:
    case Role::kCuSeqLenKv:
      return {p.batch + 1};
    case Role::kPageTableK:
    case Role::kPageTableV:
      return {p.batch, num_page_columns(p)};
    case Role::kDropoutSeed:
    case Role::kDropoutOffset:
      return {1};
  }
  return {};
}

DataType dtype_of(const RandomProblem& p, Role role) {
  const auto integer = [](bool wide) { return wide ? DataType::kI64 : DataType::kI32; };
  switch (role) {
    case Role::kSeqLenQ:
    case Role::kCuSeqLenQ:
      return integer(p.q_lengths.wide);
    case Role::kSeqLenKv:
    case Role::kCuSeqLenKv:
      return integer(p.kv_lengths.wide);
    case Role::kDropoutSeed:
    case Role::kDropoutOffset:
      return integer(p.wide_seed);
    case Role::kPageTableK:
    case Role::kPageTableV:
      return DataType::kI32;
    case Role::kMask:
      return DataType::kBool;
    case Role::kBias:
      return p.bias_dtype;
    case Role::kDbias:
      return p.dbias_dtype;
    case Role::kStats:
    case Role::kStatsA:
    case Role::kStatsB:
    case Role::kSink:
    case Role::kAlibiSlopes:
    case Role::kDsink:
    case Role::kDalibiSlopes:
      return DataType::kF32;
    default:
      return p.io;
  }
}

/// Of the roles that the pass's node has.
bool has_tensor(const RandomProblem& p, Pass pass, Role role) {
  switch (role) {
    case Role::kQ:
    case Role::kK:
    case Role::kV:
    case Role::kOA:
    case Role::kStatsA:
    case Role::kOB:
    case Role::kStatsB:
    case Role::kO:
      return true;
    case Role::kDo:
      return pass == Pass::kBackward;
    case Role::kStats:
      return p.pass == Pass::kBackward || p.wants(role);
    case Role::kSeqLenQ:
      return p.q_lengths.form == Lengths::Form::kPlain;
    case Role::kSeqLenKv:
      return p.kv_lengths.form == Lengths::Form::kPlain;
    case Role::kCuSeqLenQ:
      return p.q_lengths.form == Lengths::Form::kCumulative;
    case Role::kCuSeqLenKv:
      return p.kv_lengths.form == Lengths::Form::kCumulative;
    default:
      return p.wants(role);
  }
}

/// Strides by the placement's order and padding.
std::vector<int64_t> strides_of(const RandomProblem& p, Role role, const std::vector<int64_t>& dims) {
  const Placement& place = p[role];
  const int rank = static_cast<int>(dims.size());
  std::vector<int64_t> strides(dims.size(), 0);
  int64_t running = 1;
  for (size_t i = 0; i < place.order.size(); ++i) {
    const int axis = place.order[i];
    if (axis >= rank || place.broadcast_axis == axis) continue;
    const auto at = static_cast<size_t>(axis);
    if (place.ragged && axis == 0) {
      strides[at] = kUnreadStride;
      continue;
    }
    strides[at] = running;
    const int64_t extent = place.ragged && axis == 2 ? capacity_of(p, side_of(role)) : dims[at];
    running = running * std::max<int64_t>(extent, 1) + place.padding[i];
  }
  return strides;
}

/// Strides of one part of an interleaved buffer [batch, len, heads and dims of all parts].
std::vector<int64_t> shared_strides(const RandomProblem& p, Role role, const SharedBuffer& buffer) {
  const std::vector<int64_t> dims = dims_of(p, role);
  return {p[buffer.owner].ragged ? kUnreadStride : dims[2] * buffer.token_elems, dims[3], buffer.token_elems,
          1};
}

int64_t alignment_of(const RandomProblem& p, Role role, DataType dtype) {
  const int64_t element = element_bytes(dtype), usual = Tensor{}.alignment;
  const std::optional<SharedBuffer> buffer = shared_buffer(p, role);
  if (p[role].aligned_to_element || (buffer && buffer->offset * element % usual != 0)) return element;
  return usual;
}

void add_tensor(Graph& graph, const RandomProblem& p, Role role) {
  Tensor tensor;
  tensor.uid = uid_of(role);
  tensor.name = name_of(role);
  tensor.dtype = dtype_of(p, role);
  tensor.dims = dims_of(p, role);
  const std::optional<SharedBuffer> buffer = shared_buffer(p, role);
  tensor.strides = buffer ? shared_strides(p, role, *buffer) : strides_of(p, role, tensor.dims);
  tensor.alignment = alignment_of(p, role, tensor.dtype);
  const Role owner = offsets_owner(p, role);
  if (p[owner].ragged && side_of(role) != Side::kNone) {
    tensor.ragged = Ragged{offsets_uid_of(p, owner), p[owner].token_offsets ? tensor.strides[2] : 1};
    if (!p[owner].by_lengths && graph.find(offsets_uid_of(p, owner)) == nullptr) {
      Tensor offsets;
      offsets.uid = offsets_uid_of(p, owner);
      offsets.name = std::string(name_of(owner)) + "_offsets";
      offsets.dtype = p[owner].wide_offsets ? DataType::kI64 : DataType::kI32;
      offsets.dims = {p.batch + 1};
      offsets.strides = {1};
      graph.tensors.push_back(std::move(offsets));
    }
  }
  graph.tensors.push_back(std::move(tensor));
}

void set_attributes(const RandomProblem& p, Pass pass, SdpaAttributes& attributes) {
  attributes = p.attributes;
  attributes.deterministic = pass == Pass::kBackward && p.attributes.deterministic;
  if (p.is_ragged(Side::kKv)) attributes.max_total_kv = capacity_of(p, Side::kKv);
}
void set_attributes(const RandomProblem& p, Pass, MergeAttributes& attributes) {
  attributes.stats_base = p.attributes.stats_base;
}

template <class Node>
Graph graph_with(const RandomProblem& p, Pass pass, Node node) {
  Graph graph;
  graph.name = "seed " + std::to_string(p.seed);
  set_attributes(p, pass, node.attributes);
  if (p.is_ragged(Side::kQ)) node.attributes.max_total_q = capacity_of(p, Side::kQ);
  ports(node, [&](Role role, Port& port, bool) {
    if (!has_tensor(p, pass, role)) return;
    port = uid_of(role);
    add_tensor(graph, p, role);
  });
  graph.nodes.push_back(std::move(node));
  return graph;
}

}  // namespace

Uid offsets_uid_of(const RandomProblem& problem, Role role) {
  constexpr Uid kFirst = 101;  // beyond those of the roles
  if (problem[role].by_lengths)
    return uid_of(side_of(role) == Side::kQ ? Role::kCuSeqLenQ : Role::kCuSeqLenKv);
  return kFirst + static_cast<Uid>(role);
}

int64_t num_page_columns(const RandomProblem& p) {
  return p.page_size == 0 ? 0 : (p.kv_len + p.page_size - 1) / p.page_size;
}

int64_t num_pages(const RandomProblem& p) {
  constexpr int64_t kSparePages = 2;
  return p.batch * num_page_columns(p) + kSparePages;
}

std::optional<SharedBuffer> shared_buffer(const RandomProblem& p, Role role) {
  const int64_t q = p.q_heads() * p.qk_dim, k = p.kv_heads * p.qk_dim, v = p.kv_heads * p.v_dim;
  if (role == Role::kDk && p.shared_gradients) return SharedBuffer{Role::kDk, 0, k + v};
  if (role == Role::kDv && p.shared_gradients) return SharedBuffer{Role::kDk, k, k + v};
  const bool with_q = p.sharing == RandomProblem::Sharing::kQkv;
  if (p.sharing == RandomProblem::Sharing::kNone || role > Role::kV) return std::nullopt;
  if (role == Role::kQ) return with_q ? std::optional(SharedBuffer{Role::kQ, 0, q + k + v}) : std::nullopt;
  const Role owner = with_q ? Role::kQ : Role::kK;
  const int64_t first = with_q ? q : 0;
  return SharedBuffer{owner, role == Role::kK ? first : first + k, first + k + v};
}

Role offsets_owner(const RandomProblem& p, Role role) {
  const std::optional<SharedBuffer> buffer = shared_buffer(p, role);
  if (const auto primal = primal_of(role); primal && p.like_primals) return *primal;
  return buffer ? buffer->owner : role;
}

std::vector<int64_t> token_starts(const RandomProblem& p, Role tensor) {
  const Role role = offsets_owner(p, tensor);
  const Placement& place = p[role];
  const bool is_q = side_of(role) == Side::kQ;
  Words words(p.seed, kGapStream + static_cast<uint64_t>(role));
  std::vector<int64_t> starts;
  int64_t end = 0;
  for (const int64_t given : (is_q ? p.q_lengths : p.kv_lengths).by_batch) {
    const int64_t start = end + words.between(0, place.max_gap);
    starts.push_back(start);
    end = start + std::clamp<int64_t>(given, 0, is_q ? p.q_len : p.kv_len);
  }
  starts.push_back(end);
  return starts;
}

int64_t capacity_of(const RandomProblem& p, Side side) {
  int64_t slots = 0;
  for (size_t i = 0; i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    if (side_of(role) == side && p[offsets_owner(p, role)].ragged)
      slots = std::max(slots, token_starts(p, role).back());
  }
  return slots + p.spare_slots;
}

Graph graph_of(const RandomProblem& problem, Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return graph_with(problem, pass, SdpaForward{});
    case Pass::kBackward:
      return graph_with(problem, pass, SdpaBackward{});
    case Pass::kMerge:
      return graph_with(problem, pass, MergePartials{});
  }
  return {};
}

}  // namespace attngraph::cli
