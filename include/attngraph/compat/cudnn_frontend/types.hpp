#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "attngraph/status.hpp"
#include "attngraph/types.hpp"

// The API that these names follow.
#define CUDNN_FRONTEND_MAJOR_VERSION 1
#define CUDNN_FRONTEND_MINOR_VERSION 23
#define CUDNN_FRONTEND_PATCH_VERSION 0
#define CUDNN_FRONTEND_VERSION 12300

struct cudnnContext;  // what a cudnnHandle_t points to

/// Names of cudnn-frontend, in an inline namespace: a library in the same process that was built with
/// cudnn-frontend itself has other symbols.
namespace cudnn_frontend {
inline namespace attngraph_compat {

enum class [[nodiscard]] error_code_t{OK,
                                      ATTRIBUTE_NOT_SET,
                                      SHAPE_DEDUCTION_FAILED,
                                      INVALID_TENSOR_NAME,
                                      INVALID_VARIANT_PACK,
                                      GRAPH_NOT_SUPPORTED,
                                      GRAPH_EXECUTION_PLAN_CREATION_FAILED,
                                      GRAPH_EXECUTION_FAILED,
                                      HEURISTIC_QUERY_FAILED,
                                      UNSUPPORTED_GRAPH_FORMAT,
                                      CUDA_API_FAILED,
                                      CUDNN_BACKEND_API_FAILED,
                                      INVALID_CUDA_DEVICE,
                                      HANDLE_ERROR,
                                      INVALID_VALUE,
                                      NVRTC_COMPILATION_FAILED};

/// A code and the text of attngraph's Status.
struct [[nodiscard]] error_object {
  error_code_t code = error_code_t::OK;
  std::string err_msg;

  error_object() = default;
  error_object(error_code_t error, std::string message) : code(error), err_msg(std::move(message)) {}

  error_code_t get_code() const { return code; }
  std::string get_message() const { return err_msg; }
  bool is_good() const { return code == error_code_t::OK; }
  bool is_bad() const { return !is_good(); }
  bool operator==(error_code_t other) const { return code == other; }
  bool operator!=(error_code_t other) const { return code != other; }
};
using error_t = error_object;

inline std::ostream& operator<<(std::ostream& out, error_code_t code) {
  return out << static_cast<int>(code);
}
inline std::ostream& operator<<(std::ostream& out, const error_object& error) {
  return out << error.code << ' ' << error.err_msg;
}

enum class DataType_t {
  NOT_SET,
  FLOAT,
  DOUBLE,
  HALF,
  INT8,
  INT32,
  INT8x4,
  UINT8,
  UINT8x4,
  INT8x32,
  BFLOAT16,
  INT64,
  BOOLEAN,
  FP8_E4M3,
  FP8_E5M2,
  FAST_FLOAT_FOR_FP8,
  FP8_E8M0,
  FP4_E2M1,
  INT4,
  COMPLEX_FP32,
  COMPLEX_FP64
};

enum class HeurMode_t { A, B, FALLBACK, OPENSOURCE };
enum class BuildPlanPolicy_t { HEURISTICS_CHOICE, ALL };
enum class TensorReordering_t { NONE, INT8x32, F16x16, F8_128x4 };
enum class DiagonalAlignment_t { TOP_LEFT, BOTTOM_RIGHT };
enum class AttentionImplementation_t { AUTO, COMPOSITE, UNIFIED };
enum class BehaviorNote_t {
  NOT_SET,
  RUNTIME_COMPILATION,
  REQUIRES_FILTER_INT8x32_REORDER,
  REQUIRES_BIAS_INT8x32_REORDER,
  SUPPORTS_CUDA_GRAPH_NATIVE_API,
  CUBLASLT_DEPENDENCY
};
enum class PointwiseMode_t {
  NOT_SET,
  ADD,
  MUL,
  SQRT,
  MAX,
  MIN,
  RELU_FWD,
  TANH_FWD,
  SIGMOID_FWD,
  ELU_FWD,
  GELU_FWD,
  SOFTPLUS_FWD,
  SWISH_FWD,
  RELU_BWD,
  TANH_BWD,
  SIGMOID_BWD,
  ELU_BWD,
  GELU_BWD,
  SOFTPLUS_BWD,
  SWISH_BWD,
  ERF,
  IDENTITY,
  GELU_APPROX_TANH_BWD,
  GELU_APPROX_TANH_FWD,
  GEN_INDEX,
  BINARY_SELECT,
  EXP,
  LOG,
  NEG,
  MOD,
  POW,
  ABS,
  CEIL,
  COS,
  FLOOR,
  RSQRT,
  SIN,
  LOGICAL_NOT,
  TAN,
  SUB,
  ADD_SQUARE,
  DIV,
  CMP_EQ,
  CMP_NEQ,
  CMP_GT,
  CMP_GE,
  CMP_LT,
  CMP_LE,
  LOGICAL_AND,
  LOGICAL_OR,
  RECIPROCAL
};

namespace detail {

/// attngraph's type; none where it lacks one.
inline std::optional<attngraph::DataType> type_of(DataType_t type) {
  switch (type) {
    case DataType_t::FLOAT:
      return attngraph::DataType::kF32;
    case DataType_t::HALF:
      return attngraph::DataType::kF16;
    case DataType_t::BFLOAT16:
      return attngraph::DataType::kBf16;
    case DataType_t::INT32:
      return attngraph::DataType::kI32;
    case DataType_t::INT64:
      return attngraph::DataType::kI64;
    case DataType_t::BOOLEAN:
      return attngraph::DataType::kBool;
    case DataType_t::FP8_E4M3:
      return attngraph::DataType::kFp8E4m3;
    case DataType_t::FP8_E5M2:
      return attngraph::DataType::kFp8E5m2;
    default:
      return std::nullopt;
  }
}

/// `backend`: what a failing call of CUDA or cuDNN is where it happened.
inline error_t error_of(const attngraph::Status& status, error_code_t backend) {
  switch (status.code()) {
    case attngraph::Code::kOk:
      return {};
    case attngraph::Code::kInvalidGraph:
      return {error_code_t::INVALID_VALUE, status.message()};
    case attngraph::Code::kUnsupported:
      return {error_code_t::GRAPH_NOT_SUPPORTED, status.message()};
    case attngraph::Code::kBadBinding:
      return {error_code_t::INVALID_VARIANT_PACK, status.message()};
    case attngraph::Code::kBackend:
    case attngraph::Code::kInternal:
      break;
  }
  return {backend, status.message()};
}

}  // namespace detail
}  // namespace attngraph_compat
}  // namespace cudnn_frontend
