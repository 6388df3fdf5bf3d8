#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attngraph/compat/cudnn_frontend/types.hpp"

namespace cudnn_frontend {
inline namespace attngraph_compat {
namespace graph {

enum class ScalarType { RUNTIME_PARAM, COMPILE_TIME_CONST };

/// One tensor as it is described; what is not set here is taken from the graph, or refused there.
class Tensor_attributes {
 public:
  using uid_t = int64_t;
  using pass_by_values_t = std::variant<int64_t, int32_t, float, double>;

  Tensor_attributes() = default;
  Tensor_attributes(float scalar) : Tensor_attributes(DataType_t::FLOAT, scalar) {}
  Tensor_attributes(double scalar) : Tensor_attributes(DataType_t::DOUBLE, scalar) {}
  Tensor_attributes(int32_t scalar) : Tensor_attributes(DataType_t::INT32, scalar) {}
  Tensor_attributes(int64_t scalar) : Tensor_attributes(DataType_t::INT64, scalar) {}
  /// A value is part of the graph, whether it is called a constant or not.
  template <class Scalar>
  Tensor_attributes(Scalar scalar, ScalarType type) : Tensor_attributes(scalar) {
    is_constant_ = type == ScalarType::COMPILE_TIME_CONST;
  }

  Tensor_attributes& set_name(const std::string& value) { return name_ = value, *this; }
  Tensor_attributes& set_data_type(DataType_t value) { return type_ = value, *this; }
  Tensor_attributes& set_dim(const std::vector<int64_t>& value) { return dim_ = value, *this; }
  Tensor_attributes& set_stride(const std::vector<int64_t>& value) { return stride_ = value, *this; }
  Tensor_attributes& set_is_virtual(bool value) { return is_virtual_ = value, *this; }
  Tensor_attributes& set_output(bool value) { return set_is_virtual(!value); }
  Tensor_attributes& set_is_pass_by_value(bool value) { return is_pass_by_value_ = value, *this; }
  Tensor_attributes& set_compile_time_constant(const pass_by_values_t& value) {
    value_ = value, is_constant_ = is_pass_by_value_ = true;
    return *this;
  }
  Tensor_attributes& set_as_runtime_parameter() {
    if (is_constant_) value_.reset();
    is_constant_ = false, is_pass_by_value_ = true;
    return *this;
  }
  Tensor_attributes& set_reordering_type(TensorReordering_t value) { return reordering_ = value, *this; }
  Tensor_attributes& set_alignment(int64_t bytes) { return alignment_ = bytes, *this; }
  Tensor_attributes& set_uid(uid_t value) { return uid_ = value, *this; }
  Tensor_attributes& clear_uid() { return uid_.reset(), *this; }
  /// Offsets count elements.
  Tensor_attributes& set_ragged_offset(const std::shared_ptr<Tensor_attributes>& value) {
    return ragged_offset_ = value, *this;
  }

  std::string get_name() const { return name_; }
  DataType_t get_data_type() const { return type_; }
  std::vector<int64_t> get_dim() const { return dim_; }
  std::vector<int64_t> get_stride() const { return stride_; }
  int64_t get_volume() const {
    int64_t volume = 1;
    for (const int64_t extent : dim_) volume *= extent;
    return volume;
  }
  bool get_is_virtual() const { return is_virtual_; }
  bool get_is_pass_by_value() const { return is_pass_by_value_; }
  std::optional<pass_by_values_t> get_pass_by_value() const { return is_constant_ ? std::nullopt : value_; }
  bool get_has_compile_time_constant() const { return is_constant_; }
  std::optional<pass_by_values_t> get_compile_time_constant() const {
    return is_constant_ ? value_ : std::nullopt;
  }
  TensorReordering_t get_reordering_type() const { return reordering_; }
  int64_t get_alignment() const { return alignment_; }
  uid_t get_uid() const { return uid_.value_or(0); }
  bool has_uid() const { return uid_.has_value(); }
  std::shared_ptr<Tensor_attributes> get_ragged_offset() const { return ragged_offset_; }

  /// The value that goes with the graph, constant or not.
  std::optional<double> value() const {
    if (!value_) return std::nullopt;
    return std::visit([](auto scalar) { return static_cast<double>(scalar); }, *value_);
  }

 private:
  Tensor_attributes(DataType_t type, pass_by_values_t value)
      : type_(type), dim_{1}, stride_{1}, is_pass_by_value_(true), value_(value) {}

  std::string name_;
  DataType_t type_ = DataType_t::NOT_SET;
  std::vector<int64_t> dim_, stride_;
  bool is_virtual_ = false, is_pass_by_value_ = false, is_constant_ = false;
  std::optional<pass_by_values_t> value_;
  TensorReordering_t reordering_ = TensorReordering_t::NONE;
  int64_t alignment_ = 16;
  std::optional<uid_t> uid_;
  std::shared_ptr<Tensor_attributes> ragged_offset_;
};

}  // namespace graph
}  // namespace attngraph_compat
}  // namespace cudnn_frontend
