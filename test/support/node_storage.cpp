#include "support/node_storage.hpp"

#include <algorithm>
#include <cstring>

#include "base/element.hpp"
#include "plan/slices.hpp"
#include "problem/layout.hpp"

namespace attngraph::test {
namespace {

bool is_real(DataType dtype) {
  return dtype == DataType::kF32 || dtype == DataType::kF16 || dtype == DataType::kBf16;
}

std::vector<std::byte> int_bytes(DataType dtype, const std::vector<int64_t>& values) {
  const size_t size = static_cast<size_t>(element_bytes(dtype));
  std::vector<std::byte> bytes(values.size() * size);  // little-endian: the low bytes come first
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(bytes.data() + i * size, &values[i], size);
  return bytes;
}

}  // namespace

NodeStorage::NodeStorage(const Problem& problem) : problem_(problem) {
  for (size_t i = 0; i < kNumRoles; ++i) {
    const Operand& t = problem.operands[i];
    if (!t.present) continue;
    const size_t bytes = static_cast<size_t>(footprint_bytes(problem, static_cast<Role>(i)));
    data_[i].assign(bytes, is_real(t.dtype) ? std::byte{0xFF} : std::byte{0});
  }
}

int64_t NodeStorage::count(Role role) const { return footprint_elems(problem_, role); }

void NodeStorage::set(Role role, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    write_real(data_[static_cast<size_t>(role)].data(), problem_[role].dtype, static_cast<int64_t>(i),
               values[i]);
}

void NodeStorage::set_ints(Role role, const std::vector<int64_t>& values) {
  data_[static_cast<size_t>(role)] = int_bytes(problem_[role].dtype, values);
}

void NodeStorage::set_offsets(Side side, const std::vector<int64_t>& offsets) {
  for (size_t i = 0; i < kNumRoles; ++i)
    if (problem_.operands[i].ragged && side_of(static_cast<Role>(i)) == side)
      offsets_[i] = int_bytes(problem_.operands[i].offsets_dtype, offsets);
}

std::vector<double> NodeStorage::get(Role role) const {
  std::vector<double> values(static_cast<size_t>(count(role)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = read_real(bytes(role).data(), problem_[role].dtype, static_cast<int64_t>(i));
  return values;
}

void NodeStorage::copy_from(const NodeStorage& other) {
  for (size_t i = 0; i < kNumRoles; ++i) {
    const Operand& t = problem_.operands[i];
    const Role side = side_of(static_cast<Role>(i)) == Side::kQ ? Role::kQ : Role::kK;
    if (t.ragged) offsets_[i] = other.offsets_[static_cast<size_t>(side)];
    if (t.present && other.problem_.operands[i].present) data_[i] = other.data_[i];
  }
}

Buffers NodeStorage::buffers() {
  Buffers buffers;
  for (size_t i = 0; i < kNumRoles; ++i) {
    buffers.data[i] = data_[i].data();
    buffers.offsets[i] = offsets_[i].data();
  }
  buffers.bounds = declared_bounds(problem_);
  return buffers;
}

Status NodeStorage::run(const Engine& engine, const SliceShape& shape, std::byte poison,
                        const Target& target) {
  WorkspaceLayout layout;
  const auto plan = engine.plan(problem_, target, shape, layout);
  if (!plan.ok()) return plan.status();
  if (Status placed = layout.place(); !placed.ok()) return placed;
  struct alignas(kWorkspaceAlign) Block {
    std::byte bytes[kWorkspaceAlign];
  };
  std::vector<Block> memory(static_cast<size_t>(layout.bytes() / kWorkspaceAlign + 1));
  std::memset(memory.data(), std::to_integer<int>(poison), memory.size() * sizeof(Block));
  const PlacedWorkspace workspace{memory.data()->bytes, &layout};

  const SliceCounts counts = count_slices(shape, problem_.batch, problem_.kv_heads);
  for (int64_t index = 0; index < counts.total(); ++index) {
    const Slice slice = slice_at(index, counts, shape, problem_.batch, problem_.kv_heads);
    if (Status status = (*plan)->run(buffers(), slice, workspace, nullptr); !status.ok()) return status;
  }
  return {};
}

}  // namespace attngraph::test
