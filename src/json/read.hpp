#pragma once

#include <array>
#include <concepts>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/enum_names.hpp"
#include "base/field.hpp"
#include "json/document.hpp"

/// read(value, out) turns a JSON value into a C++ one. Structs are read by their field list.
///
/// Errors: kInvalidGraph with the JSON path, the value there and what is accepted.
namespace attngraph {

Status read(JsonValue value, bool& out);
Status read(JsonValue value, int64_t& out);
Status read(JsonValue value, double& out);
Status read(JsonValue value, std::string& out);

template <class Enum, auto = EnumNames<Enum>::table.size()>
Status read(JsonValue value, Enum& out) {
  const auto known = value.kind() == JsonKind::kString ? value_of<Enum>(value.text()) : std::nullopt;
  if (!known) return value.refuse("must be one of ", all_names<Enum>());
  out = *known;
  return {};
}

template <class T>
Status read(JsonValue value, std::optional<T>& out) {
  return read(value, out.emplace());
}

template <class T>
Status read(JsonValue value, std::vector<T>& out) {
  if (value.kind() != JsonKind::kArray) return value.refuse("must be an array");
  out.clear();
  out.reserve(value.size());
  for (const JsonValue element : value) ATTNGRAPH_RETURN_IF_ERROR(read(element, out.emplace_back()));
  return {};
}

/// The names of fields, for messages: "uid, dtype, dims"; all of them or the required ones.
template <class... Fields>
std::string names_of(const std::tuple<Fields...>& fields, Presence at_least = Presence::kOptional) {
  std::string names;
  for_each_field(fields, [&](const auto& field) {
    if (field.presence < at_least) return;
    if (!names.empty()) names += ", ";
    names += field.name;
  });
  return names;
}

/// Reads an object into the members that the fields refer to.
///
/// Errors: also for a key that no field has, and for a required field that is missing.
template <class... Fields>
Status read_object(JsonValue value, const std::tuple<Fields...>& fields) {
  if (value.kind() != JsonKind::kObject) return value.refuse("must be an object");
  std::array<bool, sizeof...(Fields)> given = {};
  for (const JsonValue member : value) {
    Status status;
    bool known = false;
    size_t i = 0;
    for_each_field(fields, [&](const auto& field) {
      if (!known && member.key() == field.name) {
        known = given[i] = true;
        status = read(member, field.value);
      }
      ++i;
    });
    if (!known)
      return fail(Code::kInvalidGraph, member.path(), ": unknown key with value ", member.describe(),
                  "; must be one of ", names_of(fields));
    if (!status.ok()) return status;
  }
  const char* missing = nullptr;
  size_t i = 0;
  for_each_field(fields, [&](const auto& field) {
    if (!given[i++] && field.presence == Presence::kRequired && !missing) missing = field.name;
  });
  if (missing)
    return fail(Code::kInvalidGraph, value.path(), ": no key \"", missing, "\"; must have ",
                names_of(fields, Presence::kRequired));
  return {};
}

template <class T>
concept HasFields = requires(T& object) {
  fields(object);
};

template <HasFields T>
Status read(JsonValue value, T& out) {
  return read_object(value, fields(out));
}

/// How a file says what it is.
struct JsonHeader {
  std::string format;
  int64_t version = 0;
};

/// Compares the header keys that an object has; called before the rest is read, so that a file of
/// another format is not judged by its other keys.
Status check_header(JsonValue value, const JsonHeader& accepted);

}  // namespace attngraph
