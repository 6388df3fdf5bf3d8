#pragma once

#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/cudnn/library.hpp"

namespace attngraph::cudnn {

/// The attribute type under which cuDNN takes a value of T.
template <class T>
struct AttributeType;
template <>
struct AttributeType<int64_t> : std::integral_constant<cudnnBackendAttributeType_t, CUDNN_TYPE_INT64> {};
template <>
struct AttributeType<bool> : std::integral_constant<cudnnBackendAttributeType_t, CUDNN_TYPE_BOOLEAN> {};
template <>
struct AttributeType<void*> : std::integral_constant<cudnnBackendAttributeType_t, CUDNN_TYPE_VOID_PTR> {};
template <>
struct AttributeType<cudnnHandle_t> : std::integral_constant<cudnnBackendAttributeType_t, CUDNN_TYPE_HANDLE> {
};
template <>
struct AttributeType<cudnnDataType_t>
    : std::integral_constant<cudnnBackendAttributeType_t, CUDNN_TYPE_DATA_TYPE> {};
template <>
struct AttributeType<cudnnPointwiseMode_t>
    : std::integral_constant<cudnnBackendAttributeType_t, CUDNN_TYPE_POINTWISE_MODE> {};
template <>
struct AttributeType<cudnnReduceTensorOp_t>
    : std::integral_constant<cudnnBackendAttributeType_t, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE> {};
template <>
struct AttributeType<cudnnBackendHeurMode_t>
    : std::integral_constant<cudnnBackendAttributeType_t, CUDNN_TYPE_HEUR_MODE> {};
template <>
struct AttributeType<cudnnBackendKnobType_t>
    : std::integral_constant<cudnnBackendAttributeType_t, CUDNN_TYPE_KNOB_TYPE> {};

/// One backend descriptor of cuDNN, destroyed with this object. The first call that fails stays as the
/// status; later ones do nothing.
///
/// Thread: a finalized descriptor may be read from many threads.
class Descriptor {
 public:
  /// `library` must outlive the descriptor; `what` names it in messages.
  Descriptor(const Library& library, cudnnBackendDescriptorType_t type, std::string what)
      : library_(&library), what_(std::move(what)) {
    check("cudnnBackendCreateDescriptor", library->create_descriptor(type, &descriptor_));
  }
  Descriptor(Descriptor&& other) noexcept
      : library_(other.library_),
        what_(std::move(other.what_)),
        status_(std::move(other.status_)),
        descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (descriptor_ != nullptr) static_cast<void>((*library_)->destroy_descriptor(descriptor_));
  }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    return set(name, AttributeType<T>::value, static_cast<int64_t>(values.size()), values.data());
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, AttributeType<T>::value, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& part) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part.descriptor_);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& parts) {
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const Descriptor& part : parts) raw.push_back(part.descriptor_);
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
  }
  Descriptor& finalize() {
    if (status_.ok()) check("cudnnBackendFinalize", (*library_)->finalize(descriptor_));
    return *this;
  }

  /// Reads one value of a finalized descriptor.
  template <class T>
  Result<T> get(cudnnBackendAttributeName_t name) const {
    if (!status_.ok()) return status_;
    T value = {};
    int64_t count = 0;
    const Status status = library_->status_of(
        "cudnnBackendGetAttribute of " + what_,
        (*library_)->get_attribute(descriptor_, name, AttributeType<T>::value, 1, &count, &value));
    if (!status.ok()) return status;
    return value;
  }
  /// Fills up to `parts.size()` descriptors, whose number is returned.
  Result<int64_t> get(cudnnBackendAttributeName_t name, std::vector<Descriptor>& parts) const {
    if (!status_.ok()) return status_;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const Descriptor& part : parts) raw.push_back(part.descriptor_);
    int64_t count = 0;
    const Status status =
        library_->status_of("cudnnBackendGetAttribute of " + what_,
                            (*library_)->get_attribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                       static_cast<int64_t>(raw.size()), &count, raw.data()));
    if (!status.ok()) return status;
    return count;
  }

  const Status& status() const { return status_; }
  cudnnBackendDescriptor_t raw() const { return descriptor_; }

 private:
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values) {
    if (status_.ok())
      check("cudnnBackendSetAttribute", (*library_)->set_attribute(descriptor_, name, type, count, values),
            static_cast<int>(name));
    return *this;
  }
  void check(const char* call, cudnnStatus_t code, int attribute = -1) {
    if (code == CUDNN_STATUS_SUCCESS) return;
    std::string where = std::string(call) + " of " + what_;
    if (attribute >= 0) where += ", attribute " + std::to_string(attribute);
    status_ = library_->status_of(where, code);
  }

  const Library* library_;
  std::string what_;
  Status status_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace attngraph::cudnn
