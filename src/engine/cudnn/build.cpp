#include "engine/cudnn/build.hpp"

#include <algorithm>
#include <array>

#include "base/message.hpp"

namespace attngraph::cudnn {
namespace {

cudnnDataType_t type_of(DataType type) {
  switch (type) {
    case DataType::kF16:
      return CUDNN_DATA_HALF;
    case DataType::kBf16:
      return CUDNN_DATA_BFLOAT16;
    case DataType::kI32:
      return CUDNN_DATA_INT32;
    case DataType::kI64:
      return CUDNN_DATA_INT64;
    case DataType::kBool:
      return CUDNN_DATA_BOOLEAN;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

/// The mode of a pointwise operation. Reductions, products and reshapes have descriptors of their own.
cudnnPointwiseMode_t mode_of(OpCode code) {
  switch (code) {
    case OpCode::kAdd:
      return CUDNN_POINTWISE_ADD;
    case OpCode::kSub:
      return CUDNN_POINTWISE_SUB;
    case OpCode::kMul:
      return CUDNN_POINTWISE_MUL;
    case OpCode::kDiv:
      return CUDNN_POINTWISE_DIV;
    case OpCode::kMax:
      return CUDNN_POINTWISE_MAX;
    case OpCode::kExp:
      return CUDNN_POINTWISE_EXP;
    case OpCode::kLog:
      return CUDNN_POINTWISE_LOG;
    case OpCode::kTanh:
      return CUDNN_POINTWISE_TANH_FWD;
    case OpCode::kTanhBackward:
      return CUDNN_POINTWISE_TANH_BWD;
    case OpCode::kIndex:
      return CUDNN_POINTWISE_GEN_INDEX;
    case OpCode::kGreater:
      return CUDNN_POINTWISE_CMP_GT;
    case OpCode::kGreaterEqual:
      return CUDNN_POINTWISE_CMP_GE;
    case OpCode::kLess:
      return CUDNN_POINTWISE_CMP_LT;
    case OpCode::kAnd:
      return CUDNN_POINTWISE_LOGICAL_AND;
    case OpCode::kSelect:
      return CUDNN_POINTWISE_BINARY_SELECT;
    default:
      return CUDNN_POINTWISE_IDENTITY;
  }
}

/// "engine 8, knob 24: 31" of a configuration.
std::string engine_text(const Library& library, const Descriptor& config) {
  constexpr size_t kMostKnobs = 32;
  std::vector<Descriptor> engine, choices;
  engine.emplace_back(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine");
  if (const auto count = config.get(CUDNN_ATTR_ENGINECFG_ENGINE, engine); !count.ok())
    return "engine unknown";
  const auto index = engine.front().get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  std::string line = text("engine ", index.ok() ? *index : -1);
  for (size_t i = 0; i < kMostKnobs; ++i)
    choices.emplace_back(library, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "a knob choice");
  const auto count = config.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, choices);
  for (size_t i = 0; count.ok() && i < static_cast<size_t>(*count); ++i) {
    const auto knob = choices[i].get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
    const auto value = choices[i].get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    if (knob.ok() && value.ok()) line += text(", knob ", static_cast<int>(*knob), ": ", *value);
  }
  return line;
}

}  // namespace

Status BackendGraph::add_tensor(const Library& library, const OpGraph& graph, size_t index) {
  constexpr int64_t kAlignment = 16;
  const OpTensor& t = graph.tensors[index];
  Descriptor& d = tensors_.emplace_back(library, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor " + t.name);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(t.dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const int64_t>(t.extent))
      .set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const int64_t>(t.stride))
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, unique_id(index))
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.place == Place::kVirtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, t.place == Place::kScalar);
  if (t.offsets >= 0) d.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, tensors_[static_cast<size_t>(t.offsets)]);
  return d.finalize().status();
}

Descriptor& BackendGraph::add_op(const Library& library, cudnnBackendDescriptorType_t type,
                                 const std::string& name) {
  return ops_.emplace_back(library, type, "operation " + name);
}

Descriptor& BackendGraph::add_mode(const Library& library, cudnnBackendDescriptorType_t type,
                                   const std::string& name) {
  return modes_.emplace_back(library, type, "the mode of " + name);
}

Status BackendGraph::add_matmul(const Library& library, const Op& op, const std::string& name) {
  Descriptor& mode = add_mode(library, CUDNN_BACKEND_MATMUL_DESCRIPTOR, name);
  mode.set(CUDNN_ATTR_MATMUL_COMP_TYPE, type_of(op.compute));
  ATTNGRAPH_RETURN_IF_ERROR(mode.finalize().status());
  Descriptor& d = add_op(library, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, name);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, mode);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(op.x)).set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(op.b));
  d.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(op.y));
  if (op.m_len >= 0) d.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, tensor(op.m_len));
  if (op.n_len >= 0) d.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, tensor(op.n_len));
  if (op.k_len >= 0) d.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, tensor(op.k_len));
  return d.finalize().status();
}

Status BackendGraph::add_reduction(const Library& library, const Op& op, const std::string& name) {
  Descriptor& mode = add_mode(library, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, name);
  mode.set(CUDNN_ATTR_REDUCTION_OPERATOR,
           op.code == OpCode::kReduceAdd ? CUDNN_REDUCE_TENSOR_ADD : CUDNN_REDUCE_TENSOR_MAX);
  mode.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, type_of(op.compute));
  ATTNGRAPH_RETURN_IF_ERROR(mode.finalize().status());
  Descriptor& d = add_op(library, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, name);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, mode);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensor(op.x));
  return d.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensor(op.y)).finalize().status();
}

