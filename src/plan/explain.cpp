#include "plan/explain.hpp"

#include <array>
#include <charconv>
#include <iomanip>
#include <sstream>

#include "base/message.hpp"
#include "plan/slices.hpp"

namespace attngraph {
namespace {

void print_node(std::ostream& out, const PlanCore& core, size_t n) {
  const Problem& problem = core.program.nodes[n].problem;
  const NodePlan& node = core.nodes[n];
  out << "node " << n << ": " << problem << '\n';
  out << "  engine " << node.engine->name() << ": " << node.launch->describe() << '\n';
  if (node.tuning) out << "  autotuned: " << tuning_text(*node.tuning) << '\n';
  const SliceCounts counts = count_slices(node.shape, problem.batch, problem.kv_heads);
  if (counts.total() > 1)
    out << "  " << counts.total() << " slices of at most " << node.shape.batch << " sequences and "
        << node.shape.kv_heads << " kv heads\n";
  for (const EngineSupport& passed : node.passed_over)
    for (const Reason& reason : passed.reasons)
      out << "  passed over " << passed.engine << ": " << describe(reason) << '\n';
}

void print_workspace(std::ostream& out, const WorkspaceLayout& workspace) {
  out << "workspace: " << workspace.bytes() << " bytes\n";
  if (workspace.entries().empty()) return;
  out << std::right << std::setw(14) << "offset" << std::setw(14) << "bytes" << std::setw(8) << "phases"
      << std::setw(6) << "fill"
      << "  region\n";
  for (size_t i = 0; i < workspace.entries().size(); ++i) {
    const WorkspaceLayout::Entry& entry = workspace.entries()[i];
    out << std::setw(14) << workspace.regions()[i].offset << std::setw(14) << entry.booking.bytes
        << std::setw(8) << phases_text(entry.booking.lifetime) << std::setw(6) << name_of(entry.booking.fill)
        << "  node " << entry.node << ' ' << entry.booking.name << '\n';
  }
}

/// Nothing when slices do not change the size, as with an engine that books scratch alone.
void print_curve(std::ostream& out, const PlanCore& core) {
  const auto curve = workspace_curve(core);
  if (!curve.ok() || curve->front().bytes == curve->back().bytes) return;
  out << "workspace by number of slices:\n" << std::setw(14) << "slices" << std::setw(20) << "bytes" << '\n';
  for (const CurvePoint& point : *curve)
    out << std::setw(14) << point.slices << std::setw(20) << point.bytes << '\n';
}

}  // namespace

std::string target_text(const Target& target) {
  if (target.memory == MemoryKind::kHost)
    return text("host ", target.isa, ", ", target.num_threads, " threads");
  return text("cuda sm_", target.sm_version, ", ", target.sm_count, " SMs");
}

std::string varying_text(const Varying& varying) {
  std::string names;
  const auto add = [&](bool varies, const char* name) {
    if (varies) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(varying.batch, "batch"), add(varying.lengths, "lengths");
  add(varying.tokens, "tokens"), add(varying.pages, "pages");
  return names;
}

std::string two_decimals(double value) {
  std::array<char, 32> digits;
  return {
      digits.data(),
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed, 2).ptr};
}

std::string tuning_text(const Tuning& tuning) {
  if (tuning.num_ways == 1) return "the engine has one way to run it";
  const auto microseconds = [](double seconds) { return text(two_decimals(1e6 * seconds), " us"); };
  return text("way ", tuning.way + 1, " of ", tuning.num_ways, ", the fastest of ", tuning.num_timed,
              " that work in the workspace: ", microseconds(tuning.seconds), ", ",
              microseconds(tuning.untuned_seconds), " before");
}

std::string phases_text(const Lifetime& lifetime) {
  if (lifetime.first == lifetime.last) return text(lifetime.first);
  return text(lifetime.first, '-', lifetime.last);
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return text(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return text(two_decimals(value), ' ', kUnits[unit]);
}

std::string explain_text(const PlanState& state) {
  const PlanCore& core = *state.core;
  std::ostringstream out;
  out << "target: " << target_text(core.target) << '\n';
  if (core.options.varying != Varying{}) out << "varying: " << varying_text(core.options.varying) << '\n';
  for (size_t n = 0; n < core.nodes.size(); ++n) print_node(out, core, n);
  print_workspace(out, core.workspace);
  print_curve(out, core);
  return std::move(out).str();
}

std::string Plan::explain() const { return explain_text(*state_); }
std::string Plan::explain_json() const { return attngraph::explain_json(*state_); }
std::string Plan::explain_svg() const { return attngraph::explain_svg(*state_); }

}  // namespace attngraph
