#include <algorithm>
#include <array>
#include <fstream>

#include "base/enum_names.hpp"
#include "base/message.hpp"
#include "cli/bench_groups.hpp"
#include "cli/engines.hpp"
#include "cli/files.hpp"
#include "cli/program.hpp"
#include "device/device.hpp"
#include "engine/cpu/isa.hpp"

namespace attngraph::cli {
namespace {

constexpr std::array kOptions = {
    Option{"--filter", "TEXT", "measure the rows whose names contain TEXT, such as host or \"f32 d128\""},
    Option{"--rounds", "N", "samples of each row (default 10)"},
    Option{"--threads", "N", "threads of the engine and of the ceilings (default: all)"},
    Option{"--isa", "NAME", "portable, avx2, avx512 or avx512bf16 (default: the machine's best)"},
    Option{"--engine", "NAME", "measure this engine (default cpu)"},
    Option{"--autotune", nullptr, "time the ways that the engine knows first, and measure the fastest"},
    Option{"--json", "FILE", "write the figures to FILE, too"},
};

// --- rows ----------------------------------------------------------------------------------------
std::vector<BenchGroup> all_groups(MemoryKind memory) {
  if (memory == MemoryKind::kCuda)
    return {host_group(memory),   gpu_group(),   decode_group(memory),
            packed_group(memory), paged_group(), planner_group(memory)};
  return {host_group(memory), cpu_group(), decode_group(memory), packed_group(memory), planner_group(memory)};
}

/// Leaves the rows that the filter names, and their ceilings.
void select(BenchGroup& group, const std::string& filter) {
  std::vector<BenchRow> chosen;
  const auto is_named = [&](const BenchRow& row) { return row.name.find(filter) != std::string::npos; };
  for (const BenchRow& row : group.rows)
    if (is_named(row) || std::any_of(group.rows.begin(), group.rows.end(), [&](const BenchRow& other) {
          return is_named(other) && other.ceiling == row.name;
        }))
      chosen.push_back(row);
  group.rows = std::move(chosen);
}

/// Errors: kInvalidGraph with the names of all groups when the filter names no row.
Result<std::vector<BenchGroup>> chosen_groups(MemoryKind memory, const std::string& filter) {
  std::vector<BenchGroup> groups = all_groups(memory);
  std::string names;
  for (BenchGroup& group : groups) {
    names += (names.empty() ? "" : ", ") + std::string(group.name);
    select(group, filter);
  }
  std::erase_if(groups, [](const BenchGroup& group) { return group.rows.empty(); });
  if (groups.empty())
    return fail(Code::kInvalidGraph, "--filter: is ", filter, " and names no row; the groups are ", names);
  return groups;
}

// --- the machine ---------------------------------------------------------------------------------
std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown cpu";
}

std::string compiler() {
#if defined(__clang__)
  return __VERSION__;
#else
  return text("gcc ", __VERSION__);
#endif
}

Status describe_device(Machine& machine) {
  Result<std::string> name = device::description();
  ATTNGRAPH_RETURN_IF_ERROR(name.status());
  machine.device = std::move(name).value();
  return {};
}

Result<CpuIsa> chosen_isa(const Arguments& arguments) {
  const auto name = arguments.value("--isa");
  if (!name) return cpu::best_isa();
  const std::optional<CpuIsa> isa = value_of<CpuIsa>(*name);
  if (!isa) return fail(Code::kInvalidGraph, "--isa: is ", *name, "; must be one of ", all_names<CpuIsa>());
  if (!cpu::machine_runs(*isa))
    return fail(Code::kInvalidGraph, "--isa: is ", *name, "; this machine runs up to ", cpu::best_isa());
  return *isa;
}

// --- measuring -----------------------------------------------------------------------------------
/// Prepares, measures and prints one group.
///
/// Errors: those of a sample. A row that this machine cannot run is reported as skipped.
Status run_group(const BenchGroup& group, const BenchSetup& setup, Report& report, Io& io) {
  Progress progress(io);
  std::vector<Timed> all;
  const size_t skipped_before = report.skipped.size();
  for (const BenchRow& row : group.rows) {
    progress.show("preparing " + row.name);
    Result<Timing> timing = row.make(setup);
    if (timing.ok())
      all.push_back({row.name, row.ceiling, row.problem, std::move(timing).value()});
    else if (timing.status().code() == Code::kUnsupported)
      report.skipped.push_back({row.name, timing.status().message()});
    else
      return fail(timing.status().code(), row.name, ": ", timing.status().message());
  }
  const Result<std::vector<Figure>> figures = measure(all, report.rounds, progress);
  ATTNGRAPH_RETURN_IF_ERROR(figures.status());
  io.out << '\n' << as_table(*figures);
  for (size_t i = skipped_before; i < report.skipped.size(); ++i)
    io.out << report.skipped[i].name << ": skipped: " << report.skipped[i].reason << '\n';
  io.out << std::flush;
  report.figures.insert(report.figures.end(), figures->begin(), figures->end());
  return {};
}

Result<int> run(const Arguments& arguments, Io& io) {
  if (!arguments.positional().empty())
    return fail(Code::kInvalidGraph, arguments.positional().front(), ": is given; bench takes options alone");
  const Result<int64_t> rounds = arguments.integer("--rounds", 10, 1);
  const Result<int64_t> threads = arguments.integer("--threads", 0, 1);
  const Result<CpuIsa> isa = chosen_isa(arguments);
  for (const Status& status : {rounds.status(), threads.status(), isa.status()})
    ATTNGRAPH_RETURN_IF_ERROR(status);

  ContextOptions options;
  options.num_threads = static_cast<int>(*threads);
  Context context(options);
  ATTNGRAPH_RETURN_IF_ERROR(chosen_engines(context, arguments).status());
  const std::string engine = arguments.value("--engine").value_or("cpu");
  const Result<Target> target = context.target_of(engine);
  ATTNGRAPH_RETURN_IF_ERROR(target.status());
  const Result<std::vector<BenchGroup>> groups =
      chosen_groups(target->memory, arguments.value("--filter").value_or(""));
  ATTNGRAPH_RETURN_IF_ERROR(groups.status());
  BenchSetup setup{context, *target, engine, arguments.has("--autotune")};
  Machine machine{cpu_model(), std::string(name_of(*isa)),       compiler(), engine,
                  "",          context.host_target().num_threads};
  if (target->memory == MemoryKind::kHost)
    setup.target.isa = *isa;
  else
    ATTNGRAPH_RETURN_IF_ERROR(describe_device(machine));
  Report report{machine, *rounds, {}, {}};
  io.out << describe(report.machine) << ", " << *rounds << " rounds" << std::endl;
  for (const BenchGroup& group : *groups) ATTNGRAPH_RETURN_IF_ERROR(run_group(group, setup, report, io));
  if (const auto path = arguments.value("--json"))
    ATTNGRAPH_RETURN_IF_ERROR(write_file(*path, as_json(report)));
  return int{kSuccess};
}

}  // namespace

const Verb kBench = {
    "bench",
    "",
    "measure the library on this machine",
    "Groups: host (planning, JSON, overhead), cpu (against the multiply-add loop), decode (against\n"
    "the read bandwidth), packed (against dense) and planner (chunks against none); for an engine of a\n"
    "device host, gpu, decode (against the copy bandwidth), packed, paged (against keys in one piece)\n"
    "and planner, five launches back to back a sample. The rows of a group are sampled in turn, round\n"
    "after round; printed are median, 10th and 90th percentile, and the median ratio to another row of\n"
    "the same round.\n\n"
    "example: attngraph bench --filter \"cpu/forward f32\" --rounds 20 --json figures.json",
    kOptions,
    run};

}  // namespace attngraph::cli
