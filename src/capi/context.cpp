#include <memory>

#include "capi/boundary.hpp"
#include "capi/handles.hpp"
#include "capi/values.hpp"

using namespace attngraph;
using namespace attngraph::capi;

namespace {

void write_log(void* self, LogLevel level, const char* line) {
  const Log& log = *static_cast<const Log*>(self);
  log.write(log.self, c_value(level), line);
}

ContextOptions options_of(const attngraph_context_options& given, Log& log) {
  ContextOptions options;
  options.num_threads = given.num_threads;
  options.executor = {given.executor, given.executor_self};
  if (log.write != nullptr) options.log = {write_log, &log};
  options.cache_entries = given.cache_entries;
  options.cache_bytes = given.cache_bytes;
  return options;
}

Status check(const attngraph_context_options& options) {
  for (const auto& [name, count] :
       {std::pair{"num_threads", int64_t{options.num_threads}},
        std::pair{"cache_entries", options.cache_entries}, std::pair{"cache_bytes", options.cache_bytes}})
    if (count < 0)
      return fail(Code::kInvalidGraph, "options.", name, ": is ", count, "; must not be negative");
  if ((options.allocate == nullptr) != (options.free == nullptr))
    return fail(Code::kInvalidGraph, "options.", options.allocate == nullptr ? "free" : "allocate",
                ": is given alone; must come with ", options.allocate == nullptr ? "allocate" : "free");
  return {};
}

/// The engine's answer, or null beyond the last.
const EngineSupport* answer(const attngraph_support* support, size_t engine) {
  if (support == nullptr || engine >= support->engines.size()) return nullptr;
  return &support->engines[engine];
}

}  // namespace

attngraph_context::attngraph_context(const attngraph_context_options& options)
    : log{options.log, options.log_self},
      allocator{options.allocate, options.free, options.allocator_self},
      context(options_of(options, log)) {
  engines = context.engines();
}

attngraph_status attngraph_context_create(const attngraph_context_options* options,
                                          attngraph_context** context, attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(context, "context"));
    attngraph_context_options given = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
    ATTNGRAPH_RETURN_IF_ERROR(read_struct(options, "options", given));
    ATTNGRAPH_RETURN_IF_ERROR(check(given));
    *context = new attngraph_context(given);
    return {};
  });
}

void attngraph_context_destroy(attngraph_context* context) { delete context; }

const char* attngraph_context_engine(const attngraph_context* context, size_t index) {
  if (context == nullptr || index >= context->engines.size()) return nullptr;
  return context->engines[index].c_str();
}

attngraph_status attngraph_context_cache_statistics(const attngraph_context* context,
                                                    attngraph_cache_statistics* statistics,
                                                    attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(context, "context"));
    const CacheStatistics s = context->context.cache_statistics();
    const attngraph_cache_statistics c = {0, s.hits, s.misses, s.builds, s.evictions, s.entries};
    return write_struct(c, "statistics", statistics);
  });
}

attngraph_status attngraph_context_target(const attngraph_context* context, const char* engine,
                                          attngraph_target* target, attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(context, "context"));
    const auto here = context->context.target_of(engine == nullptr ? "" : engine);
    ATTNGRAPH_RETURN_IF_ERROR(here.status());
    return write_struct(c_target(*here), "target", target);
  });
}

attngraph_status attngraph_support_query(const attngraph_context* context, const attngraph_graph* graph,
                                         const attngraph_target* target, attngraph_support** support,
                                         attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(context, "context"));
    ATTNGRAPH_RETURN_IF_ERROR(require(graph, "graph"));
    ATTNGRAPH_RETURN_IF_ERROR(require(support, "support"));
    attngraph_target given = c_target(context->context.host_target());
    ATTNGRAPH_RETURN_IF_ERROR(read_struct(target, "target", given));
    const auto known = target_of(given);
    ATTNGRAPH_RETURN_IF_ERROR(known.status());
    auto answers = context->context.support(graph->graph, *known);
    ATTNGRAPH_RETURN_IF_ERROR(answers.status());
    *support = new attngraph_support{std::move(answers).value()};
    return {};
  });
}

void attngraph_support_destroy(attngraph_support* support) { delete support; }

const char* attngraph_support_engine(const attngraph_support* support, size_t engine) {
  const EngineSupport* found = answer(support, engine);
  return found == nullptr ? nullptr : found->engine.c_str();
}

size_t attngraph_support_num_reasons(const attngraph_support* support, size_t engine) {
  const EngineSupport* found = answer(support, engine);
  return found == nullptr ? 0 : found->reasons.size();
}

attngraph_status attngraph_support_reason(const attngraph_support* support, size_t engine, size_t index,
                                          attngraph_reason* reason, attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(support, "support"));
    const EngineSupport* found = answer(support, engine);
    if (found == nullptr)
      return fail(Code::kInvalidGraph, "engine: is ", engine, "; must be below ", support->engines.size());
    if (index >= found->reasons.size())
      return fail(Code::kInvalidGraph, "index: is ", index, "; must be below ", found->reasons.size(),
                  ", the reasons of ", found->engine);
    const Reason& r = found->reasons[index];
    return write_struct({0, r.subject.c_str(), r.has.c_str(), r.wants.c_str(), r.since.c_str()}, "reason",
                        reason);
  });
}
