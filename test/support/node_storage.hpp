#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/engine.hpp"

namespace attngraph::test {

/// Host memory of every tensor of one problem, exactly its footprint. Floating-point storage starts
/// as NaN, all other storage as 0.
///
/// Units: values are in memory order from the tensor's base pointer.
class NodeStorage {
 public:
  explicit NodeStorage(const Problem& problem);

  void set(Role role, const std::vector<double>& values);
  void set_ints(Role role, const std::vector<int64_t>& values);
  /// The offsets of every ragged tensor of the side.
  void set_offsets(Side side, const std::vector<int64_t>& offsets);
  std::vector<double> get(Role role) const;
  const std::vector<std::byte>& bytes(Role role) const { return data_[static_cast<size_t>(role)]; }
  int64_t count(Role role) const;
  /// Takes over what both problems have, and the offsets of each side: a forward's for its backward.
  void copy_from(const NodeStorage& other);

  /// Plans and runs the problem in slices of up to `shape`, the workspace filled with `poison`.
  Status run(const Engine& engine, const SliceShape& shape, std::byte poison = std::byte{0xFF},
             const Target& target = Target::cpu(1));
  Status run(const Engine& engine) { return run(engine, {problem_.batch, problem_.kv_heads}); }

 private:
  Buffers buffers();

  Problem problem_;
  std::array<std::vector<std::byte>, kNumRoles> data_, offsets_;
};

}  // namespace attngraph::test
