#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attngraph/status.hpp"
#include "cli/bench_case.hpp"
#include "cli/progress.hpp"

namespace attngraph::cli {

/// How to take one sample of something, and what its figure is.
struct Timing {
  std::string unit = "us";  ///< of the figure: "us", "GFLOP/s" or "GB/s"
  double work = 0;          ///< operations or bytes of one call; 0: the figure is the time of one call
  std::function<Result<double>()> seconds;  ///< takes a sample: the time of one call
};

/// A sample that reads the clock once around `calls` calls.
std::function<Result<double>()> average_of(int64_t calls, std::function<Status()> call);
/// The same by the device's own clock, for calls that launch work there.
std::function<Result<double>()> device_average_of(int64_t calls, std::function<Status()> call);

/// One line of a report in the making.
struct Timed {
  std::string name;
  std::string ceiling;                     ///< name of the Timed that the figure is related to; empty: none
  const AttentionCase* problem = nullptr;  ///< for the report; null: no attention
  Timing timing;
};

/// What was measured, in the unit of the Timing.
struct Figure {
  std::string name, unit, ceiling;
  const AttentionCase* problem = nullptr;
  double median = 0, p10 = 0, p90 = 0;
  double ratio = 0;  ///< median over rounds of the figure by its ceiling's of the same round; 0: none
};

/// The sorted values' element at `share` of the way from the first to the last, nearest rank.
double quantile(std::vector<double> values, double share);

/// Samples everything in turn, `rounds` times after one round that does not count: a machine whose
/// speed drifts is the same for all.
///
/// Errors: those of a sample, naming it.
Result<std::vector<Figure>> measure(const std::vector<Timed>& all, int64_t rounds, Progress& progress);

/// What a figure is worth nothing without.
struct Machine {
  std::string cpu, isa, compiler, engine;
  std::string device;  ///< where the engine runs; empty: on the host
  int64_t threads = 0;
};

/// Something that was not measured.
struct Skipped {
  std::string name, reason;
};

struct Report {
  Machine machine;
  int64_t rounds = 0;
  std::vector<Figure> figures;
  std::vector<Skipped> skipped;
};

std::string describe(const Machine& machine);
/// One group's figures for people.
std::string as_table(const std::vector<Figure>& figures);
std::string as_json(const Report& report);

}  // namespace attngraph::cli
