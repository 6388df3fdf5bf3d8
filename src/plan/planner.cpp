#include "plan/planner.hpp"

#include <algorithm>

#include "base/message.hpp"
#include "plan/call.hpp"
#include "plan/slices.hpp"
#include "plan/splitting.hpp"
#include "problem/bound_data.hpp"

namespace attngraph {
namespace {

/// What one choice of splits leads to.
struct Draft {
  std::vector<std::unique_ptr<const EnginePlan>> launches;
  WorkspaceLayout workspace;
  std::vector<RegionId> virtual_regions;
  RegionId binding_check;
};

SplitLadder ladder_of(const PlanCore& core, size_t node) {
  const Problem& problem = core.program.nodes[node].problem;
  return {problem.batch, problem.kv_heads};
}

/// A virtual tensor lives from the node that makes it to the last one that reads it.
Status book_virtual_tensors(const PlanCore& core, int node, Draft& draft) {
  for (size_t slot = 0; slot < core.slots.size(); ++slot) {
    const SlotFacts& facts = core.slots[slot];
    const auto here = std::find_if(facts.uses.begin(), facts.uses.end(),
                                   [&](const SlotUse& use) { return use.node == node; });
    if (!facts.is_virtual || here == facts.uses.end()) continue;
    RegionId& region = draft.virtual_regions[slot];
    if (region.index < 0) {
      Booking booking;
      booking.name = text("virtual ", name_of(here->role));
      booking.bytes = facts.footprint_bytes;
      auto booked = draft.workspace.book(std::move(booking));
      if (!booked.ok()) return booked.status();
      region = *booked;
    }
    draft.workspace.cover(region);
  }
  return {};
}

/// Bound data is checked before the first launch.
Status book_binding_check(const PlanCore& core, Draft& draft) {
  if (!core.options.validate_bindings || core.target.memory == MemoryKind::kHost) return {};
  Booking booking;
  booking.name = "binding check";
  booking.bytes = sizeof(WrongEntry);
  auto booked = draft.workspace.book(std::move(booking));
  if (booked.ok()) draft.binding_check = *booked;
  return booked.status();
}

Result<std::unique_ptr<const EnginePlan>> plan_node(const PlanCore& core, size_t n, const SliceShape& shape,
                                                    WorkspaceLayout& workspace) {
  const NodePlan& node = core.nodes[n];
  const Problem& problem = core.program.nodes[n].problem;
  if (node.tuning) return node.engine->plan_way(node.tuning->way, problem, core.target, shape, workspace);
  return node.engine->plan(problem, core.target, shape, workspace);
}

/// Plans and books every node in slices of its shape.
Result<Draft> make_draft(const PlanCore& core, const std::vector<SliceShape>& shapes) {
  Draft draft;
  draft.virtual_regions.resize(core.slots.size());
  for (size_t n = 0; n < core.nodes.size(); ++n) {
    draft.workspace.open_node();
    if (n == 0) ATTNGRAPH_RETURN_IF_ERROR(book_binding_check(core, draft));
    auto launch = plan_node(core, n, shapes[n], draft.workspace);
    if (!launch.ok()) return launch.status();
    draft.launches.push_back(std::move(*launch));
    ATTNGRAPH_RETURN_IF_ERROR(book_virtual_tensors(core, static_cast<int>(n), draft));
    draft.workspace.close_node();
  }
  ATTNGRAPH_RETURN_IF_ERROR(draft.workspace.place(core.options.guard_bytes));
  return draft;
}

std::vector<SliceShape> shapes_of(const PlanCore& core, const std::vector<int64_t>& rungs) {
  std::vector<SliceShape> shapes;
  for (size_t n = 0; n < rungs.size(); ++n) shapes.push_back(ladder_of(core, n).shape(rungs[n]));
  return shapes;
}

void keep(PlanCore& core, const std::vector<SliceShape>& shapes, Draft draft) {
  for (size_t n = 0; n < core.nodes.size(); ++n) {
    core.nodes[n].shape = shapes[n];
    core.nodes[n].launch = std::move(draft.launches[n]);
  }
  core.workspace = std::move(draft.workspace);
  core.virtual_regions = std::move(draft.virtual_regions);
  core.binding_check = draft.binding_check;
}

/// Picks engines, then splits, for one program.
class Planner {
 public:
  explicit Planner(PlanCore& core) : core_(core) {}

