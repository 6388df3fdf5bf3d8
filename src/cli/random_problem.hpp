#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attngraph/graph.hpp"
#include "cli/case.hpp"
#include "cli/step_run.hpp"
#include "graph/role.hpp"
#include "problem/problem.hpp"

namespace attngraph::cli {

/// How one tensor lies in memory.
struct Placement {
  std::array<int, 4> order = {3, 2, 1, 0};  ///< axes, fastest first
  std::array<int64_t, 4> padding = {};      ///< elements left free behind each axis of `order`
  std::optional<int> broadcast_axis;        ///< this axis has stride 0
  bool ragged = false;
  bool token_offsets = true;              ///< offsets count tokens; false: elements
  bool wide_offsets = false;              ///< offsets are int64
  bool by_lengths = false;                ///< the offsets are the side's cu lengths
  int64_t max_gap = 0;                    ///< token slots left free before and after each sequence
  std::optional<int64_t> hostile_offset;  ///< given for the first sequence
  bool aligned_to_element = false;        ///< promises no more than one element's alignment

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// How the lengths of one side are given.
struct Lengths {
  enum class Form : uint8_t { kNone, kPlain, kCumulative } form = Form::kNone;
  bool wide = false;              ///< int64
  std::vector<int64_t> by_batch;  ///< as written, even when wrong

  friend bool operator==(const Lengths&, const Lengths&) = default;
};

/// One random problem as choices, from which the graph and all data follow. The defaults are the
/// simplest choice, so that a failing problem can be made smaller member by member.
struct RandomProblem {
  uint64_t seed = 0;  ///< of the data
  Pass pass = Pass::kForward;
  DataType io = DataType::kF32;
  int64_t batch = 1, group = 1, kv_heads = 1, q_len = 1, kv_len = 1, qk_dim = 1, v_dim = 1;

  SdpaAttributes attributes;
  Lengths q_lengths, kv_lengths;
  int64_t spare_slots = 0;  ///< of a ragged side's capacity, behind the last sequence

  std::array<bool, kNumRoles> has = {};  ///< optional inputs and requested outputs
  std::array<Placement, kNumRoles> placement;
  enum class Sharing : uint8_t { kNone, kKv, kQkv } sharing = Sharing::kNone;  ///< interleaved inputs
  bool shared_gradients = false;                                               ///< dq, dk, dv likewise
  bool like_primals = false;  ///< ragged gradients share the offsets of their primals
  std::array<bool, 4> bias_full = {}, mask_full = {};  ///< axes that bias and mask do not broadcast
  DataType bias_dtype = DataType::kF32, dbias_dtype = DataType::kF32;
  int slopes_rank = 1;  ///< 1: [heads], 2: [1, heads], 3: [batch, heads]
  bool stats_rank3 = false;
  bool wide_seed = true;     ///< the dropout seed and offset are int64
  int64_t page_size = 0;     ///< 0: not paged
  int64_t hostile_page = 0;  ///< written for the first page of the first sequence unless 0

  bool wants(Role role) const { return has[static_cast<size_t>(role)]; }
  const Placement& operator[](Role role) const { return placement[static_cast<size_t>(role)]; }
  Placement& operator[](Role role) { return placement[static_cast<size_t>(role)]; }
  int64_t q_heads() const { return group * kv_heads; }
  bool is_ragged(Side side) const;

  friend bool operator==(const RandomProblem&, const RandomProblem&) = default;
};

/// How large extents may become.
enum class ProblemSize : uint8_t { kSmall, kLarge };

/// kAligned: 16-bit types in layouts whose rows move in pieces of 16 bytes, as kernels for tensor cores ask,
/// and rarely what such kernels refuse.
enum class ProblemRows : uint8_t { kAny, kAligned };

/// The problem of a seed: the same on every machine.
RandomProblem draw_problem(uint64_t seed, ProblemSize size, ProblemRows rows = ProblemRows::kAny);

/// The graph of one pass of a problem, with each tensor under the uid of its role.
Graph graph_of(const RandomProblem& problem, Pass pass);

/// Uid of the tensor of a role, and of its offsets, in graph_of().
constexpr Uid uid_of(Role role) { return static_cast<Uid>(role) + 1; }
Uid offsets_uid_of(const RandomProblem& problem, Role role);

/// A case of one step that compares with the reference. What the contract does not read holds NaN;
/// o and stats of a backward problem come from the reference engine's forward.
///
/// Errors: those of the library for a graph that it refuses or a forward that does not run.
Result<Case> case_of(const RandomProblem& problem, const Library& library);

/// Simpler problems than this one, the boldest simplification first.
std::vector<RandomProblem> simpler(const RandomProblem& problem);

}  // namespace attngraph::cli
