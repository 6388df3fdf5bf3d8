#include "capi/values.hpp"

#include <cstring>
#include <string_view>

#include "capi/boundary.hpp"

namespace attngraph::capi {

Result<Target> target_of(const attngraph_target& given) {
  Target target;
  ATTNGRAPH_RETURN_IF_ERROR(read_enum(given.memory, "target.memory", target.memory));
  ATTNGRAPH_RETURN_IF_ERROR(read_enum(given.isa, "target.isa", target.isa));
  target.num_threads = given.num_threads;
  target.sm_version = given.sm_version;
  target.sm_count = given.sm_count;
  target.cudnn_version = given.cudnn_version;
  target.shared_memory_bytes = given.shared_memory_bytes;
  target.l2_bytes = given.l2_bytes;
  return target;
}

attngraph_target c_target(const Target& target) {
  const auto& [memory, isa, num_threads, sm_version, sm_count, cudnn_version, shared_memory_bytes, l2_bytes] =
      target;
  attngraph_target c = ATTNGRAPH_TARGET_INIT;
  c.memory = c_value(memory);
  c.isa = c_value(isa);
  c.num_threads = num_threads;
  c.sm_version = sm_version;
  c.sm_count = sm_count;
  c.cudnn_version = cudnn_version;
  c.shared_memory_bytes = shared_memory_bytes;
  c.l2_bytes = l2_bytes;
  return c;
}

}  // namespace attngraph::capi

using namespace attngraph;
using namespace attngraph::capi;

attngraph_status attngraph_target_preset(const char* name, attngraph_target* target,
                                         attngraph_message* message) {
  return guard(message, [&]() -> Status {
    constexpr std::pair<std::string_view, Target> kPresets[] = {{"a100", Target::a100()},
                                                                {"h100", Target::h100()},
                                                                {"h200", Target::h200()},
                                                                {"b200", Target::b200()}};
    ATTNGRAPH_RETURN_IF_ERROR(require(name, "name"));
    for (const auto& [known, preset] : kPresets)
      if (known == name) return write_struct(c_target(preset), "target", target);
    return fail(Code::kInvalidGraph, "name: is ", name, "; must be one of a100, h100, h200, b200");
  });
}
