#include "cli/bench_rounds.hpp"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <sstream>

#include "base/enum_names.hpp"
#include "base/json_writer.hpp"
#include "base/message.hpp"
#include "device/device.hpp"

namespace attngraph::cli {
namespace {

using Samples = std::vector<std::vector<double>>;  ///< figures by Timed, then by round

double figure_of(const Timing& timing, double seconds) {
  return timing.work > 0 ? timing.work / seconds / 1e9 : seconds * 1e6;
}

double ratio_of(const std::vector<double>& own, const std::vector<double>& ceiling) {
  std::vector<double> ratios(own.size());
  for (size_t round = 0; round < own.size(); ++round) ratios[round] = own[round] / ceiling[round];
  return quantile(std::move(ratios), 0.5);
}

Figure summarise(const std::vector<Timed>& all, const Samples& samples, size_t index) {
  const Timed& timed = all[index];
  const std::vector<double>& own = samples[index];
  Figure figure{timed.name,         timed.timing.unit,  timed.ceiling,      timed.problem,
                quantile(own, 0.5), quantile(own, 0.1), quantile(own, 0.9), 0};
  for (size_t other = 0; other < all.size(); ++other)
    if (all[other].name == timed.ceiling) figure.ratio = ratio_of(own, samples[other]);
  return figure;
}

void write(JsonWriter& json, const AttentionCase& problem) {
  json.open_object();
  json.key("pass"), json.value(problem.pass == Pass::kForward ? "forward" : "backward");
  json.key("dtype"), json.value(name_of(problem.dtype));
  json.key("batch"), json.value(problem.batch);
  json.key("q_heads"), json.value(problem.q_heads);
  json.key("kv_heads"), json.value(problem.kv_heads);
  json.key("q_len"), json.value(problem.q_len);
  json.key("kv_len"), json.value(problem.kv_len);
  json.key("dim"), json.value(problem.dim);
  json.key("v_dim"), json.value(problem.v_dim);
  json.key("page_size"), json.value(problem.page_size);
  json.key("causal"), json.value(problem.mask != BenchMask::kFull);
  json.key("window"), json.value(problem.mask == BenchMask::kWindow ? kWindowKeys : 0);
  json.key("packed"), json.value(is_packed(problem));
  json.key("softcap"), json.value(problem.scores == BenchScores::kSoftcap ? kCap : 0.0);
  json.key("mask"), json.value(problem.scores == BenchScores::kMask);
  json.key("bias"), json.value(problem.scores == BenchScores::kBias || problem.scores == BenchScores::kDbias);
  json.key("dbias"), json.value(problem.scores == BenchScores::kDbias);
  json.key("dropout_p"), json.value(problem.scores == BenchScores::kDropout ? kDroppedShare : 0.0);
  json.key("unequal"), json.value(problem.packing == BenchPacking::kUnequal);
  json.close();
}

void write(JsonWriter& json, const Figure& figure) {
  json.open_object();
  json.key("name"), json.value(figure.name);
  json.key("unit"), json.value(figure.unit);
  json.key("median"), json.value(figure.median);
  json.key("p10"), json.value(figure.p10);
  json.key("p90"), json.value(figure.p90);
  if (figure.ratio > 0) {
    json.key("ceiling"), json.value(figure.ceiling);
    json.key("ratio"), json.value(figure.ratio);
  }
  if (figure.problem != nullptr) json.key("problem"), write(json, *figure.problem);
  json.close();
}

}  // namespace

std::function<Result<double>()> average_of(int64_t calls, std::function<Status()> call) {
  return [calls, call = std::move(call)]() -> Result<double> {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) ATTNGRAPH_RETURN_IF_ERROR(call());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return taken.count() / static_cast<double>(calls);
  };
}

std::function<Result<double>()> device_average_of(int64_t calls, std::function<Status()> call) {
  return [calls, call = std::move(call)]() -> Result<double> {
    const Result<double> seconds = device::elapsed_seconds([&]() -> Status {
      for (int64_t i = 0; i < calls; ++i) ATTNGRAPH_RETURN_IF_ERROR(call());
      return {};
    });
    ATTNGRAPH_RETURN_IF_ERROR(seconds.status());
    return *seconds / static_cast<double>(calls);
  };
}

double quantile(std::vector<double> values, double share) {
  const auto rank = static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<size_t>(rank)];
}

Result<std::vector<Figure>> measure(const std::vector<Timed>& all, int64_t rounds, Progress& progress) {
  Samples samples(all.size());
  for (int64_t round = 0; round <= rounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      progress.show(text("round ", round, " of ", rounds, ": ", all[i].name));
      const Result<double> seconds = all[i].timing.seconds();
      if (!seconds.ok()) return fail(seconds.status().code(), all[i].name, ": ", seconds.status().message());
      if (round > 0) samples[i].push_back(figure_of(all[i].timing, *seconds));
    }
  }
  progress.clear();
  std::vector<Figure> figures;
  for (size_t i = 0; i < all.size(); ++i) figures.push_back(summarise(all, samples, i));
  return figures;
}

std::string describe(const Machine& machine) {
  return text(machine.device, machine.device.empty() ? "" : ", ", machine.cpu, ", ", machine.threads,
              " threads, ", machine.isa, ", engine ", machine.engine, ", ", machine.compiler);
}

std::string as_table(const std::vector<Figure>& figures) {
  size_t longest = 0;
  for (const Figure& figure : figures) longest = std::max(longest, figure.name.size());
  const int width = static_cast<int>(longest);
  std::ostringstream out;
  out << std::left << std::setw(width) << "what" << std::right << std::setw(12) << "median" << std::setw(12)
      << "p10" << std::setw(12) << "p90"
      << "  unit\n";
  out << std::fixed;
  for (const Figure& figure : figures) {
    out << std::left << std::setw(width) << figure.name << std::right << std::setprecision(2) << std::setw(12)
        << figure.median << std::setw(12) << figure.p10 << std::setw(12) << figure.p90 << "  " << figure.unit;
    if (figure.ratio > 0)
      out << ", " << std::setprecision(1) << 100 * figure.ratio << " % of " << figure.ceiling;
    out << '\n';
  }
  return std::move(out).str();
}

std::string as_json(const Report& report) {
  JsonWriter json;
  json.open_object(JsonWriter::Style::kLines);
  json.key("machine"), json.open_object();
  if (!report.machine.device.empty()) json.key("device"), json.value(report.machine.device);
  json.key("cpu"), json.value(report.machine.cpu);
  json.key("threads"), json.value(report.machine.threads);
  json.key("isa"), json.value(report.machine.isa);
  json.key("engine"), json.value(report.machine.engine);
  json.key("compiler"), json.value(report.machine.compiler);
  json.close();
  json.key("rounds"), json.value(report.rounds);
  json.key("figures"), json.open_array(JsonWriter::Style::kLines);
  for (const Figure& figure : report.figures) write(json, figure);
  json.close();
  json.key("skipped"), json.open_array(JsonWriter::Style::kLines);
  for (const Skipped& skipped : report.skipped) {
    json.open_object();
    json.key("name"), json.value(skipped.name);
    json.key("reason"), json.value(skipped.reason);
    json.close();
  }
  json.close();
  json.close();
  return std::move(json).take() + "\n";
}

}  // namespace attngraph::cli
