#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <memory>
#include <tuple>

#include "attngraph/context.hpp"
#include "base/element.hpp"
#include "base/json_writer.hpp"
#include "base/message.hpp"
#include "cli/compare.hpp"
#include "cli/engines.hpp"
#include "cli/files.hpp"
#include "cli/graph_data.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"
#include "cli/step_memory.hpp"
#include "cli/step_run.hpp"
#include "graph/fields.hpp"
#include "json/read.hpp"
#include "plan/planner.hpp"

namespace attngraph::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kOptions = {
    Option{"--engine", "NAME", "run on this engine; without it the first that takes the graph"},
    Option{"--seed", "N", "seed of the data (default 1)"},
    Option{"--lengths", "FILE", "JSON {\"q\": [...], \"kv\": [...]}; what is missing is drawn"},
    Option{"--gaps", "N", "leave up to N token slots before each packed sequence (default 0)"},
    Option{"--repeat", "N", "run N times and print the median time (default 1)"},
    Option{"--compare", nullptr, "compare with the reference engine; exit code 1 when they differ"},
    Option{"--json", "FILE", "write the result to FILE, too"},
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A graph planned and run on one engine in memory of its own.
class Execution {
 public:
  static Result<std::unique_ptr<Execution>> make(const Graph& graph, const Plan& plan, const StepData& data) {
    auto made = std::unique_ptr<Execution>(new Execution(graph, plan, data));
    ATTNGRAPH_RETURN_IF_ERROR(made->memory_.allocate(graph, plan, {}));
    ATTNGRAPH_RETURN_IF_ERROR(made->memory_.bind(made->bindings_));
    return made;
  }

  /// Seconds that it took.
  Result<double> run() {
    const auto start = Clock::now();
    ATTNGRAPH_RETURN_IF_ERROR(execute(plan_, bindings_, memory_.workspace()));
    ATTNGRAPH_RETURN_IF_ERROR(wait_for(plan_.state().core->target.memory));
    const double seconds = seconds_since(start);
    ATTNGRAPH_RETURN_IF_ERROR(memory_.check(graph_, plan_));
    return seconds;
  }

  OutputBits output(Uid uid) const { return memory_.output(*graph_.find(uid)); }

 private:
  Execution(const Graph& graph, const Plan& plan, const StepData& data)
      : graph_(graph), plan_(plan), memory_(data, kNanPoison), bindings_(plan) {}

