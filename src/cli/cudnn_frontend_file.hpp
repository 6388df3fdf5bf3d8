#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "json/read.hpp"

/// A graph as cudnn-frontend 1.x writes it to JSON, member by member; what the names mean is import.cpp's
/// business. Its logs hold the same text.
///
/// Source: NVIDIA/cudnn-frontend 1.23, include/cudnn_frontend: utils/serialize.h, graph_interface.h; a log of
/// 1.18 (test/imports/pytorch-2.11.log).
namespace attngraph::cli::frontend {

enum class Type : uint8_t { kFloat, kHalf, kBfloat16, kInt32, kInt64, kBoolean, kFp8E4m3, kFp8E5m2 };
enum class Diagonal : uint8_t { kTopLeft, kBottomRight };

/// A member that is null where it is not set.
template <class T>
struct Nullable {
  std::optional<T> value;
};
/// A member that says nothing about the graph's meaning.
struct Ignored {};
/// A float: its eight hexadecimal digits, or a number.
struct Float {
  double value = 0;
};
/// A tensor by its key in `tensors`: a uid that was assigned, or a name.
struct Reference {
  std::string key;
};
/// An object of ports.
struct Ports {
  std::vector<std::pair<std::string, Reference>> list;
};
/// A value that goes with a tensor instead of memory.
struct Scalar {
  int64_t index = 0;  ///< of its type
  Float value;
};

struct Tensor {
  std::string name;
  Nullable<Type> data_type;
  std::vector<int64_t> dim, stride;
  bool is_virtual = false, is_pass_by_value = false, uid_assigned = false;
  Nullable<Scalar> pass_by_value;
  Nullable<std::string> reordering_type;
  int64_t uid = 0;
  std::optional<int64_t> ragged_offset_uid;
  std::string ragged_offset_name;
};

/// An attention node. Ports that are not set are absent.
struct Node {
  std::string tag;
  Nullable<std::string> name;
  Nullable<Ports> inputs, outputs;
  bool alibi_mask = false, padding_mask = false, is_mxfp8 = false;
  bool causal_mask = false, causal_mask_bottom_right = false;  ///< up to 1.18, beside the bounds
  Nullable<Float> dropout_probability, attn_scale_value;
  Nullable<int64_t> left_bound, right_bound, max_seq_len_kv, max_total_seq_len_q, max_total_seq_len_kv;
  Diagonal diagonal_alignment = Diagonal::kTopLeft;
  bool is_deterministic_algorithm = false;
  Ignored generate_stats, mma_core_mode, implementation, unfuse_fma, rescale_threshold;
};

struct Context {
  Nullable<std::string> name;
  Nullable<Type> io_data_type, intermediate_data_type, compute_data_type;
  Ignored sm_count, is_dynamic_shape_enabled, is_override_shape_enabled;
};

struct TensorEntry {
  std::string key;
  Tensor tensor;
};
struct Tensors {
  std::vector<TensorEntry> list;
};

struct File {
  Context context;
  Nullable<std::vector<Node>> nodes;
  Nullable<Tensors> tensors;
  Ignored json_version, cudnn_backend_version, cudnn_frontend_version;
};

/// Errors: kInvalidGraph with the JSON path of a key or value that is unknown.
Status read(JsonValue value, File& file);

/// The graphs in a text: the whole of it, or, in a log written with CUDNN_FRONTEND_LOG_INFO, each line that
/// holds one; a graph that is logged again counts once.
///
/// Errors: kInvalidGraph when there is none.
Result<std::vector<std::string_view>> find_graphs(std::string_view text);

}  // namespace attngraph::cli::frontend

namespace attngraph {

template <>
struct EnumNames<cli::frontend::Type> {
  using Type = cli::frontend::Type;
  static constexpr std::array table = {
      std::pair{Type::kFloat, "FLOAT"},       std::pair{Type::kHalf, "HALF"},
      std::pair{Type::kBfloat16, "BFLOAT16"}, std::pair{Type::kInt32, "INT32"},
      std::pair{Type::kInt64, "INT64"},       std::pair{Type::kBoolean, "BOOLEAN"},
      std::pair{Type::kFp8E4m3, "FP8_E4M3"},  std::pair{Type::kFp8E5m2, "FP8_E5M2"}};
};
template <>
struct EnumNames<cli::frontend::Diagonal> {
  using Diagonal = cli::frontend::Diagonal;
  static constexpr std::array table = {std::pair{Diagonal::kTopLeft, "TOP_LEFT"},
                                       std::pair{Diagonal::kBottomRight, "BOTTOM_RIGHT"}};
};

}  // namespace attngraph
