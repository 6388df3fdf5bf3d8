#include "json/read.hpp"

namespace attngraph {

Status read(JsonValue value, bool& out) {
  if (value.kind() != JsonKind::kBool) return value.refuse("must be true or false");
  out = value.boolean();
  return {};
}

Status read(JsonValue value, int64_t& out) {
  if (value.kind() != JsonKind::kInteger) return value.refuse("must be an integer within int64");
  out = value.integer();
  return {};
}

Status read(JsonValue value, double& out) {
  const JsonKind kind = value.kind();
  if (kind != JsonKind::kInteger && kind != JsonKind::kUnsigned && kind != JsonKind::kNumber)
    return value.refuse("must be a number");
  out = value.number();
  return {};
}

Status read(JsonValue value, std::string& out) {
  if (value.kind() != JsonKind::kString) return value.refuse("must be a string");
  out = value.text();
  return {};
}

Status check_header(JsonValue value, const JsonHeader& accepted) {
  if (const auto format = value.find("format")) {
    std::string name;
    ATTNGRAPH_RETURN_IF_ERROR(read(*format, name));
    if (name != accepted.format) return format->refuse("must be \"", accepted.format, '"');
  }
  if (const auto version = value.find("version")) {
    int64_t number = 0;
    ATTNGRAPH_RETURN_IF_ERROR(read(*version, number));
    if (number != accepted.version) return version->refuse("must be ", accepted.version);
  }
  return {};
}

}  // namespace attngraph
