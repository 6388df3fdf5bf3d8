#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "attngraph/types.hpp"
#include "graph/role.hpp"

namespace attngraph::cudnn {

/// Memory that the engine books beside the user's tensors; up to kStats its kernels write it before cuDNN
/// runs.
enum class Scratch : uint8_t {
  kQLen,           ///< int32 a sequence
  kKvLen,          ///< int32 a sequence
  kPackedOffsets,  ///< where each sequence begins in kStats and kRowSums, when they are packed
  kBias,           ///< own_bias()
  kStats,          ///< backward's own stats: base e, +inf for a row that sees nothing
  kRowSums,        ///< sum over v_dim of do * o
  kDqSums,         ///< dq in float32
  kDkByQHead,      ///< dk before the sum over a group's query heads
  kDvByQHead,
  kDq,  ///< a gradient that nobody asked for
  kDk,
  kDv,
  kDbias,  ///< dbias of a slice in the io type
};
inline constexpr size_t kNumScratch = 13;

/// What a tensor of the operation graph reads or writes when the plan runs.
enum class Place : uint8_t {
  kVirtual,  ///< never in memory
  kOperand,  ///< the user's tensor of `role`
  kOffsets,  ///< element offsets of the sequences of `role`, made by the engine
  kScratch,
  kScalar,  ///< `value`, read on the host
};

/// One tensor of an operation graph.
///
/// Units: elements; extents and strides of batch, heads, len, dim.
struct OpTensor {
  std::string name;
  DataType dtype = DataType::kF32;
  std::array<int64_t, 4> extent = {1, 1, 1, 1}, stride = {1, 1, 1, 1};
  Place place = Place::kVirtual;
  Role role = Role::kQ;
  Scratch scratch = Scratch::kQLen;
  double value = 0;
  int offsets = -1;  ///< tensor of element offsets, int64 [batch + 1, 1, 1, 1]; -1: not ragged

  friend bool operator==(const OpTensor&, const OpTensor&) = default;
};

enum class OpCode : uint8_t {
  kMatmul,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,
  kExp,
  kLog,
  kTanh,
  kTanhBackward,  ///< x: gradient, b: tanh's argument
  kCopy,
  kIndex,  ///< position along `axis` in the shape of x
  kGreater,
  kGreaterEqual,
  kLess,
  kAnd,
  kSelect,  ///< x where `t` is true, else b
  kReduceAdd,
  kReduceMax,
  kReshape,
};

/// One operation: indices into the graph's tensors, -1 for none.
struct Op {
  OpCode code = OpCode::kMatmul;
  DataType compute = DataType::kF32;
  int x = -1, b = -1, t = -1, y = -1;
  int axis = -1;
  int m_len = -1, n_len = -1, k_len = -1;  ///< matmul: lengths that cut its sizes

  friend bool operator==(const Op&, const Op&) = default;
};

/// What cuDNN is asked for: tensors, each with its index as unique id, and operations in data order.
struct OpGraph {
  std::vector<OpTensor> tensors;
  std::vector<Op> ops;

  friend bool operator==(const OpGraph&, const OpGraph&) = default;
};

/// The tensors that are in memory, then the operations, one a line.
std::string describe(const OpGraph& graph);

}  // namespace attngraph::cudnn
