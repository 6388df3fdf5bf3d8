#include <optional>
#include <span>

#include "base/checked.hpp"
#include "base/enum_names.hpp"
#include "problem/layout.hpp"
#include "problem/validate.hpp"

namespace attngraph {
namespace {

constexpr int kBatch = 0, kHeads = 1, kLen = 2, kDim = 3;
constexpr std::array<const char*, 4> kAxisNames = {"batch", "heads", "len", "dim"};

/// The logical axes that the dims of a tensor lie on; dims beyond them must be 1.
struct Form {
  int num_axes;
  std::array<int, 4> axes;
};
constexpr Form kFull{4, {kBatch, kHeads, kLen, kDim}}, kRows{3, {kBatch, kHeads, kLen, kDim}};
constexpr Form kPerBatch{1, {kBatch, kHeads, kLen, kDim}}, kPerHead{1, {kHeads, kBatch, kLen, kDim}};
constexpr Form kPerBatchHead{2, {kBatch, kHeads, kLen, kDim}}, kTable{2, {kBatch, kLen, kHeads, kDim}};

enum class Types : uint8_t { kIo, kAsLeader, kFloat, kF32, kInteger, kI32, kBool };

/// What an extent must be.
struct AxisRule {
  enum Kind : uint8_t { kFree, kOne, kAs, kOneOrAs, kOneMore } kind = kFree;
  Role source = Role::kQ;
  int axis = 0;
};
constexpr AxisRule kFree{}, kOne{AxisRule::kOne};
constexpr AxisRule as(Role source, int axis) { return {AxisRule::kAs, source, axis}; }
constexpr AxisRule one_or(Role source, int axis) { return {AxisRule::kOneOrAs, source, axis}; }
constexpr AxisRule one_more(Role source, int axis) { return {AxisRule::kOneMore, source, axis}; }
constexpr std::array<AxisRule, 4> all_as(Role source) {
  return {as(source, kBatch), as(source, kHeads), as(source, kLen), as(source, kDim)};
}

/// Contract section 1 and "types and shapes of the rest" of section 3.
struct RoleRule {
  Role role;
  Form form;
  Types types;
  std::array<AxisRule, 4> axes;
};
using enum Role;
constexpr std::array<AxisRule, 4> kOutputLike = {as(kQ, kBatch), as(kQ, kHeads), as(kQ, kLen), as(kV, kDim)};
constexpr std::array<AxisRule, 4> kScoreLike = {one_or(kQ, kBatch), one_or(kQ, kHeads), one_or(kQ, kLen),
                                                one_or(kK, kLen)};
constexpr std::array<AxisRule, 4> kBatchLike = {as(kQ, kBatch), kOne, kOne, kOne};
constexpr std::array<AxisRule, 4> kPrefixSums = {one_more(kQ, kBatch), kOne, kOne, kOne};
constexpr std::array<AxisRule, 4> kTableLike = {as(kQ, kBatch), kOne, kFree, kOne};
constexpr std::array<AxisRule, 4> kScalar = {kOne, kOne, kOne, kOne};
constexpr RoleRule kAttentionRules[] = {
    {kQ, kFull, Types::kIo, {}},
    {kK, kFull, Types::kAsLeader, {as(kQ, kBatch), kFree, kFree, as(kQ, kDim)}},
    {kV, kFull, Types::kAsLeader, {as(kQ, kBatch), as(kK, kHeads), as(kK, kLen), kFree}},
    {kO, kFull, Types::kAsLeader, kOutputLike},
    {kDo, kFull, Types::kAsLeader, kOutputLike},
    {kStats, kRows, Types::kF32, {as(kQ, kBatch), as(kQ, kHeads), as(kQ, kLen), kOne}},
    {kBias, kFull, Types::kFloat, kScoreLike},
    {kMask, kFull, Types::kBool, kScoreLike},
    {kAlibiSlopes, kPerBatchHead, Types::kF32, {one_or(kQ, kBatch), as(kQ, kHeads), kOne, kOne}},
    {kSink, kPerHead, Types::kF32, {kOne, as(kQ, kHeads), kOne, kOne}},
    {kSeqLenQ, kPerBatch, Types::kInteger, kBatchLike},
    {kSeqLenKv, kPerBatch, Types::kInteger, kBatchLike},
    {kCuSeqLenQ, kPerBatch, Types::kInteger, kPrefixSums},
    {kCuSeqLenKv, kPerBatch, Types::kInteger, kPrefixSums},
    {kPageTableK, kTable, Types::kI32, kTableLike},
    {kPageTableV, kTable, Types::kI32, kTableLike},
    {kDropoutSeed, kPerBatch, Types::kInteger, kScalar},
    {kDropoutOffset, kPerBatch, Types::kInteger, kScalar},
    {kDq, kFull, Types::kAsLeader, all_as(kQ)},
    {kDk, kFull, Types::kAsLeader, all_as(kK)},
    {kDv, kFull, Types::kAsLeader, all_as(kV)},
    {kDbias, kFull, Types::kFloat, all_as(kBias)},
    {kDsink, kPerHead, Types::kF32, all_as(kSink)},
    {kDalibiSlopes, kPerBatchHead, Types::kF32, all_as(kAlibiSlopes)},
};
/// Contract section 9.
constexpr std::array<AxisRule, 4> kMergedStats = {as(kOA, kBatch), as(kOA, kHeads), as(kOA, kLen), kOne};
constexpr RoleRule kMergeRules[] = {
    {kOA, kFull, Types::kIo, {}},
    {kStatsA, kRows, Types::kF32, kMergedStats},
    {kOB, kFull, Types::kAsLeader, all_as(kOA)},
    {kStatsB, kRows, Types::kF32, kMergedStats},
    {kO, kFull, Types::kAsLeader, all_as(kOA)},
    {kStats, kRows, Types::kF32, kMergedStats},
    {kSeqLenQ, kPerBatch, Types::kInteger, {as(kOA, kBatch), kOne, kOne, kOne}},
    {kCuSeqLenQ, kPerBatch, Types::kInteger, {one_more(kOA, kBatch), kOne, kOne, kOne}},
};

/// The leader comes first.
std::span<const RoleRule> rules_of(Pass pass) {
  if (pass == Pass::kMerge) return kMergeRules;
  return kAttentionRules;
}

template <class Check>
Status each_tensor(const Draft& draft, Check&& check) {
  for (const RoleRule& rule : rules_of(draft.problem.pass))
    if (draft.has(rule.role)) ATTNGRAPH_RETURN_IF_ERROR(check(rule));
  return {};
}

// --- types ---------------------------------------------------------------------------------------

bool is_float(DataType type) {
  return type == DataType::kF32 || type == DataType::kF16 || type == DataType::kBf16;
}
bool is_integer(DataType type) { return type == DataType::kI32 || type == DataType::kI64; }

/// What a type that `types` does not take must be; null when it takes it.
const char* wanted_type(Types types, DataType type, DataType leading) {
  switch (types) {
    case Types::kIo:
    case Types::kFloat:
      return is_float(type) ? nullptr : "f32, f16 or bf16";
    case Types::kAsLeader:
      return type == leading ? nullptr : "that of ";
    case Types::kF32:
      return type == DataType::kF32 ? nullptr : "f32";
    case Types::kInteger:
      return is_integer(type) ? nullptr : "i32 or i64";
    case Types::kI32:
      return type == DataType::kI32 ? nullptr : "i32";
    case Types::kBool:
      return type == DataType::kBool ? nullptr : "bool";
  }
  return nullptr;
}

Status check_types(Draft& draft) {
  const Role leader = leader_of(draft.problem.pass);
  const DataType leading = draft[leader].dtype;
  ATTNGRAPH_RETURN_IF_ERROR(each_tensor(draft, [&](const RoleRule& rule) -> Status {
    const DataType type = draft[rule.role].dtype;
    const char* wanted = wanted_type(rule.types, type, leading);
    if (wanted == nullptr) return {};
    if (rule.types == Types::kAsLeader)
      return refuse(draft, rule.role, "dtype is ", type, "; must be ", wanted, leader, ", ", leading);
    return refuse(draft, rule.role, "dtype is ", type, "; must be ", wanted);
  }));
  draft.problem.io = leading;
  return {};
}

// --- ranks ---------------------------------------------------------------------------------------

/// Slopes [heads] lie on another axis than [1, heads] and [batch, heads].
Form form_of(const Draft& draft, const RoleRule& rule) {
  if (rule.role != kAlibiSlopes && rule.role != kDalibiSlopes) return rule.form;
  const std::vector<int64_t>& dims = draft[rule.role].dims;
  const bool is_vector = dims.size() == 1 || (dims[0] == draft.problem.q_heads && dims[1] == 1);
  return is_vector ? kPerHead : rule.form;
}

Status check_rank(Draft& draft, const RoleRule& rule) {
  const std::vector<int64_t>& dims = draft[rule.role].dims;
  const size_t least = static_cast<size_t>(
      rule.role == kAlibiSlopes || rule.role == kDalibiSlopes ? kPerHead.num_axes : rule.form.num_axes);
  if (dims.size() < least || dims.size() > 4)
    return refuse(draft, rule.role, "dims have rank ", dims.size(), "; must have rank ", least,
                  least == 4 ? "" : ", or more with trailing 1s up to 4");
  const Form form = form_of(draft, rule);
  for (size_t i = static_cast<size_t>(form.num_axes); i < dims.size(); ++i)
    if (dims[i] != 1)
      return refuse(draft, rule.role, "dims[", i, "] is ", dims[i],
                    "; must be 1, as each dim after the first ", form.num_axes);
  return place_operand(draft, rule.role, form.axes);
}

Status check_ranks(Draft& draft) {
  return each_tensor(draft, [&](const RoleRule& rule) -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(check_rank(draft, rule));
    if (rule.role == leader_of(draft.problem.pass)) draft.problem.q_heads = heads(draft.problem[rule.role]);
    return {};
  });
}

// --- extents -------------------------------------------------------------------------------------

/// Keys that a paged or plain k or v holds at most.
int64_t kv_len_of(const Draft& draft, Role role) {
  const Operand& t = draft.problem[role];
  if (!draft.is_paged(role)) return len(t);
  if (draft.attributes.max_seq_len_kv) return *draft.attributes.max_seq_len_kv;
  return len(draft.problem[role == kK ? kPageTableK : kPageTableV]) * len(t);
}

Status pages_hold_the_sequences(const Draft& draft, Role role) {
  if (!draft.is_paged(role)) return {};
  const Role table = role == kK ? kPageTableK : kPageTableV;
  const int64_t page_size = len(draft.problem[role]), columns = len(draft.problem[table]);
  if (page_size == 0) return refuse(draft, role, "page size (len) is 0; must be positive");
  const auto keys = checked_mul_add(columns, page_size, 0, "keys of a row");
  if (!keys.ok()) return refuse(draft, table, keys.status().message(), "; must fit int64");
  const int64_t longest = kv_len_of(draft, role);
  if (longest >= kExtentBound)
    return refuse(draft, table, "columns * page size is ", longest, "; must be below 2^61");
  if (*keys < longest)
    return refuse(draft, table, "columns are ", columns, "; must be at least ",
                  longest / page_size + (longest % page_size != 0), ", max_seq_len_kv ", longest,
                  " / page size ", page_size, " rounded up");
  return {};
}

Status max_seq_len_is_a_length(const Draft& draft) {
  const auto& longest = draft.attributes.max_seq_len_kv;
  if (longest && (*longest < 0 || *longest >= kExtentBound))
    return refuse(draft, "max_seq_len_kv", "is ", *longest, "; must be at least 0 and below 2^61");
  for (const Role role : {kK, kV})
    if (longest && !draft.is_paged(role) && len(draft.problem[role]) != *longest)
      return refuse(draft, "max_seq_len_kv", "is ", *longest, "; must be ", len(draft.problem[role]),
                    ", the len of ", role, ", which is not paged");
  return {};
}

Status k_and_v_have_one_length(const Draft& draft) {
  const int64_t k_len = kv_len_of(draft, kK), v_len = kv_len_of(draft, kV);
  if (k_len == v_len) return {};
  return refuse(draft, kV, "len is ", v_len, "; must be ", k_len, ", the len of k (", label(draft[kK]), ')',
                draft.is_paged(kK) || draft.is_paged(kV) ? ": pages count columns * page size" : "");
}

Status heads_form_groups(const Draft& draft) {
  const int64_t q = heads(draft.problem[kQ]), kv = heads(draft.problem[kK]);
  if (kv == 0 ? q == 0 : q % kv == 0) return {};
  return refuse(draft, kQ, "heads is ", q, "; must be a multiple of ", kv, ", the heads of k (",
                label(draft[kK]), ')');
}

/// The extent that `rule` refers to.
int64_t source_extent(const Draft& draft, const AxisRule& rule) {
  if (rule.source == kK && rule.axis == kLen) return kv_len_of(draft, kK);
  return draft.problem[rule.source].extent[static_cast<size_t>(rule.axis)];
}

bool holds(const AxisRule& rule, int64_t extent, int64_t source) {
  switch (rule.kind) {
    case AxisRule::kFree:
      return true;
    case AxisRule::kOne:
      return extent == 1;
    case AxisRule::kAs:
      return extent == source;
    case AxisRule::kOneOrAs:
      return extent == 1 || extent == source;
    case AxisRule::kOneMore:
      return extent == source + 1;
  }
  return false;
}

Status check_axis(const Draft& draft, Role role, size_t axis, const AxisRule& rule) {
  // Pages are counted on axis batch, and k_and_v_have_one_length() speaks for the lengths.
  if (draft.is_paged(role) && axis == kBatch) return {};
  if (role == kV && axis == kLen) return {};
  const int64_t extent = draft.problem[role].extent[axis];
  if (rule.kind == AxisRule::kFree || rule.kind == AxisRule::kOne) {
    if (holds(rule, extent, 1)) return {};
    return refuse(draft, role, kAxisNames[axis], " is ", extent, "; must be 1");
  }
  const int64_t source = source_extent(draft, rule);
  if (holds(rule, extent, source)) return {};
  const bool one_more = rule.kind == AxisRule::kOneMore;
  return refuse(draft, role, kAxisNames[axis], " is ", extent, "; must be ",
                rule.kind == AxisRule::kOneOrAs ? "1 or " : "", one_more ? source + 1 : source,
                one_more ? ", one more than the " : ", the ", kAxisNames[static_cast<size_t>(rule.axis)],
                " of ", rule.source, " (", label(draft[rule.source]), ')');
}

Status check_axes(const Draft& draft) {
  return each_tensor(draft, [&](const RoleRule& rule) -> Status {
    for (size_t axis = 0; axis < 4; ++axis)
      ATTNGRAPH_RETURN_IF_ERROR(check_axis(draft, rule.role, axis, rule.axes[axis]));
    return {};
  });
}

Status check_merged_extents(Draft& draft) {
  ATTNGRAPH_RETURN_IF_ERROR(check_axes(draft));
  Problem& p = draft.problem;
  p.batch = batch(p[kOA]);
  p.kv_heads = p.q_heads;
  p.q_len = len(p[kOA]);
  p.v_dim = dim(p[kOA]);
  return {};
}

Status check_attention_extents(Draft& draft) {
  ATTNGRAPH_RETURN_IF_ERROR(max_seq_len_is_a_length(draft));
  for (const Role role : {kK, kV}) ATTNGRAPH_RETURN_IF_ERROR(pages_hold_the_sequences(draft, role));
  ATTNGRAPH_RETURN_IF_ERROR(k_and_v_have_one_length(draft));
  ATTNGRAPH_RETURN_IF_ERROR(check_axes(draft));
  ATTNGRAPH_RETURN_IF_ERROR(heads_form_groups(draft));
  Problem& p = draft.problem;
  p.batch = batch(p[kQ]);
  p.kv_heads = heads(p[kK]);
  p.q_len = len(p[kQ]);
  p.kv_len = kv_len_of(draft, kK);
  p.qk_dim = dim(p[kQ]);
  p.v_dim = dim(p[kV]);
  return {};
}

// --- raggedness ----------------------------------------------------------------------------------

Status check_offsets(const Draft& draft, Role role) {
  const Tensor& t = draft.offsets_of(role);
  const auto refuse_offsets = [&](const auto&... parts) {
    return refuse(draft, role, "ragged offsets (", label(t), ") ", parts...);
  };
  if (!is_integer(t.dtype)) return refuse_offsets("have dtype ", t.dtype, "; must be i32 or i64");
  if (t.ragged) return refuse_offsets("are ragged themselves; must be a plain vector");
  const int64_t entries = draft.problem.batch + 1;
  bool is_vector = !t.dims.empty() && t.dims.size() <= 4 && t.dims[0] == entries;
  for (size_t i = 1; i < t.dims.size(); ++i) is_vector &= t.dims[i] == 1;
  if (is_vector) return {};
  std::string dims;
  for (const int64_t dim : t.dims) dims += (dims.empty() ? "" : ", ") + std::to_string(dim);
  return refuse_offsets("have dims [", dims, "]; must be [", entries, "], one more than the batch of ",
                        leader_of(draft.problem.pass));
}

std::string roles_that_may_be_ragged(const Draft& draft) {
  std::string names;
  for (const RoleRule& rule : rules_of(draft.problem.pass))
    if (side_of(rule.role) != Side::kNone) names += text(names.empty() ? "" : ", ", rule.role);
  return names;
}

Status check_ragged(Draft& draft) {
  return each_tensor(draft, [&](const RoleRule& rule) -> Status {
    const Role role = rule.role;
    const auto& ragged = draft[role].ragged;
    if (!ragged) return {};
    if (side_of(role) == Side::kNone)
      return refuse(draft, role, "is ragged; must be dense: only ", roles_that_may_be_ragged(draft),
                    " may be ragged");
    if (draft.is_paged(role)) return refuse(draft, role, "is ragged and paged; must be one of the two");
    const bool is_q = side_of(role) == Side::kQ;
    if (!draft.has(is_q ? kSeqLenQ : kSeqLenKv) && !draft.has(is_q ? kCuSeqLenQ : kCuSeqLenKv))
      return refuse(draft, role, "is ragged but its side has no lengths; must come with seq_len_",
                    is_q ? "q or cu_seq_len_q" : "kv or cu_seq_len_kv");
    const Operand& t = draft.problem[role];
    if (ragged->multiplier == 0 && heads(t) != 0 && dim(t) != 0)
      return refuse(draft, role, "ragged multiplier is 0; must be positive");
    return check_offsets(draft, role);
  });
}

}  // namespace

Status check_shapes(Draft& draft) {
  ATTNGRAPH_RETURN_IF_ERROR(check_types(draft));
  ATTNGRAPH_RETURN_IF_ERROR(check_ranks(draft));
  ATTNGRAPH_RETURN_IF_ERROR(draft.problem.pass == Pass::kMerge ? check_merged_extents(draft)
                                                               : check_attention_extents(draft));
  return check_ragged(draft);
}

}  // namespace attngraph
