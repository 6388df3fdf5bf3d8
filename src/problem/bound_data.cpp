#include "problem/bound_data.hpp"

namespace attngraph {
namespace {

class Builder {
 public:
  Builder(const Problem& problem, const Buffers& buffers) : p_(problem), buffers_(buffers) {}

  EntryChecks build() {
    add_lengths(EntryKind::kLength, Role::kSeqLenQ, p_.q_len);
    add_lengths(EntryKind::kLength, Role::kSeqLenKv, p_.kv_len);
    add_lengths(EntryKind::kCuLength, Role::kCuSeqLenQ, p_.q_len);
    add_lengths(EntryKind::kCuLength, Role::kCuSeqLenKv, p_.kv_len);
    for (size_t i = 0; i < kNumRoles; ++i)
      if (p_.operands[i].ragged) add_offsets(static_cast<Role>(i));
    add_pages(Role::kPageTableK, p_[Role::kK], buffers_.bounds.k_pages);
    add_pages(Role::kPageTableV, p_[Role::kV], buffers_.bounds.v_pages);
    return checks_;
  }

 private:
  EntryList list_of(Role role) const {
    if (!p_.has(role)) return {};
    return {buffers_[role], p_[role].dtype, batch_stride(p_[role])};
  }

  SideLengths lengths_of(Side side) const {
    if (side == Side::kQ) return {list_of(Role::kSeqLenQ), list_of(Role::kCuSeqLenQ), p_.q_len};
    return {list_of(Role::kSeqLenKv), list_of(Role::kCuSeqLenKv), p_.kv_len};
  }

  EntryCheck& add(EntryKind kind, Role role) {
    EntryCheck& check = checks_.list[checks_.count++];
    check.kind = kind, check.role = role;
    return check;
  }

  void add_lengths(EntryKind kind, Role role, int64_t longest) {
    if (!p_.has(role)) return;
    EntryCheck& check = add(kind, role);
    check.list = list_of(role);
    check.count = buffers_.bounds.batch + (kind == EntryKind::kCuLength ? 1 : 0);
    check.limit = longest;
  }

  void add_offsets(Role role) {
    const Operand& t = p_[role];
    EntryCheck& check = add(EntryKind::kOffset, role);
    check.list = {buffers_.offsets[static_cast<size_t>(role)], t.offsets_dtype, t.offsets_stride};
    check.count = buffers_.bounds.batch + 1;
    check.limit = buffers_.bounds.slots(side_of(role));
    check.lengths = lengths_of(side_of(role));
    check.rows = ragged_rows(t);
    const bool was_written = role == Role::kStats || role == Role::kO;
    check.disjoint = (was_written || is_output(p_, role)) && len_stride(t) > 0 && t.multiplier > 0;
  }

  void add_pages(Role role, const Operand& container, int64_t num_pages) {
    if (!p_.has(role)) return;
    EntryCheck& check = add(EntryKind::kPage, role);
    check.list = list_of(role);
    check.columns = len(p_[role]), check.column_stride = len_stride(p_[role]);
    check.count = buffers_.bounds.batch * check.columns;
    check.limit = num_pages;
    check.lengths = lengths_of(Side::kKv);
    check.page_size = len(container);
  }

  const Problem& p_;
  const Buffers& buffers_;
  EntryChecks checks_;
};

}  // namespace

EntryChecks entry_checks(const Problem& problem, const Buffers& buffers) {
  return Builder(problem, buffers).build();
}

}  // namespace attngraph
