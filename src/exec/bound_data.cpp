#include "exec/bound_data.hpp"

#include "base/message.hpp"
#include "problem/host_rows.hpp"

namespace attngraph {
namespace {

class DataChecker {
 public:
  DataChecker(const PlanState& state, const ProgramNode& node, const Buffers& buffers)
      : state_(state), node_(node), p_(node.problem), buffers_(buffers) {}

  Status run() const {
    ATTNGRAPH_RETURN_IF_ERROR(lengths(Role::kSeqLenQ, p_.q_len));
    ATTNGRAPH_RETURN_IF_ERROR(lengths(Role::kSeqLenKv, p_.kv_len));
    ATTNGRAPH_RETURN_IF_ERROR(cu_lengths(Role::kCuSeqLenQ, p_.q_len));
    ATTNGRAPH_RETURN_IF_ERROR(cu_lengths(Role::kCuSeqLenKv, p_.kv_len));
    for (size_t i = 0; i < kNumRoles; ++i)
      if (p_.operands[i].ragged) ATTNGRAPH_RETURN_IF_ERROR(offsets(static_cast<Role>(i)));
    ATTNGRAPH_RETURN_IF_ERROR(pages(Role::kPageTableK, p_[Role::kK], buffers_.bounds.k_pages));
    return pages(Role::kPageTableV, p_[Role::kV], buffers_.bounds.v_pages);
  }

 private:
  int64_t num_sequences() const { return buffers_.bounds.batch; }

  int64_t entry(Role role, int64_t index) const {
    return read_int(buffers_[role], p_[role].dtype, index * batch_stride(p_[role]));
  }

  /// Of checked lengths.
  int64_t length(Side side, int64_t b) const {
    const bool is_q = side == Side::kQ;
    const Role plain = is_q ? Role::kSeqLenQ : Role::kSeqLenKv;
    const Role cumulative = is_q ? Role::kCuSeqLenQ : Role::kCuSeqLenKv;
    if (p_.has(plain)) return entry(plain, b);
    if (p_.has(cumulative)) return entry(cumulative, b + 1) - entry(cumulative, b);
    return is_q ? p_.q_len : p_.kv_len;
  }

  Status lengths(Role role, int64_t limit) const {
    if (!p_.has(role)) return {};
    for (int64_t b = 0; b < num_sequences(); ++b) {
      const int64_t value = entry(role, b);
      if (value < 0) return bad_data(role, b, value, "; must not be negative");
      if (value > limit) return bad_data(role, b, value, "; the longest declared is ", limit);
    }
    return {};
  }

  Status cu_lengths(Role role, int64_t limit) const {
    if (!p_.has(role)) return {};
    for (int64_t b = 0; b <= num_sequences(); ++b) {
      const int64_t value = entry(role, b), before = b == 0 ? value : entry(role, b - 1);
      if (value < 0) return bad_data(role, b, value, "; must not be negative");
      if (value < before) return bad_data(role, b, value, " after ", before, "; must not decrease");
      if (value - before > limit)
        return bad_data(role, b, value, " after ", before, "; the longest declared is ", limit);
    }
    return {};
  }

  Status offsets(Role role) const {
    const Operand& t = p_[role];
    const std::byte* data = buffers_.offsets[static_cast<size_t>(role)];
    const int64_t slots = buffers_.bounds.slots(side_of(role));
    int64_t before = 0;
    for (int64_t b = 0; b <= num_sequences(); ++b) {
      const int64_t value = read_int(data, t.offsets_dtype, b * t.offsets_stride);
      if (value < 0) return bad_offset(role, b, value, "; must not be negative");
      if (value < before) return bad_offset(role, b, value, " after ", before, "; must not decrease");
      before = value;
      if (b == num_sequences()) break;  // the last entry begins no sequence
      const int64_t rows = length(side_of(role), b), inside = rows_inside(t, slots, value);
      if (rows > inside)
        return bad_offset(role, b, value, " for a sequence of ", rows, " rows; ", inside,
                          " rows lie within the ", slots, " token slots of ", role);
    }
    return {};
  }

  Status pages(Role role, const Operand& container, int64_t num_pages) const {
    if (!p_.has(role)) return {};
    const int64_t page_size = len(container);
    for (int64_t b = 0; b < num_sequences(); ++b)
      for (int64_t column = 0; column * page_size < length(Side::kKv, b); ++column) {
        const int64_t at = b * batch_stride(p_[role]) + column * len_stride(p_[role]);
        const int64_t page = read_int(buffers_[role], p_[role].dtype, at);
        if (page < 0 || page >= num_pages)
          return bad(node_.slots.data[static_cast<size_t>(role)], "entry [", b, ", ", column, "] is ", page,
                     "; the container has pages 0 to ", num_pages - 1);
      }
    return {};
  }

  template <class... Parts>
  Status bad(int slot, const Parts&... parts) const {
    const size_t index = static_cast<size_t>(slot);
    return fail(Code::kBadBinding, describe_slot(state_.core->slots[index], state_.names[index]), ": ",
                parts...);
  }
  template <class... Parts>
  Status bad_data(Role role, int64_t index, int64_t value, const Parts&... parts) const {
    return bad(node_.slots.data[static_cast<size_t>(role)], "entry ", index, " is ", value, parts...);
  }
  template <class... Parts>
  Status bad_offset(Role role, int64_t index, int64_t value, const Parts&... parts) const {
    return bad(node_.slots.offsets[static_cast<size_t>(role)], "entry ", index, " is ", value, parts...);
  }

  const PlanState& state_;
  const ProgramNode& node_;
  const Problem& p_;
  const Buffers& buffers_;
};

}  // namespace

Status check_bound_data(const PlanState& state, const ProgramNode& node, const Buffers& buffers) {
  return DataChecker(state, node, buffers).run();
}

}  // namespace attngraph