  Status run() {
    for (const ProgramNode& node : core_.program.nodes)
      ATTNGRAPH_RETURN_IF_ERROR(choose_engine(node.problem));
    ATTNGRAPH_RETURN_IF_ERROR(split_for_limits());
    auto draft = make_draft(rungs_);
    if (!draft.ok()) return draft.status();
    const auto& budget = core_.options.max_workspace_bytes;
    if (budget && draft->workspace.bytes() > *budget) {
      ATTNGRAPH_RETURN_IF_ERROR(split_for_budget(*budget));
      draft = make_draft(rungs_);
      if (!draft.ok()) return draft.status();
    }
    keep(core_, shapes_of(core_, rungs_), std::move(*draft));
    return {};
  }

 private:
  const Problem& problem(size_t node) const { return core_.program.nodes[node].problem; }
  SplitLadder ladder(size_t node) const { return ladder_of(core_, node); }

  Status choose_engine(const Problem& problem) {
    NodePlan node;
    std::string reasons;
    auto candidates = candidates_for(problem);
    if (!candidates.ok()) return candidates.status();
    for (const Engine* engine : *candidates) {
      EngineSupport support = engine_support(*engine, problem, core_.target);
      if (support.ok()) ATTNGRAPH_RETURN_IF_ERROR(try_engine(*engine, problem, node, support));
      if (support.ok()) {
        node.engine = engine;
        core_.nodes.push_back(std::move(node));
        return {};
      }
      for (const Reason& reason : support.reasons)
        reasons += text("\n  ", support.engine, ": ", describe(reason));
      node.passed_over.push_back(std::move(support));
    }
    return fail(Code::kUnsupported, "no engine runs ", problem, reasons);
  }

  /// Adds the reasons that come from the options, and from planning where an engine refuses late; what it has
  /// built then is kept for the draft. A failure is a reason, too, unless the engine was named: a broken
  /// library must not keep the next engine from its work.
  Status try_engine(const Engine& engine, const Problem& problem, NodePlan& node,
                    EngineSupport& support) const {
    if (core_.options.varying.batch && !engine.takes_fewer_sequences())
      support.reasons.push_back(
          {Code::kUnsupported, "varying", "batch", "a batch that every call brings whole", ""});
    if (!support.ok() || !engine.refuses_late()) return {};
    WorkspaceLayout trial;
    trial.open_node();
    auto launch = engine.plan(problem, core_.target, {problem.batch, problem.kv_heads}, trial);
    if (launch.ok())
      node.launch = std::move(*launch);
    else if (launch.status().code() == Code::kUnsupported || core_.options.engine.empty())
      support.reasons.push_back({launch.status().code(), "planning",
                                 text("refused: ", launch.status().message()),
                                 "another graph or another engine", ""});
    else
      return launch.status();
    return {};
  }

  Result<std::vector<const Engine*>> candidates_for(const Problem& problem) const {
    if (core_.engines->engines.empty()) return fail(Code::kUnsupported, core_.engines->why_empty);
    if (core_.options.engine.empty()) return core_.engines->ordered(problem, core_.target);
    const auto engine = core_.engines->named(core_.options.engine);
    ATTNGRAPH_RETURN_IF_ERROR(engine.status());
    return std::vector{*engine};
  }

  Status split_for_limits() {
    for (size_t n = 0; n < core_.nodes.size(); ++n) {
      const SplitLadder splits = ladder(n);
      rungs_.push_back(first_fitting(0, splits.num_rungs() - 1, [&](int64_t rung) {
        return exceeded_limit(*core_.nodes[n].engine, problem(n), splits.shape(rung)) == nullptr;
      }));
    }
    return {};
  }

  /// Node by node, with all later ones at their finest: finds a plan that fits whenever the finest
  /// splits do, and the fewest slices when there is one node.
  Status split_for_budget(int64_t budget) {
    std::vector<int64_t> coarse = rungs_;
    for (size_t n = 0; n < rungs_.size(); ++n) rungs_[n] = ladder(n).num_rungs() - 1;
    auto finest = make_draft(rungs_);
    if (!finest.ok()) return finest.status();
    if (finest->workspace.bytes() > budget)
      return fail(Code::kUnsupported, "max_workspace_bytes: is ", budget, "; the smallest attainable is ",
                  finest->workspace.bytes());
    for (size_t n = 0; n < rungs_.size(); ++n) {
      Status failure;
      rungs_[n] = first_fitting(coarse[n], rungs_[n], [&](int64_t rung) {
        std::vector<int64_t> trial = rungs_;
        trial[n] = rung;
        auto draft = make_draft(trial);
        if (!draft.ok()) failure = draft.status();
        return draft.ok() && draft->workspace.bytes() <= budget;
      });
      ATTNGRAPH_RETURN_IF_ERROR(failure);
    }
    return {};
  }

  Result<Draft> make_draft(const std::vector<int64_t>& rungs) const {
    return attngraph::make_draft(core_, shapes_of(core_, rungs));
  }

