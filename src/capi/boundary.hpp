#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string_view>

#include "attngraph/attngraph.h"
#include "attngraph/status.hpp"
#include "base/message.hpp"

namespace attngraph::capi {

/// Copies the characters that fit, ends them with a 0 and tells the whole length. A null `text` takes
/// nothing.
void put(attngraph_text* text, std::string_view value) noexcept;

attngraph_status to_c(Code code) noexcept;

/// The only place where exceptions stop and a Status becomes a C code.
template <class Body>
attngraph_status guard(attngraph_message* message, Body&& body) noexcept {
  try {
    const Status status = body();
    put(message, status.message());
    return to_c(status.code());
  } catch (const std::bad_alloc&) {
    put(message, "host memory: allocation failed; must leave room for descriptions and plans");
    return ATTNGRAPH_BACKEND;
  } catch (const std::exception& e) {
    put(message, e.what());
  } catch (...) {
    put(message, "unknown exception");
  }
  return ATTNGRAPH_INTERNAL;
}

/// Errors: kInvalidGraph naming the argument.
inline Status require(const void* argument, const char* name) {
  if (argument != nullptr) return {};
  return fail(Code::kInvalidGraph, name, ": is null; must be a pointer");
}

/// Errors: kInvalidGraph on a struct that does not even hold its own size.
template <class Struct>
Status require_struct(const Struct* given, const char* name) {
  ATTNGRAPH_RETURN_IF_ERROR(require(given, name));
  if (given->struct_size >= sizeof(given->struct_size)) return {};
  return fail(Code::kInvalidGraph, name, ".struct_size: is ", given->struct_size,
              "; must be the sizeof of the caller's struct");
}

/// Puts the caller's struct over `value`, which holds the defaults of members that the caller lacks; a null
/// `given` leaves all of them.
///
/// Errors: those of require_struct.
template <class Struct>
Status read_struct(const Struct* given, const char* name, Struct& value) {
  if (given == nullptr) return {};
  ATTNGRAPH_RETURN_IF_ERROR(require_struct(given, name));
  std::memcpy(&value, given, std::min(given->struct_size, sizeof(Struct)));
  return {};
}

/// Writes the members that the caller's struct has.
///
/// Errors: those of require_struct.
template <class Struct>
Status write_struct(Struct value, const char* name, Struct* out) {
  ATTNGRAPH_RETURN_IF_ERROR(require_struct(out, name));
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, std::min(out->struct_size, sizeof(Struct)));
  return {};
}

inline std::optional<int64_t> optional_of(int64_t value) {
  if (value == ATTNGRAPH_NONE) return std::nullopt;
  return value;
}

}  // namespace attngraph::capi
