#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "attngraph/plan.hpp"
#include "plan/engine.hpp"
#include "plan/slots.hpp"
#include "plan/workspace.hpp"
#include "problem/program.hpp"

namespace attngraph {

/// What timing an engine's ways to run a node found.
///
/// Units: seconds of the whole plan.
struct Tuning {
  int64_t way = 0;
  int64_t num_ways = 1;
  int64_t num_timed = 0;  ///< ways that work and fit the workspace; 0: there was nothing to choose
  double seconds = 0;
  double untuned_seconds = 0;  ///< in the first way that works
};

/// One node's engine and launch parameters. It runs slice after slice, each at most `shape`.
struct NodePlan {
  const Engine* engine = nullptr;
  SliceShape shape;
  std::unique_ptr<const EnginePlan> launch;
  std::vector<EngineSupport> passed_over;  ///< engines before it in the order, with their reasons
  std::optional<Tuning> tuning;            ///< absent: the engine chose its way
};

/// All that a plan knows beside the caller's uids and names: what the cache keeps. Immutable.
struct PlanCore {
  Program program;
  Target target;
  PlanOptions options;
  std::shared_ptr<const EngineSet> engines;
  std::vector<NodePlan> nodes;  ///< by node
  WorkspaceLayout workspace;
  std::vector<RegionId> virtual_regions;  ///< by slot; index -1: bound by the caller
  RegionId binding_check;                 ///< scratch of validate_bindings on a device; index -1: none
  std::vector<SlotFacts> slots;
  std::vector<SlotPair> keep_apart;
};

/// A shared core and the caller's words for its slots.
struct PlanState {
  std::shared_ptr<const PlanCore> core;
  std::vector<SlotName> names;              ///< by slot
  std::vector<std::pair<Uid, int>> by_uid;  ///< sorted

  PlanState(std::shared_ptr<const PlanCore> shared, std::vector<SlotName> slot_names);
  /// The slot, or kNoSlot.
  int find(Uid uid) const;
};

/// An engine's answer to one problem: its own reasons and the limits that no slice could keep.
EngineSupport engine_support(const Engine& engine, const Problem& problem, const Target& target);

/// Plans every node with the first engine of the order that takes it, or with `options.engine`, books all
/// workspace in one ledger, and splits nodes until limits and `max_workspace_bytes` are kept.
///
/// Errors: kUnsupported naming every engine with its reasons, or the smallest attainable workspace.
Result<std::shared_ptr<const PlanCore>> make_plan(const Program& program, const Target& target,
                                                  const PlanOptions& options,
                                                  std::shared_ptr<const EngineSet> engines);

/// The plan with its nodes in the ways that `tunings`, by node, name, at the same splits.
///
/// Errors: those of Engine::plan_way.
Result<std::shared_ptr<const PlanCore>> retuned(const PlanCore& core,
                                                const std::vector<std::optional<Tuning>>& tunings);

/// What the workspace costs when every node runs in so many slices.
struct CurvePoint {
  int64_t slices = 1;  ///< of the node with the most
  int64_t bytes = 0;
};

/// From the plan's own engines: 1, 2, 4 .. slices, down to one sequence and kv head a slice. Plans anew, so
/// it is for explain.
Result<std::vector<CurvePoint>> workspace_curve(const PlanCore& core);

}  // namespace attngraph
