#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attngraph/plan.hpp"
#include "attngraph/types.hpp"
#include "plan/workspace.hpp"
#include "problem/buffers.hpp"
#include "problem/problem.hpp"

namespace attngraph {

/// The part of a problem that one launch covers: sequences batch_begin .. batch_end-1 and the query
/// heads of kv heads kv_head_begin .. kv_head_end-1. Indices stay those of the whole problem, so
/// addresses, dropout and masks do not change with the split.
///
/// A plan runs its slices in order, sequences ascending, heads ascending within them; only slices of
/// one sequence split heads. What sums over batch or heads (dbias of a broadcast bias, dsink,
/// dalibi_slopes) starts on the slice that is_first and is complete after the one that is_last;
/// accumulators stay in the workspace between them and are summed in the same order for any split.
struct Slice {
  int64_t batch_begin = 0, batch_end = 0;
  int64_t kv_head_begin = 0, kv_head_end = 0;
  bool is_first = true, is_last = true;
};

/// Largest slice that a plan will run.
struct SliceShape {
  int64_t batch = 0, kv_heads = 0;
};

/// One index range or grid limit of an engine: `count` of a launch must stay at or below `bound`.
struct Limit {
  const char* expression;                               ///< for messages: "batch * q_heads"
  int64_t (*count)(const Problem&, const SliceShape&);  ///< saturates at the largest int64
  int64_t bound;                                        ///< inclusive
  const char* reason;
  const char* source;
};

/// A workspace as execute passes it to an engine: base pointer and the placed regions.
struct PlacedWorkspace {
  std::byte* base = nullptr;
  const WorkspaceLayout* layout = nullptr;
  std::span<const Region> moved = {};  ///< places in a call of smaller sizes; empty: the layout's

  const Region& region(RegionId id) const {
    return (moved.empty() ? layout->regions() : moved)[static_cast<size_t>(id.index)];
  }
  std::byte* operator[](RegionId id) const { return base + region(id).offset; }
};

/// The launch parameters of one engine for one problem. Immutable; runs from many threads at once.
class EnginePlan {
 public:
  virtual ~EnginePlan() = default;
  /// Launches one slice on `stream`: no allocation, no lock, nothing decided.
  virtual Status run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
                     void* stream) const = 0;
  /// Two runs on the same data give the same bits.
  virtual bool deterministic() const { return true; }
  /// Launch parameters in one line, for explain.
  virtual std::string describe() const = 0;
};

/// An engine: what it takes and how it plans. Pure and thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string_view name() const = 0;
  /// Passes that the engine has kernels for; it is asked about no other.
  virtual bool runs(Pass pass) const { return pass != Pass::kMerge; }
  /// Adds to a target read from the current device what this engine alone finds out about it.
  virtual void complete(Target&) const {}
  /// All reasons why the engine does not take the problem on the target; none: plan() may fail only
  /// with kBackend.
  virtual std::vector<Reason> refusals(const Problem& problem, const Target& target) const = 0;
  /// plan() may answer kUnsupported as well: whether a library has a kernel is known when it has built one.
  virtual bool refuses_late() const { return false; }
  /// One plan runs slices of any size up to its shape, so that a call may bring fewer sequences.
  virtual bool takes_fewer_sequences() const { return true; }
  virtual std::span<const Limit> limits() const { return {}; }
  /// Books every byte that run() will use for slices up to `shape`. Phases of lifetimes count the
  /// engine's own steps from 0.
  virtual Result<std::unique_ptr<const EnginePlan>> plan(const Problem& problem, const Target& target,
                                                         const SliceShape& shape,
                                                         WorkspaceLayout& workspace) const = 0;
  /// Ways in which slices of `shape` could run, for who times them; one: there is nothing to tune.
  ///
  /// Errors: those of plan().
  virtual Result<int64_t> num_ways(const Problem&, const Target&, const SliceShape&) const {
    return int64_t{1};
  }
  /// plan() in one of the ways, 0 .. num_ways() - 1, the promising ones first.
  ///
  /// Errors: also kUnsupported for a way that turns out not to work.
  virtual Result<std::unique_ptr<const EnginePlan>> plan_way(int64_t /*way*/, const Problem& problem,
                                                             const Target& target, const SliceShape& shape,
                                                             WorkspaceLayout& workspace) const {
    return plan(problem, target, shape, workspace);
  }
};

/// The reason in words: "qk_dim is 12; needs a multiple of 8".
std::string describe(const Reason& reason);

/// The one refusal of engines that run on the host: "target is sm_90; needs host memory".
std::vector<Reason> needs_host(const Target& target);

/// The refusals of engines that compute scores in float32, where `scale` and `softcap` with their quotient,
/// in units of log2, must neither overflow nor vanish: "scale is 3e+38; needs a magnitude of 2.35e+38 at
/// most".
std::vector<Reason> needs_float_scores(const Problem& problem);

/// True when products q.k may stand for scores until the exponential: `scale` keeps their order, and of two
/// whose difference leaves float32 the lesser weighs nothing.
bool keeps_order_of_products(const Problem& problem);

/// Engines of one pass and memory kind are tried in the order of the first rows that name them.
struct OrderRow {
  Pass pass;
  MemoryKind memory;
  std::string_view engine;
  bool (*covers)(const Problem&, const Target&) = nullptr;  ///< the problems that it counts for; null: all
};

/// The engines of a context. Its plans share it, so that they may outlive the context.
struct EngineSet {
  std::vector<std::unique_ptr<const Engine>> engines;
  std::span<const OrderRow> order;
  std::string why_empty;  ///< when there is no engine: what left none

  /// "cpu, reference".
  std::string names() const;
  /// The engine, or null.
  const Engine* find(std::string_view name) const;
  /// The engine that a caller asks for.
  ///
  /// Errors: kUnsupported "engine: is <name>; this build has <names>".
  Result<const Engine*> named(std::string_view name) const;
  /// Where an engine's plans run: the memory of its rows in the order; the host's without a row.
  MemoryKind memory_of(std::string_view name) const;
  /// All engines: those with a row in the order of the rows, then the others, which have reasons to refuse.
  std::vector<const Engine*> ordered(const Problem& problem, const Target& target) const;
};

}  // namespace attngraph
