#pragma once

#include <string>
#include <vector>

#include "attngraph/attngraph.h"
#include "attngraph/context.hpp"
#include "attngraph/recording.hpp"

namespace attngraph::capi {

/// The caller's memory for executions that bring no workspace.
struct Allocator {
  void* (*allocate)(void* self, size_t bytes, size_t alignment, void* stream) = nullptr;
  void (*free)(void* self, void* data, size_t bytes, void* stream) = nullptr;
  void* self = nullptr;
};

struct Log {
  void (*write)(void* self, attngraph_log_level level, const char* line) = nullptr;
  void* self = nullptr;
};

}  // namespace attngraph::capi

struct attngraph_graph {
  attngraph::Graph graph;
};

struct attngraph_context {
  attngraph::capi::Log log;  // before the context, which points to it
  attngraph::capi::Allocator allocator;
  std::vector<std::string> engines;
  attngraph::Context context;

  explicit attngraph_context(const attngraph_context_options& options);
};

struct attngraph_support {
  std::vector<attngraph::EngineSupport> engines;
};

struct attngraph_plan {
  attngraph::Plan plan;
  attngraph::capi::Allocator allocator;
  std::vector<std::string> engines;  ///< by node
};

struct attngraph_recording {
  attngraph::Recording recording;
};
