#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attngraph/graph.hpp"

namespace attngraph {

struct PlanState;

/// What a call may bring less of than the graph declares, so that one plan serves a class of shapes.
struct Varying {
  bool batch = false;    ///< sequences
  bool lengths = false;  ///< rows of a sequence: lengths must be bound on both sides
  bool tokens = false;   ///< token slots of the ragged sides
  bool pages = false;    ///< pages of the containers k and v
};
inline bool operator==(const Varying& x, const Varying& y) {
  const auto& [x_batch, x_lengths, x_tokens, x_pages] = x;
  const auto& [y_batch, y_lengths, y_tokens, y_pages] = y;
  return x_batch == y_batch && x_lengths == y_lengths && x_tokens == y_tokens && x_pages == y_pages;
}

inline bool operator!=(const Varying& x, const Varying& y) { return !(x == y); }

/// What one call brings; a member that is absent is what the graph declares, which is the most.
///
/// Units: sequences, token slots (gaps included), pages.
struct CallSizes {
  std::optional<int64_t> batch, total_q, total_kv, pages;
};

/// What the caller asks of a plan beside the graph.
struct PlanOptions {
  std::string engine;  ///< take this engine alone; empty: the first of the ordered list
  std::optional<int64_t> max_workspace_bytes;  ///< find a plan that fits, or refuse
  int64_t guard_bytes = 0;                     ///< pattern round each region, which then share no bytes
  bool validate_bindings = false;              ///< check lengths, offsets and page tables before the launch
  Varying varying;                             ///< sizes that each call may bring less of
};

/// A member added to PlanOptions and not bound here does not compile.
inline bool operator==(const PlanOptions& x, const PlanOptions& y) {
  const auto& [x_engine, x_max, x_guard, x_validate, x_varying] = x;
  const auto& [y_engine, y_max, y_guard, y_validate, y_varying] = y;
  return x_engine == y_engine && x_max == y_max && x_guard == y_guard && x_validate == y_validate &&
         x_varying == y_varying;
}
inline bool operator!=(const PlanOptions& x, const PlanOptions& y) { return !(x == y); }

/// Why an engine does not take a graph: one gate, limit or missing part.
struct Reason {
  Code code = Code::kUnsupported;
  std::string subject;  ///< the tensor, attribute or target property
  std::string has;      ///< its value
  std::string wants;    ///< what is accepted
  std::string since;    ///< the version that lifts the limit; empty: none known
};

/// One engine's answer to one graph.
struct EngineSupport {
  std::string engine;
  std::vector<Reason> reasons;  ///< empty: the engine takes the graph
  bool ok() const { return reasons.empty(); }
};

/// A graph ready to run: engine, workspace layout, launch parameters. Immutable and cheap to copy.
///
/// Thread: one plan may run from many threads at once, each with its own workspace.
class ATTNGRAPH_API Plan {
 public:
  /// Bytes that execute may touch in the workspace, 256-byte aligned; 0 is common.
  int64_t workspace_bytes() const;
  /// The same for a call of these sizes; never more than workspace_bytes().
  ///
  /// Errors: kBadBinding naming a size that is negative, above what the graph declares, or not among
  ///         those that PlanOptions::varying lets vary.
  Result<int64_t> workspace_bytes_for(const CallSizes& sizes) const;
  /// Name of the engine of each node, in node order.
  std::vector<std::string> engines() const;
  /// Place of a tensor in the pointer table, or -1 when execute needs no pointer for it.
  int slot(Uid uid) const;
  int num_slots() const;
  /// Bytes that the tensor's storage must hold, counted from its pointer; -1 for an unknown uid.
  int64_t footprint_bytes(Uid uid) const;
  /// Two runs on the same data give the same bits.
  bool deterministic() const;

  /// Problem in one line, engines with reasons, workspace map as a table.
  std::string explain() const;
  /// The same as JSON.
  std::string explain_json() const;
  /// The workspace map as an SVG picture: bytes across, phases down.
  std::string explain_svg() const;

  const PlanState& state() const { return *state_; }
  explicit Plan(std::shared_ptr<const PlanState> state);

 private:
  std::shared_ptr<const PlanState> state_;
};

}  // namespace attngraph
