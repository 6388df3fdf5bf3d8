#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "attngraph/graph.hpp"
#include "attngraph/plan.hpp"
#include "cli/case.hpp"
#include "problem/program.hpp"

namespace attngraph::cli {

/// What is drawn for a graph whose file brings no data.
struct DataOptions {
  uint64_t seed = 0;
  int64_t max_gap = 0;  ///< token slots left free before a sequence, where capacity allows
  std::optional<std::vector<int64_t>> q_lengths, kv_lengths;  ///< absent: drawn
};

/// Data for every input of a graph: N(0,1), lengths within capacities, offsets that agree with them
/// and with the tensors' multipliers, pages in random order, masks that drop a tenth of the keys.
///
/// Errors: kInvalidGraph for lengths that do not suit the graph, and for tensors that share offsets
///         which no packing satisfies.
Result<std::map<Uid, Source>> draw_data(const Graph& graph, const Plan& plan, const DataOptions& options);

}  // namespace attngraph::cli
