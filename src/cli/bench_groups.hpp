#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attngraph/context.hpp"
#include "cli/bench_rounds.hpp"

namespace attngraph::cli {

/// What the rows of all groups are measured with.
struct BenchSetup {
  Context& context;
  Target target;
  std::string engine;
  bool autotunes = false;  ///< attention rows are measured in the engine's fastest way
};

/// Something that can be measured; it costs nothing before `make`.
struct BenchRow {
  std::string name;                        ///< begins with the group's name and a slash
  std::string ceiling;                     ///< name of a row of the same group; empty: none
  const AttentionCase* problem = nullptr;  ///< null: no attention
  /// Errors: kUnsupported for what this machine or build cannot run.
  std::function<Result<Timing>(const BenchSetup&)> make;
};

/// Rows that are measured together, round by round.
struct BenchGroup {
  const char* name;
  std::vector<BenchRow> rows;
};

/// Time of the calls around execute, in microseconds; for an engine of a device, of a launch, too.
BenchGroup host_group(MemoryKind memory);
/// Attention of full sequences against the multiply-add loop.
BenchGroup cpu_group();
/// Attention of full sequences on a device.
BenchGroup gpu_group();
/// Few queries against the read bandwidth of the engine's memory, on a device its copy bandwidth.
BenchGroup decode_group(MemoryKind memory);
/// Packed sequences against dense ones with as many kept elements.
BenchGroup packed_group(MemoryKind memory);
/// Prefill over paged keys against keys that lie together, on a device.
BenchGroup paged_group();
/// Plans with a workspace budget against plans without.
BenchGroup planner_group(MemoryKind memory);

}  // namespace attngraph::cli
