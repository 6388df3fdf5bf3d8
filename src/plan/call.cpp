#include "plan/call.hpp"

#include <algorithm>

#include "base/message.hpp"

namespace attngraph {
namespace {

bool is_ragged(const Problem& problem, Side side) {
  for (size_t i = 0; i < kNumRoles; ++i)
    if (problem.operands[i].ragged && side_of(static_cast<Role>(i)) == side) return true;
  return false;
}

bool is_paged(const Problem& problem) {
  return problem.has(Role::kPageTableK) || problem.has(Role::kPageTableV);
}

/// On each side that the node has.
bool has_lengths(const Problem& p) {
  return (p.has(Role::kSeqLenQ) || p.has(Role::kCuSeqLenQ)) &&
         (p.pass == Pass::kMerge || p.has(Role::kSeqLenKv) || p.has(Role::kCuSeqLenKv));
}

/// One size of a call beside what the nodes declare.
Status check_size(const char* name, const std::optional<int64_t>& actual, int64_t declared, bool varies) {
  if (!actual || *actual == declared) return {};
  if (!varies)
    return fail(Code::kBadBinding, name, ": is ", *actual, "; the plan takes ", declared,
                " alone, as its varying options do not name it");
  if (*actual < 0 || *actual > declared)
    return fail(Code::kBadBinding, name, ": is ", *actual, "; must be 0 to ", declared, " as declared");
  return {};
}

}  // namespace

Status check_varying(const Program& program, const Varying& varying) {
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const Problem& p = program.nodes[n].problem;
    const auto refuse = [&](const char* what, const char* lack) {
      return fail(Code::kInvalidGraph, "varying: ", what, " may vary, but node ", n, " has no ", lack,
                  "; only what is bound can vary");
    };
    if (varying.lengths && !has_lengths(p)) return refuse("lengths", "lengths on both sides");
    if (varying.tokens && !is_ragged(p, Side::kQ) && !is_ragged(p, Side::kKv))
      return refuse("tokens", "ragged tensor");
    if (varying.pages && !is_paged(p)) return refuse("pages", "page table");
  }
  return {};
}

bool is_whole(const CallSizes& sizes) {
  return !sizes.batch && !sizes.total_q && !sizes.total_kv && !sizes.pages;
}

Status check_sizes(const PlanCore& core, const CallSizes& sizes) {
  const Varying& varying = core.options.varying;
  for (const ProgramNode& node : core.program.nodes) {
    const Problem& p = node.problem;
    const Bounds declared = declared_bounds(p);
    ATTNGRAPH_RETURN_IF_ERROR(check_size("batch", sizes.batch, declared.batch, varying.batch));
    if (is_ragged(p, Side::kQ))
      ATTNGRAPH_RETURN_IF_ERROR(check_size("total_q", sizes.total_q, declared.q_slots, varying.tokens));
    if (is_ragged(p, Side::kKv))
      ATTNGRAPH_RETURN_IF_ERROR(check_size("total_kv", sizes.total_kv, declared.kv_slots, varying.tokens));
    if (is_paged(p))
      ATTNGRAPH_RETURN_IF_ERROR(
          check_size("pages", sizes.pages, std::min(declared.k_pages, declared.v_pages), varying.pages));
  }
  return {};
}

Bounds call_bounds(const Problem& problem, const CallSizes& sizes) {
  Bounds bounds = declared_bounds(problem);
  bounds.batch = sizes.batch.value_or(bounds.batch);
  if (is_ragged(problem, Side::kQ)) bounds.q_slots = sizes.total_q.value_or(bounds.q_slots);
  if (is_ragged(problem, Side::kKv)) bounds.kv_slots = sizes.total_kv.value_or(bounds.kv_slots);
  const bool k_is_paged = problem.has(Role::kPageTableK), v_is_paged = problem.has(Role::kPageTableV);
  bounds.k_pages = k_is_paged ? sizes.pages.value_or(bounds.k_pages) : bounds.batch;
  bounds.v_pages = v_is_paged ? sizes.pages.value_or(bounds.v_pages) : bounds.batch;
  return bounds;
}

int64_t place_call(const PlanCore& core, const CallSizes& sizes, MovedRegions& moved) {
  const WorkspaceLayout& layout = core.workspace;
  const size_t count = std::min(layout.entries().size(), moved.size());
  std::copy_n(layout.regions().begin(), count, moved.begin());
  if (layout.guard_bytes() > 0 || core.options.varying == Varying{} || is_whole(sizes)) return layout.bytes();
  for (size_t slot = 0; slot < core.slots.size(); ++slot) {
    if (core.virtual_regions[slot].index < 0) continue;
    int64_t& bytes = moved[static_cast<size_t>(core.virtual_regions[slot].index)].bytes;
    bytes = 0;
    for (const SlotUse& use : core.slots[slot].uses) {
      const Problem& problem = core.program.nodes[static_cast<size_t>(use.node)].problem;
      bytes = std::max(bytes, use_bytes(problem, use, call_bounds(problem, sizes)));
    }
  }
  return layout.compact({moved.data(), count});
}

}  // namespace attngraph
