#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "attngraph/json.hpp"

/// Any bytes: parse answers without a crash, and what it accepts survives print and parse.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const attngraph::Result<attngraph::Graph> graph = attngraph::parse(text);
  if (!graph.ok()) {
    if (graph.status().code() != attngraph::Code::kInvalidGraph || graph.status().message().empty())
      std::abort();
    return 0;
  }
  const attngraph::Result<attngraph::Graph> again = attngraph::parse(attngraph::print(*graph));
  if (!again.ok() || *again != *graph) std::abort();
  return 0;
}
