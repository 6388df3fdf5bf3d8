#include <string_view>

#include "capi/boundary.hpp"
#include "capi/handles.hpp"
#include "capi/values.hpp"
#include "plan/planner.hpp"

using namespace attngraph;
using namespace attngraph::capi;

namespace {

Result<PlanOptions> options_of(const attngraph_plan_options& given) {
  constexpr uint32_t kAllBits = ATTNGRAPH_VARYING_BATCH | ATTNGRAPH_VARYING_LENGTHS |
                                ATTNGRAPH_VARYING_TOKENS | ATTNGRAPH_VARYING_PAGES;
  if ((given.varying & ~kAllBits) != 0)
    return fail(Code::kInvalidGraph, "options.varying: is ", given.varying, "; must be a sum of bits up to ",
                kAllBits);
  PlanOptions options;
  if (given.engine != nullptr) options.engine = given.engine;
  options.max_workspace_bytes = optional_of(given.max_workspace_bytes);
  options.guard_bytes = given.guard_bytes;
  options.validate_bindings = given.validate_bindings != 0;
  options.varying.batch = (given.varying & ATTNGRAPH_VARYING_BATCH) != 0;
  options.varying.lengths = (given.varying & ATTNGRAPH_VARYING_LENGTHS) != 0;
  options.varying.tokens = (given.varying & ATTNGRAPH_VARYING_TOKENS) != 0;
  options.varying.pages = (given.varying & ATTNGRAPH_VARYING_PAGES) != 0;
  return options;
}

Result<Plan> plan_for(Context& context, const Graph& graph, const attngraph_target* target,
                      const PlanOptions& options) {
  if (target == nullptr) return context.plan(graph, options);
  attngraph_target given = ATTNGRAPH_TARGET_INIT;
  ATTNGRAPH_RETURN_IF_ERROR(read_struct(target, "target", given));
  const auto known = target_of(given);
  ATTNGRAPH_RETURN_IF_ERROR(known.status());
  return context.plan(graph, *known, options);
}

const SlotFacts& facts_of(const PlanState& state, size_t slot) { return state.core->slots[slot]; }

}  // namespace

attngraph_status attngraph_plan_create(attngraph_context* context, const attngraph_graph* graph,
                                       const attngraph_target* target, const attngraph_plan_options* options,
                                       attngraph_plan** plan, attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(context, "context"));
    ATTNGRAPH_RETURN_IF_ERROR(require(graph, "graph"));
    ATTNGRAPH_RETURN_IF_ERROR(require(plan, "plan"));
    attngraph_plan_options given = ATTNGRAPH_PLAN_OPTIONS_INIT;
    ATTNGRAPH_RETURN_IF_ERROR(read_struct(options, "options", given));
    const auto asked = options_of(given);
    ATTNGRAPH_RETURN_IF_ERROR(asked.status());
    const auto made = plan_for(context->context, graph->graph, target, *asked);
    ATTNGRAPH_RETURN_IF_ERROR(made.status());
    *plan = new attngraph_plan{*made, context->allocator, made->engines()};
    return {};
  });
}

void attngraph_plan_destroy(attngraph_plan* plan) { delete plan; }

int64_t attngraph_plan_workspace_bytes(const attngraph_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes();
}

const char* attngraph_plan_engine(const attngraph_plan* plan, size_t node) {
  if (plan == nullptr || node >= plan->engines.size()) return nullptr;
  return plan->engines[node].c_str();
}

int32_t attngraph_plan_is_deterministic(const attngraph_plan* plan) {
  return plan != nullptr && plan->plan.deterministic() ? 1 : 0;
}

attngraph_status attngraph_plan_explain(const attngraph_plan* plan, attngraph_format format,
                                        attngraph_text* text, attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(plan, "plan"));
    ATTNGRAPH_RETURN_IF_ERROR(require(text, "text"));
    switch (format) {
      case ATTNGRAPH_TEXT:
        return put(text, plan->plan.explain()), Status();
      case ATTNGRAPH_JSON:
        return put(text, plan->plan.explain_json()), Status();
      case ATTNGRAPH_SVG:
        return put(text, plan->plan.explain_svg()), Status();
    }
    return fail(Code::kInvalidGraph, "format: is ", format, "; must be a number of text, json, svg");
  });
}

int32_t attngraph_plan_num_slots(const attngraph_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.num_slots();
}

int32_t attngraph_plan_slot(const attngraph_plan* plan, int64_t uid) {
  return plan == nullptr ? -1 : plan->plan.slot(uid);
}

int32_t attngraph_plan_slot_by_name(const attngraph_plan* plan, const char* name) {
  if (plan == nullptr || name == nullptr) return -1;
  const PlanState& state = plan->plan.state();
  int32_t found = -1;
  for (size_t slot = 0; slot < state.names.size(); ++slot) {
    if (facts_of(state, slot).is_virtual || state.names[slot].name != name) continue;
    if (found >= 0) return -1;
    found = static_cast<int32_t>(slot);
  }
  return found;
}

attngraph_status attngraph_plan_slot_info(const attngraph_plan* plan, int32_t slot, attngraph_slot* info,
                                          attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(plan, "plan"));
    if (slot < 0 || slot >= plan->plan.num_slots())
      return fail(Code::kInvalidGraph, "slot: is ", slot, "; must be 0 to ", plan->plan.num_slots() - 1);
    const PlanState& state = plan->plan.state();
    const size_t index = static_cast<size_t>(slot);
    const SlotFacts& facts = facts_of(state, index);
    const SlotName& name = state.names[index];
    return write_struct({0, name.uid, name.name.c_str(), facts.footprint_bytes, facts.alignment,
                         facts.is_written ? 1 : 0, facts.is_virtual ? 1 : 0},
                        "info", info);
  });
}