  const Graph& graph_;
  Plan plan_;
  StepMemory memory_;
  Bindings bindings_;
};

// --- data ----------------------------------------------------------------------------------------
Result<DataOptions> read_data_options(const Arguments& arguments) {
  DataOptions options;
  const Result<int64_t> seed = arguments.integer("--seed", 1, 0), gap = arguments.integer("--gaps", 0, 0);
  ATTNGRAPH_RETURN_IF_ERROR(seed.status());
  ATTNGRAPH_RETURN_IF_ERROR(gap.status());
  options.seed = static_cast<uint64_t>(*seed);
  options.max_gap = *gap;
  const auto path = arguments.value("--lengths");
  if (!path) return options;
  const Result<std::string> content = read_file(*path);
  ATTNGRAPH_RETURN_IF_ERROR(content.status());
  const Result<JsonDocument> document = JsonDocument::parse(*content);
  Status status = document.status();
  if (status.ok())
    status = read_object(document->root(),
                         std::tuple{Field{"q", options.q_lengths}, Field{"kv", options.kv_lengths}});
  if (!status.ok()) return fail(Code::kInvalidGraph, *path, ": ", status.message());
  return options;
}

/// The forward whose o and stats a backward node reads.
Graph forward_of(const Graph& graph, const SdpaBackward& backward) {
  Graph forward;
  forward.tensors = graph.tensors;
  SdpaForward node;
  const PortTable table = ports_by_role(backward);
  ports(node, [&](Role role, Port& port, bool) { port = table[static_cast<size_t>(role)]; });
  node.attributes = backward.attributes;
  node.attributes.deterministic = false;
  forward.nodes.push_back(node);
  return forward;
}

/// Replaces the random o and stats of the graph's backward nodes by those of their forward.
Status run_forwards(Context& context, const Graph& graph, StepData& data) {
  const std::vector<Uid> made = bound_outputs(graph);
  for (const Node& node : graph.nodes) {
    const auto* backward = std::get_if<SdpaBackward>(&node);
    const auto is_given = [&](const Port& port) {
      return std::find(made.begin(), made.end(), *port) == made.end();
    };
    if (backward == nullptr || !is_given(backward->o) || !is_given(backward->stats)) continue;
    const Graph forward = forward_of(graph, *backward);
    const Result<Plan> plan = context.plan(forward);
    ATTNGRAPH_RETURN_IF_ERROR(plan.status());
    StepData forward_data = data;
    std::erase_if(forward_data.tensors, [&](const BoundTensor& t) { return plan->slot(t.uid) < 0; });
    for (Storage& storage : forward_data.storages)  // gradients
      if (!storage.content && plan->slot(storage.owner) < 0) storage.num_elems = 0;
    for (const Uid uid : bound_outputs(forward)) {
      Storage& storage = forward_data.storages[*forward_data.find(uid)->storage];
      storage.content.reset(), storage.holds_output = true;
    }
    const auto execution = Execution::make(forward, *plan, forward_data);
    ATTNGRAPH_RETURN_IF_ERROR(execution.status());
    ATTNGRAPH_RETURN_IF_ERROR((*execution)->run().status());
    for (const Uid uid : bound_outputs(forward))
      data.storages[*data.find(uid)->storage].content = (*execution)->output(uid).bytes;
  }
  return {};
}

Result<StepData> make_data(Context& context, const Graph& graph, const Plan& plan,
                           const DataOptions& options) {
  auto sources = draw_data(graph, plan, options);
  ATTNGRAPH_RETURN_IF_ERROR(sources.status());
  Step step;
  step.bind = std::move(sources).value();
  Result<StepData> data = make_step_data(graph, step);
  ATTNGRAPH_RETURN_IF_ERROR(data.status());
  ATTNGRAPH_RETURN_IF_ERROR(run_forwards(context, graph, *data));
  return data;
}

// --- results -------------------------------------------------------------------------------------
/// One output's row of the table; over the elements that were written.
struct Summary {
  OutputRule rule;
  std::string dims;
  double least = 0, most = 0, mean = 0;  ///< of the finite ones
  uint64_t checksum = 0;                 ///< FNV-1a of all bytes
  std::optional<double> error;           ///< largest difference from the reference
  std::string mismatch;
};

uint64_t fnv1a(const std::vector<std::byte>& bytes) {
  uint64_t hash = 14695981039346656037u;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 1099511628211u;
  return hash;
}

Summary summarise(const Graph& graph, const OutputRule& rule, const OutputBits& bits) {
  Summary row{rule, "", 0, 0, 0, fnv1a(bits.bytes), std::nullopt, ""};
  for (const int64_t extent : graph.find(rule.uid)->dims)
    row.dims += text(row.dims.empty() ? "" : "x", extent);
  int64_t count = 0;
  for (int64_t i = 0; i < bits.num_elems(); ++i) {
    const double value = read_real(bits.bytes.data(), bits.dtype, i);
    if (bits.untouched[static_cast<size_t>(i)] || !std::isfinite(value)) continue;
    row.least = count == 0 ? value : std::min(row.least, value);
    row.most = count == 0 ? value : std::max(row.most, value);
    row.mean += (value - row.mean) / static_cast<double>(++count);
  }
  return row;
}

void compare(Summary& row, const OutputBits& got, const OutputBits& want) {
  row.error = 0;
  for (int64_t i = 0; i < got.num_elems(); ++i) {
    const double difference =
        std::fabs(read_real(got.bytes.data(), got.dtype, i) - read_real(want.bytes.data(), want.dtype, i));
    if (std::isfinite(difference)) row.error = std::max(*row.error, difference);
  }
  row.mismatch = first_mismatch(row.rule, got, answer_of(want));
}

struct Outcome {
  std::string graph_name, engine;
  int64_t workspace_bytes = 0;
  double plan_seconds = 0, run_seconds = 0;  ///< run_seconds: the median
  std::vector<Summary> outputs;

