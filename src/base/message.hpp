#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include "attngraph/status.hpp"

namespace attngraph {

/// The shortest digits that read back as `number`.
template <class Number>
std::string shortest(Number number) {
  std::array<char, 32> digits;  // the longest are -9223372036854775808 and -2.2250738585072014e-308
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
}

/// A part of a text as it is streamed: a number never loses a digit that tells it from its neighbours.
template <class Part>
decltype(auto) streamed(const Part& part) {
  if constexpr (std::is_floating_point_v<Part>)
    return shortest(part);
  else
    return (part);
}

/// The parts printed one after the other.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << streamed(parts));
  return std::move(out).str();
}

/// A failure `<where>: <what is, with values>; <what must be>`.
template <class... Parts>
Status fail(Code code, const Parts&... parts) {
  return Status(code, text(parts...));
}

}  // namespace attngraph

/// Returns from a function of Status or Result when `expression`, a Status, is a failure.
#define ATTNGRAPH_RETURN_IF_ERROR(expression)                                      \
  do {                                                                             \
    if (::attngraph::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
