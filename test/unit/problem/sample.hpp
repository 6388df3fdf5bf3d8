#pragma once

#include <optional>
#include <string>
#include <variant>

#include "attngraph/graph.hpp"
#include "graph/fields.hpp"

namespace attngraph::test {

/// A valid graph of one node, open for one fault.
///
/// Shapes: batch 2, q_heads 4, kv_heads 2, q_len 3, kv_len 5, qk_dim 8, v_dim 6.
/// Each tensor bears the name of its role with a tick: "q'".
struct Sample {
  Graph graph;

  Port& port(Role wanted) {
    Port* found = nullptr;
    const auto visit = [&](Role role, Port& port, bool) {
      if (role == wanted) found = &port;
    };
    std::visit([&](auto& node) { ports(node, visit); }, graph.nodes[0]);
    return *found;
  }
  Tensor& operator[](Role role) { return *graph.find(*port(role)); }
  SdpaAttributes& attributes() {
    if (auto* node = std::get_if<SdpaForward>(&graph.nodes[0])) return node->attributes;
    return std::get<SdpaBackward>(graph.nodes[0]).attributes;
  }

  Tensor& add(Role role, DataType dtype, const Layout& layout) {
    port(role) = graph.tensor(std::string(name_of(role)) + "'", dtype, layout);
    return (*this)[role];
  }
  void remove(Role role) { port(role) = std::nullopt; }
  /// Sets extents and dense strides.
  void reshape(Role role, std::vector<int64_t> dims) {
    (*this)[role].strides = dense(dims).strides;
    (*this)[role].dims = std::move(dims);
  }
  /// Packs tensors by one new offsets tensor; returns its uid.
  Uid pack(std::initializer_list<Role> roles) {
    const Uid offsets = graph.vector("offsets'", DataType::kI32, 3);
    for (const Role role : roles) (*this)[role].ragged = Ragged{offsets, 1};
    return offsets;
  }
};

inline void add_io(Sample& s) {
  s.add(Role::kQ, DataType::kF16, bshd({2, 4, 3, 8}));
  s.add(Role::kK, DataType::kF16, bshd({2, 2, 5, 8}));
  s.add(Role::kV, DataType::kF16, bshd({2, 2, 5, 6}));
  s.add(Role::kO, DataType::kF16, bshd({2, 4, 3, 6}));
}

inline void add_extras(Sample& s) {
  s.add(Role::kBias, DataType::kF32, dense({1, 4, 3, 5}));
  s.add(Role::kMask, DataType::kBool, dense({2, 1, 1, 5}));
  s.add(Role::kAlibiSlopes, DataType::kF32, dense({4}));
  s.add(Role::kSink, DataType::kF32, dense({4}));
  s.add(Role::kSeqLenQ, DataType::kI32, dense({2}));
  s.add(Role::kCuSeqLenKv, DataType::kI64, dense({3}));
  s.add(Role::kDropoutSeed, DataType::kI64, dense({1}));
  s.add(Role::kDropoutOffset, DataType::kI64, dense({1, 1, 1, 1}));
  s.attributes().dropout_p = 0.25;
}

/// q, k, v -> o.
inline Sample plain_forward() {
  Sample s;
  s.graph.nodes.push_back(SdpaForward{});
  add_io(s);
  return s;
}

/// Every tensor of a forward except page tables.
inline Sample forward() {
  Sample s = plain_forward();
  add_extras(s);
  s.add(Role::kStats, DataType::kF32, stats_padded(2, 4, 3));
  return s;
}

/// Every tensor of a backward.
inline Sample backward() {
  Sample s;
  s.graph.nodes.push_back(SdpaBackward{});
  add_io(s);
  add_extras(s);
  s.add(Role::kDo, DataType::kF16, bshd({2, 4, 3, 6}));
  s.add(Role::kStats, DataType::kF32, dense({2, 4, 3}));
  s.add(Role::kDq, DataType::kF16, bshd({2, 4, 3, 8}));
  s.add(Role::kDk, DataType::kF16, bshd({2, 2, 5, 8}));
  s.add(Role::kDv, DataType::kF16, bshd({2, 2, 5, 6}));
  s.add(Role::kDbias, DataType::kBf16, dense({1, 4, 3, 5}));
  s.add(Role::kDsink, DataType::kF32, dense({4}));
  s.add(Role::kDalibiSlopes, DataType::kF32, dense({1, 4}));
  return s;
}

/// A forward with k and v in 7 pages of 4 tokens, 3 columns a sequence: at most 10 keys.
inline Sample paged() {
  Sample s = plain_forward();
  s.reshape(Role::kK, {7, 2, 4, 8});
  s.reshape(Role::kV, {7, 2, 4, 6});
  s.add(Role::kPageTableK, DataType::kI32, dense({2, 3}));
  s.add(Role::kPageTableV, DataType::kI32, dense({2, 3}));
  s.attributes().max_seq_len_kv = 10;
  return s;
}

/// Every tensor of a merge.
inline Sample merge() {
  Sample s;
  s.graph.nodes.push_back(MergePartials{});
  for (const Role role : {Role::kOA, Role::kOB, Role::kO}) s.add(role, DataType::kF16, bshd({2, 4, 3, 6}));
  for (const Role role : {Role::kStatsA, Role::kStatsB, Role::kStats})
    s.add(role, DataType::kF32, stats_padded(2, 4, 3));
  s.add(Role::kCuSeqLenQ, DataType::kI64, dense({3}));
  return s;
}

/// A forward whose tensors are all ragged.
inline Sample packed() {
  Sample s = plain_forward();
  s.add(Role::kStats, DataType::kF32, stats_token_major(2, 4, 3));
  s.add(Role::kSeqLenQ, DataType::kI32, dense({2}));
  s.add(Role::kSeqLenKv, DataType::kI32, dense({2}));
  s.pack({Role::kQ, Role::kO, Role::kStats});
  s.pack({Role::kK, Role::kV});
  return s;
}

}  // namespace attngraph::test
