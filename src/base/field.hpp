#pragma once

#include <cstdint>
#include <tuple>
#include <utility>

namespace attngraph {

/// Whether a file must give a field. An optional field that has its default value is not printed.
enum class Presence : uint8_t { kOptional, kRequired };

/// One member of a struct under its name in files. Fields are equal when their members are.
template <class T>
struct Field {
  const char* name;
  T& value;
  Presence presence = Presence::kOptional;

  friend bool operator==(const Field& x, const Field& y) { return x.value == y.value; }
};
template <class T>
Field(const char*, T&) -> Field<T>;
template <class T>
Field(const char*, T&, Presence) -> Field<T>;

/// visit(field) for each field of a tuple of fields, in order.
template <class... Fields, class Visit>
void for_each_field(const std::tuple<Fields...>& fields, Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, fields);
}

/// visit(x's field, y's field) for each field of two values of one struct, in order.
template <class... Fields, class Visit>
void for_each_field(const std::tuple<Fields...>& x, const std::tuple<Fields...>& y, Visit&& visit) {
  [&]<size_t... i>(std::index_sequence<i...>) { (visit(std::get<i>(x), std::get<i>(y)), ...); }
  (std::index_sequence_for<Fields...>());
}

}  // namespace attngraph
