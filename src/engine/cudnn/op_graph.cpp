#include "engine/cudnn/op_graph.hpp"

#include <sstream>

#include "base/enum_names.hpp"

namespace attngraph {

template <>
struct EnumNames<cudnn::OpCode> {
  using enum cudnn::OpCode;
  static constexpr std::array table = {
      std::pair{kMatmul, "matmul"},
      std::pair{kAdd, "add"},
      std::pair{kSub, "sub"},
      std::pair{kMul, "mul"},
      std::pair{kDiv, "div"},
      std::pair{kMax, "max"},
      std::pair{kExp, "exp"},
      std::pair{kLog, "log"},
      std::pair{kTanh, "tanh"},
      std::pair{kTanhBackward, "tanh_backward"},
      std::pair{kCopy, "copy"},
      std::pair{kIndex, "index"},
      std::pair{kGreater, "greater"},
      std::pair{kGreaterEqual, "greater_equal"},
      std::pair{kLess, "less"},
      std::pair{kAnd, "and"},
      std::pair{kSelect, "select"},
      std::pair{kReduceAdd, "reduce_add"},
      std::pair{kReduceMax, "reduce_max"},
      std::pair{kReshape, "reshape"},
  };
};

namespace cudnn {
namespace {

void print(std::ostream& out, const std::array<int64_t, 4>& list) {
  out << '[' << list[0] << ' ' << list[1] << ' ' << list[2] << ' ' << list[3] << ']';
}

void print_tensor(std::ostream& out, const OpGraph& graph, const OpTensor& t) {
  out << t.name << ": " << t.dtype;
  if (t.place == Place::kScalar) {
    out << " = " << t.value << '\n';
    return;
  }
  out << ' ';
  print(out, t.extent);
  out << " strides ";
  print(out, t.stride);
  if (t.offsets >= 0) out << " at " << graph.tensors[static_cast<size_t>(t.offsets)].name;
  out << '\n';
}

void print_op(std::ostream& out, const OpGraph& graph, const Op& op) {
  const auto name = [&](int tensor) { return graph.tensors[static_cast<size_t>(tensor)].name; };
  const OpTensor& y = graph.tensors[static_cast<size_t>(op.y)];
  out << y.name << ' ' << y.dtype << " = " << op.code << ' ' << name(op.x);
  for (const int input : {op.b, op.t})
    if (input >= 0) out << ", " << name(input);
  if (op.axis >= 0) out << " axis " << op.axis;
  if (op.m_len >= 0) out << " m " << name(op.m_len);
  if (op.n_len >= 0) out << " n " << name(op.n_len);
  if (op.k_len >= 0) out << " k " << name(op.k_len);
  if (op.compute != DataType::kF32) out << " in " << op.compute;
  out << '\n';
}

}  // namespace

std::string describe(const OpGraph& graph) {
  std::ostringstream out;
  for (const OpTensor& tensor : graph.tensors)
    if (tensor.place != Place::kVirtual) print_tensor(out, graph, tensor);
  for (const Op& op : graph.ops) print_op(out, graph, op);
  return std::move(out).str();
}

}  // namespace cudnn
}  // namespace attngraph
