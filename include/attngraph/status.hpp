#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "attngraph/export.hpp"

namespace attngraph {

/// Who has to act on a failure.
enum class Code : unsigned char {
  kOk,
  kInvalidGraph,  ///< the description contradicts itself, or a file is not readable
  kUnsupported,   ///< valid, but no engine takes it
  kBadBinding,    ///< the pointers, sizes or bound data given to execute
  kBackend,       ///< a library or system call failed: name, code, text
  kInternal,      ///< a defect of this library
};

/// Success, or a code with a text `<where>: <what is, with values>; <what must be>`.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const& { return message_; }
  /// By value, so that `const std::string& why = result.status().message();` stays alive.
  std::string message() && { return std::move(message_); }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

/// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  /// The failure, or success when there is a value.
  Status status() const { return ok() ? Status() : std::get<1>(state_); }

  /// The value; calling it on a failure throws std::bad_variant_access.
  const T& value() const& { return std::get<0>(state_); }
  T& value() & { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace attngraph
