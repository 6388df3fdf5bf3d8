#include "context/autotune.hpp"

#include <algorithm>
#include <chrono>

#include "base/message.hpp"
#include "device/device.hpp"

namespace attngraph {
namespace {

constexpr int kRounds = 7;  ///< samples of each way; the first, in which kernels are loaded, does not count
constexpr int kBackToBack = 3;  ///< executions a sample: the gaps between launches are the device's own

/// A plan in one way of the node that is tuned.
struct Candidate {
  int64_t way = 0;
  std::shared_ptr<const PlanCore> core;
  std::vector<double> seconds;

  double median() const {
    std::vector<double> sorted = seconds;
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }
};

class Tuner {
 public:
  Tuner(const PlanState& state, const TrialCall& call)
      : state_(state), call_(call), tunings_(state.core->nodes.size()) {}

  Result<std::shared_ptr<const PlanCore>> run() {
    ATTNGRAPH_RETURN_IF_ERROR(execute(state_.core));  // the call fits
    for (size_t n = 0; n < tunings_.size(); ++n) ATTNGRAPH_RETURN_IF_ERROR(tune(n));
    return retuned(*state_.core, tunings_);
  }

 private:
  Status tune(size_t n) {
    const PlanCore& core = *state_.core;
    const NodePlan& node = core.nodes[n];
    Tuning& tuning = tunings_[n].emplace();
    const auto num_ways = node.engine->num_ways(core.program.nodes[n].problem, core.target, node.shape);
    if (!num_ways.ok()) return num_ways.status();
    tuning.num_ways = *num_ways;
    if (*num_ways == 1) return {};
    auto candidates = candidates_for(tuning);
    if (!candidates.ok()) return candidates.status();
    if (candidates->empty()) {
      tunings_[n].reset();
      return {};
    }
    ATTNGRAPH_RETURN_IF_ERROR(time_all(*candidates));
    const auto fastest =
        std::min_element(candidates->begin(), candidates->end(),
                         [](const Candidate& a, const Candidate& b) { return a.median() < b.median(); });
    tuning.way = fastest->way;
    tuning.num_timed = static_cast<int64_t>(candidates->size());
    tuning.seconds = fastest->median();
    tuning.untuned_seconds = candidates->front().median();
    fastest_.push_back(fastest->core);
    return {};
  }

  /// Ways of the node whose Tuning is given, with those of the nodes before it as they were found.
  Result<std::vector<Candidate>> candidates_for(Tuning& tuning) const {
    std::vector<Candidate> candidates;
    for (int64_t way = 0; way < tuning.num_ways; ++way) {
      tuning.way = way;
      auto core = retuned(*state_.core, tunings_);
      if (!core.ok() && core.status().code() == Code::kUnsupported) continue;
      if (!core.ok()) return core.status();
      const auto needed_bytes = plan_of(*core).workspace_bytes_for(call_.sizes);
      if (!needed_bytes.ok()) return needed_bytes.status();
      if (*needed_bytes <= call_.workspace.bytes) candidates.push_back({way, std::move(*core), {}});
    }
    tuning.way = 0;
    return candidates;
  }

  /// In turn, so that a device whose clock drifts does so for all.
  Status time_all(std::vector<Candidate>& candidates) const {
    for (int round = 0; round < kRounds; ++round)
      for (Candidate& candidate : candidates) {
        const auto seconds = seconds_of(candidate.core);
        if (!seconds.ok()) return seconds.status();
        if (round > 0) candidate.seconds.push_back(*seconds);
      }
    return {};
  }

  Result<double> seconds_of(const std::shared_ptr<const PlanCore>& core) const {
    const auto launch = [&]() -> Status {
      for (int i = 0; i < kBackToBack; ++i) ATTNGRAPH_RETURN_IF_ERROR(execute(core));
      return {};
    };
    Result<double> seconds = 0.0;
    if (core->target.memory == MemoryKind::kCuda) {
      seconds = device::elapsed_seconds(launch, call_.stream);
    } else {
      const auto begin = std::chrono::steady_clock::now();
      ATTNGRAPH_RETURN_IF_ERROR(launch());
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    if (!seconds.ok()) return seconds;
    return *seconds / kBackToBack;
  }

  Plan plan_of(const std::shared_ptr<const PlanCore>& core) const {
    return Plan(std::make_shared<const PlanState>(core, state_.names));
  }
  Status execute(const std::shared_ptr<const PlanCore>& core) const {
    return attngraph::execute(plan_of(core), call_.pointers, call_.sizes, call_.workspace, call_.stream);
  }

  const PlanState& state_;
  const TrialCall& call_;
  std::vector<std::optional<Tuning>> tunings_;  ///< by node
  std::vector<std::shared_ptr<const PlanCore>>
      fastest_;  ///< keep what an engine built from being built again
};

}  // namespace

Result<std::shared_ptr<const PlanCore>> autotuned(const PlanState& state, const TrialCall& call) {
  if (state.core->target.memory == MemoryKind::kCuda)
    ATTNGRAPH_RETURN_IF_ERROR(
        device::check_not_captured(call.stream, "autotune", "its times are read while it runs"));
  return Tuner(state, call).run();
}

}  // namespace attngraph
