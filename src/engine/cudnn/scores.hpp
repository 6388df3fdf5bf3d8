#pragma once

#include <array>
#include <initializer_list>
#include <string>

#include "engine/cudnn/op_graph.hpp"
#include "problem/problem.hpp"

namespace attngraph::cudnn {

/// Builds an operation graph: tensors and the operations that both passes have.
class Lowering {
 public:
  using Four = std::array<int64_t, 4>;

  explicit Lowering(const Problem& problem);

  // --- tensors ------------------------------------------------------------------------------------
  int operand(Role role);
  /// A user's k or v with the axes len and dim swapped.
  int transposed(Role role);
  int scalar(std::string name, double value, DataType dtype = DataType::kF32);
  /// A tensor in the workspace. Ragged when `offsets` is an index.
  int scratch(Scratch scratch, std::string name, DataType dtype, const Four& extent, const Four& stride,
              int offsets = -1);
  int virtual_tensor(std::string name, const Four& extent, const Four& stride,
                     DataType dtype = DataType::kF32);
  /// Element offsets of the sequences of a ragged tensor.
  int offsets(Role role);
  int packed_offsets();
  int q_len();   ///< -1 without lengths
  int kv_len();  ///< -1 without lengths

  // --- operations ---------------------------------------------------------------------------------
  /// y of the shape of x, or of b when x has fewer elements.
  int pointwise(OpCode code, std::string name, int x, int b = -1, DataType dtype = DataType::kF32,
                DataType compute = DataType::kF32);
  /// Scores where `keep` is true, else -inf.
  int select(std::string name, int scores, int keep);
  /// Position along an axis of the scores.
  int index(std::string name, int axis, int scores, DataType compute = DataType::kF32);
  int reduce(OpCode code, std::string name, int x, const Four& extent);
  void op(const Op& op) { graph_.ops.push_back(op); }

  /// q k^T times scale, softcap, bias and slopes, with padding masked.
  int scores();
  /// Scores outside the band become -inf.
  int banded(int scores);
  /// What softcap's derivative is taken at; -1 without softcap.
  int softcap_argument() const { return softcap_argument_; }
  int scale() const { return scale_; }

  const Problem& problem() const { return p_; }
  OpTensor& tensor(int index) { return graph_.tensors[static_cast<size_t>(index)]; }
  OpGraph take() && { return std::move(graph_); }

  const Four score_extent, score_stride;  ///< [batch, q_heads, q_len, kv_len]
  const Four row_extent, row_stride;      ///< [batch, q_heads, q_len, 1]

 private:
  int add(OpTensor tensor);
  int lengths(Scratch scratch, const char* name);
  int padded(int scores);
  int right_band(int scores, int64_t right);
  int left_band(int scores, int64_t left);
  int bias();  ///< -1: none
  int with_slopes(int scores);

  const Problem& p_;
  OpGraph graph_;
  std::array<int, kNumRoles> operands_, offsets_;
  int q_len_ = -1, kv_len_ = -1, packed_offsets_ = -1, scale_ = -1, softcap_argument_ = -1;
};

}  // namespace attngraph::cudnn