Status BackendGraph::add_reshape(const Library& library, const Op& op, const std::string& name) {
  Descriptor& d = add_op(library, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, name);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensor(op.x));
  return d.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensor(op.y)).finalize().status();
}

Status BackendGraph::add_pointwise(const Library& library, const Op& op, const std::string& name) {
  Descriptor& mode = add_mode(library, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, name);
  mode.set(CUDNN_ATTR_POINTWISE_MODE, mode_of(op.code))
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, type_of(op.compute));
  if (op.axis >= 0) mode.set(CUDNN_ATTR_POINTWISE_AXIS, int64_t{op.axis});
  ATTNGRAPH_RETURN_IF_ERROR(mode.finalize().status());
  Descriptor& d = add_op(library, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, name);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode);
  if (op.code == OpCode::kTanhBackward) {
    d.set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, tensor(op.x));
    d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(op.b));
    return d.set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, tensor(op.y)).finalize().status();
  }
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(op.x));
  if (op.b >= 0) d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(op.b));
  if (op.t >= 0) d.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensor(op.t));
  return d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor(op.y)).finalize().status();
}

Status BackendGraph::add(const Library& library, const Op& op, const std::string& name) {
  switch (op.code) {
    case OpCode::kMatmul:
      return add_matmul(library, op, name);
    case OpCode::kReduceAdd:
    case OpCode::kReduceMax:
      return add_reduction(library, op, name);
    case OpCode::kReshape:
      return add_reshape(library, op, name);
    default:
      return add_pointwise(library, op, name);
  }
}

Result<BackendGraph> BackendGraph::make(const Library& library, const OpGraph& graph, cudnnHandle_t handle) {
  BackendGraph made(library);
  // A descriptor may name others, so none moves once it is made.
  made.tensors_.reserve(graph.tensors.size());
  made.modes_.reserve(graph.ops.size());
  made.ops_.reserve(graph.ops.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    ATTNGRAPH_RETURN_IF_ERROR(made.add_tensor(library, graph, i));
  for (const Op& op : graph.ops)
    ATTNGRAPH_RETURN_IF_ERROR(made.add(library, op, graph.tensors[static_cast<size_t>(op.y)].name));
  made.graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, made.ops_);
  if (handle != nullptr) made.graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  ATTNGRAPH_RETURN_IF_ERROR(made.graph_.finalize().status());
  return made;
}

Status Proposals::ask(cudnnBackendHeurMode_t mode) {
  constexpr size_t kMostConfigs = 8;  // heuristics list the promising ones first
  Descriptor heuristics(*library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the heuristics");
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_.descriptor())
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  ATTNGRAPH_RETURN_IF_ERROR(heuristics.finalize().status());
  std::vector<Descriptor> found;
  for (size_t i = 0; i < kMostConfigs; ++i)
    found.emplace_back(*library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine configuration");
  const auto count = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, found);
  if (!count.ok()) return count.status();
  for (size_t i = 0; i < static_cast<size_t>(*count); ++i) {
    std::string engine = engine_text(*library_, found[i]);
    const bool is_known = std::any_of(configs_.begin(), configs_.end(),
                                      [&](const Config& config) { return config.engine == engine; });
    if (!is_known) configs_.push_back({std::move(found[i]), std::move(engine)});
  }
  return {};
}

Result<Proposals> Proposals::make(const Library& library, const OpGraph& graph, cudnnHandle_t handle) {
  auto backend = BackendGraph::make(library, graph, handle);
  if (!backend.ok()) return backend.status();
  return Proposals(library, std::move(*backend), handle);
}

bool Proposals::ask_next() {
  constexpr std::array kModes = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
  if (num_asked_ == kModes.size()) return false;
  note(ask(kModes[num_asked_++]));
  return true;
}

void Proposals::note(const Status& status) {
  if (status.ok()) return;
  if (status.code() != Code::kUnsupported) code_ = status.code();
  reasons_ += (reasons_.empty() ? "" : "; ") + status.message();
}

Status Proposals::refusal(const char* what) const {
  return fail(code_, what, reasons_.empty() ? "" : " (", reasons_, reasons_.empty() ? "" : ")",
              "; must have one");
}

Result<int64_t> Proposals::count() {
  while (ask_next()) continue;
  if (configs_.empty()) return refusal("cudnn heuristics: have no engine");
  return static_cast<int64_t>(configs_.size());
}

Result<BuiltPlan> Proposals::build(const Config& config) const {
  Descriptor plan(*library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "an execution plan");
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.descriptor)
      .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
  ATTNGRAPH_RETURN_IF_ERROR(plan.finalize().status());
  const auto bytes = plan.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (!bytes.ok()) return bytes.status();
  return BuiltPlan{std::move(plan), *bytes, config.engine};
}

Result<BuiltPlan> Proposals::build(int64_t index) {
  const auto known = count();
  if (!known.ok()) return known.status();
  if (index >= *known)
    return fail(Code::kUnsupported, "cudnn heuristics: have ", *known, " engines; must have more than ",
                index);
  return build(configs_[static_cast<size_t>(index)]);
}

Result<BuiltPlan> Proposals::build_first() {
  for (size_t next = 0; next < configs_.size() || ask_next();) {
    if (next == configs_.size()) continue;
    auto built = build(configs_[next++]);
    if (built.ok()) return built;
    note(built.status());
  }
  return refusal(configs_.empty() ? "cudnn heuristics: have no engine" : "cudnn: builds no plan");
}

}  // namespace attngraph::cudnn