  bool matches() const {
    return std::all_of(outputs.begin(), outputs.end(),
                       [](const Summary& row) { return row.mismatch.empty(); });
  }
};

std::string hex(uint64_t number) {
  std::ostringstream out;
  out << std::hex << std::setw(16) << std::setfill('0') << number;
  return std::move(out).str();
}

void print_table(const Outcome& outcome, std::ostream& out) {
  out << outcome.graph_name << '\n'
      << "engine " << outcome.engine << ", workspace " << outcome.workspace_bytes << " bytes, plan "
      << std::setprecision(4) << 1e6 * outcome.plan_seconds << " us, run " << 1e3 * outcome.run_seconds
      << " ms\n\n";
  out << std::left << std::setw(16) << "tensor" << std::setw(6) << "type" << std::setw(20) << "dims"
      << std::right << std::setw(12) << "min" << std::setw(12) << "max" << std::setw(12) << "mean"
      << std::setw(18) << "checksum" << std::setw(12) << "error" << '\n';
  for (const Summary& row : outcome.outputs) {
    const std::string name = row.rule.name.empty() ? std::to_string(row.rule.uid) : row.rule.name;
    out << std::left << std::setw(16) << name << std::setw(6) << name_of(row.rule.dtype) << std::setw(20)
        << row.dims << std::right << std::setw(12) << row.least << std::setw(12) << row.most << std::setw(12)
        << row.mean << std::setw(18) << hex(row.checksum) << std::setw(12);
    if (row.error)
      out << *row.error;
    else
      out << "-";
    out << '\n';
    if (!row.mismatch.empty()) out << "  FAIL " << row.mismatch << '\n';
  }
  out << std::flush;
}

std::string print_json(const Outcome& outcome) {
  JsonWriter writer;
  writer.open_object(JsonWriter::Style::kLines);
  writer.key("graph"), writer.value(outcome.graph_name);
  writer.key("engine"), writer.value(outcome.engine);
  writer.key("workspace_bytes"), writer.value(outcome.workspace_bytes);
  writer.key("plan_seconds"), writer.value(outcome.plan_seconds);
  writer.key("run_seconds"), writer.value(outcome.run_seconds);
  writer.key("outputs"), writer.open_array(JsonWriter::Style::kLines);
  for (const Summary& row : outcome.outputs) {
    writer.open_object();
    writer.key("uid"), writer.value(row.rule.uid);
    writer.key("name"), writer.value(row.rule.name);
    writer.key("min"), writer.value(row.least);
    writer.key("max"), writer.value(row.most);
    writer.key("mean"), writer.value(row.mean);
    writer.key("checksum"), writer.value(hex(row.checksum));
    if (row.error) {
      writer.key("error"), writer.value(*row.error);
      writer.key("matches"), writer.value(row.mismatch.empty());
    }
    writer.close();
  }
  writer.close();
  writer.close();
  return std::move(writer).take() + "\n";
}

// --- the verb ------------------------------------------------------------------------------------
Result<double> median_seconds(Execution& execution, int64_t repeat, Progress& progress) {
  std::vector<double> seconds;
  for (int64_t i = 0; i < repeat; ++i) {
    progress.show(text("run ", i + 1, " of ", repeat));
    const Result<double> took = execution.run();
    ATTNGRAPH_RETURN_IF_ERROR(took.status());
    seconds.push_back(*took);
  }
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

Status compare_all(Context& context, const Graph& graph, const StepData& data, const Execution& execution,
                   Outcome& outcome) {
  PlanOptions options;
  options.engine = kReferenceEngine;
  const Result<Plan> plan = context.plan(graph, options);
  ATTNGRAPH_RETURN_IF_ERROR(plan.status());
  const auto reference = Execution::make(graph, *plan, data);
  ATTNGRAPH_RETURN_IF_ERROR(reference.status());
  ATTNGRAPH_RETURN_IF_ERROR((*reference)->run().status());
  for (Summary& row : outcome.outputs)
    compare(row, execution.output(row.rule.uid), (*reference)->output(row.rule.uid));
  return {};
}

Result<Outcome> run_graph(const Graph& graph, const Arguments& arguments, Io& io) {
  const Result<int64_t> repeat = arguments.integer("--repeat", 1, 1);
  ATTNGRAPH_RETURN_IF_ERROR(repeat.status());
  const Result<DataOptions> data_options = read_data_options(arguments);
  ATTNGRAPH_RETURN_IF_ERROR(data_options.status());
  Context context;
  ATTNGRAPH_RETURN_IF_ERROR(chosen_engines(context, arguments).status());
  PlanOptions options;
  options.engine = arguments.value("--engine").value_or("");
  Outcome outcome;
  outcome.graph_name = graph.name;
  const auto start = Clock::now();
  const Result<Plan> plan = context.plan(graph, options);
  outcome.plan_seconds = seconds_since(start);
  ATTNGRAPH_RETURN_IF_ERROR(plan.status());
  for (const std::string& engine : plan->engines())
    outcome.engine += (outcome.engine.empty() ? "" : ", ") + engine;
  outcome.workspace_bytes = plan->workspace_bytes();

  Progress progress(io);
  progress.show("drawing data");
  const Result<StepData> data = make_data(context, graph, *plan, *data_options);
  ATTNGRAPH_RETURN_IF_ERROR(data.status());
  const auto execution = Execution::make(graph, *plan, *data);
  ATTNGRAPH_RETURN_IF_ERROR(execution.status());
  const Result<double> seconds = median_seconds(**execution, *repeat, progress);
  ATTNGRAPH_RETURN_IF_ERROR(seconds.status());
  outcome.run_seconds = *seconds;
  for (const OutputRule& rule : output_rules(graph))
    outcome.outputs.push_back(summarise(graph, rule, (*execution)->output(rule.uid)));
  progress.show("running the reference");
  if (arguments.has("--compare"))
    ATTNGRAPH_RETURN_IF_ERROR(compare_all(context, graph, *data, **execution, outcome));
  return outcome;
}

Result<int> run(const Arguments& arguments, Io& io) {
  const Result<Graph> graph = read_graph(arguments);
  ATTNGRAPH_RETURN_IF_ERROR(graph.status());
  const Result<Outcome> outcome = run_graph(*graph, arguments, io);
  ATTNGRAPH_RETURN_IF_ERROR(outcome.status());
  print_table(*outcome, io.out);
  if (const auto path = arguments.value("--json"))
    ATTNGRAPH_RETURN_IF_ERROR(write_file(*path, print_json(*outcome)));
  return int{outcome->matches() ? kSuccess : kFailed};
}

}  // namespace

const Verb kRun = {
    "run",
    "GRAPH.json",
    "run a graph on random data and print its results and times",
    "Draws data by a seed (N(0,1), lengths within the capacities, offsets, page tables), runs\n"
    "the graph on this machine and prints a table of its outputs. o and stats of a\n"
    "backward graph come from its forward.\n\n"
    "example: attngraph run samples/graphs/packed_training.json --gaps 3 --compare --json result.json",
    kOptions,
    run};

}  // namespace attngraph::cli
