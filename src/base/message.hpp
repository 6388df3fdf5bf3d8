#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

#include "attngraph/status.hpp"

namespace attngraph {

/// The parts printed one after the other.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
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