  PlanCore& core_;
  std::vector<int64_t> rungs_;  ///< by node
};

/// "forward or backward".
std::string passes_of(const Engine& engine) {
  std::string names;
  for (const auto& [pass, name] : EnumNames<Pass>::table)
    if (engine.runs(pass)) names += text(names.empty() ? "" : " or ", name);
  return names;
}

}  // namespace

EngineSupport engine_support(const Engine& engine, const Problem& problem, const Target& target) {
  EngineSupport support{std::string(engine.name()), {}};
  if (!engine.runs(problem.pass)) {
    support.reasons.push_back(
        {Code::kUnsupported, "node", std::string(name_of(problem.pass)), passes_of(engine), ""});
    return support;
  }
  support.reasons = engine.refusals(problem, target);
  if (!support.ok()) return support;
  const SplitLadder splits(problem.batch, problem.kv_heads);
  const SliceShape finest = splits.shape(splits.num_rungs() - 1);
  if (const Limit* limit = exceeded_limit(engine, problem, finest))
    support.reasons.push_back({Code::kUnsupported, limit->expression,
                               text(limit->count(problem, finest), " for one sequence and kv head"),
                               text("at most ", limit->bound, ": ", limit->reason), ""});
  return support;
}

Result<std::shared_ptr<const PlanCore>> make_plan(const Program& program, const Target& target,
                                                  const PlanOptions& options,
                                                  std::shared_ptr<const EngineSet> engines) {
  auto core = std::make_shared<PlanCore>();
  core->program = program;
  core->target = target;
  core->options = options;
  core->engines = std::move(engines);
  core->slots = slot_facts(program);
  core->keep_apart = pairs_to_keep_apart(core->slots);
  ATTNGRAPH_RETURN_IF_ERROR(check_varying(program, options.varying));
  ATTNGRAPH_RETURN_IF_ERROR(Planner(*core).run());
  const size_t num_regions = core->workspace.entries().size();
  if (options.varying != Varying{} && num_regions > kMaxMovedRegions)
    return fail(Code::kUnsupported, "varying: the plan has ", num_regions, " workspace regions; at most ",
                kMaxMovedRegions, " can move from call to call");
  return std::shared_ptr<const PlanCore>(std::move(core));
}

Result<std::shared_ptr<const PlanCore>> retuned(const PlanCore& core,
                                                const std::vector<std::optional<Tuning>>& tunings) {
  auto made = std::make_shared<PlanCore>();
  made->program = core.program;
  made->target = core.target;
  made->options = core.options;
  made->engines = core.engines;
  made->slots = core.slots;
  made->keep_apart = core.keep_apart;
  std::vector<SliceShape> shapes;
  for (size_t n = 0; n < core.nodes.size(); ++n) {
    const NodePlan& node = core.nodes[n];
    made->nodes.push_back({node.engine, node.shape, nullptr, node.passed_over, tunings[n]});
    shapes.push_back(node.shape);
  }
  auto draft = make_draft(*made, shapes);
  if (!draft.ok()) return draft.status();
  keep(*made, shapes, std::move(*draft));
  return std::shared_ptr<const PlanCore>(std::move(made));
}

Result<std::vector<CurvePoint>> workspace_curve(const PlanCore& core) {
  std::vector<CurvePoint> curve;
  std::vector<int64_t> rungs(core.nodes.size());
  bool is_finest = false;
  for (int64_t pieces = 1; !is_finest; pieces *= 2) {
    CurvePoint point;
    is_finest = true;
    for (size_t n = 0; n < rungs.size(); ++n) {
      const SplitLadder ladder = ladder_of(core, n);
      const Problem& problem = core.program.nodes[n].problem;
      rungs[n] = std::min(pieces, ladder.num_rungs()) - 1;
      is_finest &= pieces >= ladder.num_rungs();
      point.slices = std::max(point.slices,
                              count_slices(ladder.shape(rungs[n]), problem.batch, problem.kv_heads).total());
    }
    auto draft = make_draft(core, shapes_of(core, rungs));
    if (!draft.ok()) return draft.status();
    point.bytes = draft->workspace.bytes();
    curve.push_back(point);
  }
  return curve;
}

PlanState::PlanState(std::shared_ptr<const PlanCore> shared, std::vector<SlotName> slot_names)
    : core(std::move(shared)), names(std::move(slot_names)) {
  for (size_t slot = 0; slot < names.size(); ++slot)
    by_uid.emplace_back(names[slot].uid, static_cast<int>(slot));
  std::sort(by_uid.begin(), by_uid.end());
}

int PlanState::find(Uid uid) const {
  const auto at = std::lower_bound(by_uid.begin(), by_uid.end(), std::pair{uid, 0});
  return at == by_uid.end() || at->first != uid ? kNoSlot : at->second;
}

}  // namespace attngraph
