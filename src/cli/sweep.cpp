#include "cli/sweep.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>

#include "base/element.hpp"
#include "base/message.hpp"
#include "cli/case_check.hpp"
#include "cli/engines.hpp"
#include "cli/files.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"

namespace attngraph::cli {
namespace {

constexpr std::array kOptions = {
    Option{"--seed", "N", "seed of the first problem, the next has N+1 (default 1)"},
    Option{"--count", "M", "number of problems (default 100 without --seconds)"},
    Option{"--seconds", "T", "stop after this time"},
    Option{"--engine", "NAME", "run on this engine alone"},
    Option{"--large", nullptr, "more and larger extents across tile sizes"},
    Option{"--aligned", nullptr, "16-bit types and rows that move in pieces of 16 bytes"},
    Option{"--taken", nullptr, "draw on until each problem is one that every engine takes"},
    Option{"--with", "ROLE", "draw on until each problem has this tensor, such as bias or dsink"},
    kMultiprocessors,
    Option{"--shrink", nullptr, "simplify a failing problem as long as it fails"},
    Option{"--save", "DIR", "write each failing problem to DIR/sweep_SEED_ENGINE.json"},
};

/// A sweep under way.
struct Sweep {
  const Library& library;
  const SweepOptions& options;
  Io& io;
  SweepCounts counts;
  bool has_printed = false;
};

/// What dropout leaves of an element's expectation: the kept terms of a sum are larger by its inverse.
double kept_share(const RandomProblem& p) {
  return p.attributes.dropout_p < 1 ? 1 - p.attributes.dropout_p : 1;
}

/// Magnitude of the terms that a gradient's element is a sum of, whatever cancels in it: dp and delta are
/// sums of v_dim products of N(0,1).
double natural_magnitude(const RandomProblem& p, Role role) {
  const double products = std::sqrt(static_cast<double>(p.v_dim)) / kept_share(p);
  const double scale = p.attributes.scale.value_or(1 / std::sqrt(static_cast<double>(p.qk_dim)));
  if (role == Role::kDv) return 1 / kept_share(p);
  if (role == Role::kDalibiSlopes)  // ds times a distance
    return products * static_cast<double>(std::max(p.q_len, p.kv_len));
  return role == Role::kDq || role == Role::kDk ? std::fabs(scale) * products : products;
}

double largest(const OutputBits& bits) {
  double most = 0;
  for (int64_t i = 0; i < bits.num_elems(); ++i)
    if (const double value = std::fabs(read_real(bits.bytes.data(), bits.dtype, i));
        !bits.untouched[static_cast<size_t>(i)] && std::isfinite(value))
      most = std::max(most, value);
  return most;
}

/// The tolerance of a backward problem with a gradient that cancels, such as dq of keys that are all the
/// same: contract section 8 wants the case to give one. Empty for all others.
std::optional<Tolerance> tolerance_of(const RandomProblem& p, const StepOutcome& reference) {
  if (p.pass != Pass::kBackward) return std::nullopt;
  // An engine may round ds by 2^-8 (bf16) or 2^-11 (f16) of every term. The tolerance, 4e-2 or 8e-3 of the
  // largest element, covers that for terms that add up to ten times as much.
  constexpr double kCancelled = 0.1;
  double most = 0;
  bool cancels = false;
  for (size_t i = static_cast<size_t>(Role::kDq); i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    const auto output = reference.outputs.find(uid_of(role));
    if (output == reference.outputs.end()) continue;
    const double magnitude = largest(output->second), natural = natural_magnitude(p, role);
    cancels |= magnitude < kCancelled * natural;
    most = std::max({most, magnitude, natural});
  }
  if (!cancels) return std::nullopt;
  const double t = type_tolerance(p.io, /*is_backward=*/true);
  return Tolerance{t * most, t};
}

/// The case of a problem and what came of it on one engine.
struct Trial {
  Case made;
  Verdict verdict;
};

/// A random problem's case, ready for one engine after the other.
class Prepared {
 public:
  /// Errors: what case_of() could not build.
  static Result<std::unique_ptr<Prepared>> make(const RandomProblem& problem, const Library& library) {
    Result<Case> made = case_of(problem, library);
    ATTNGRAPH_RETURN_IF_ERROR(made.status());
    auto prepared = std::unique_ptr<Prepared>(new Prepared(std::move(made).value(), library));
    if (const StepOutcome& reference = prepared->check_.reference(0); !reference.stop)
      prepared->made_.steps[0].tolerance = tolerance_of(problem, reference);
    return prepared;
  }

  Trial on(const std::string& engine) { return {made_, check_.run(engine)}; }

 private:
  Prepared(Case made, const Library& library) : made_(std::move(made)), check_(made_, library) {}

  Case made_;
  CaseCheck check_;  ///< of made_
};

/// The simplest problem that still fails, reached by one simplification after the other.
Trial shrink(const Sweep& sweep, RandomProblem problem, const std::string& engine, Trial failing) {
  Progress progress(sweep.io);
  for (bool changed = true; changed;) {
    changed = false;
    for (const RandomProblem& candidate : simpler(problem)) {
      progress.show(text("seed ", problem.seed, ": shrinking, b", candidate.batch, " h", candidate.q_heads(),
                         " s", candidate.q_len, ':', candidate.kv_len, " d", candidate.qk_dim, ':',
                         candidate.v_dim));
      const auto prepared = Prepared::make(candidate, sweep.library);
      if (!prepared.ok()) continue;  // a change that contradicts another choice
      Trial trial = (*prepared)->on(engine);
      if (trial.verdict.kind != Verdict::Kind::kFail) continue;
      problem = candidate;
      failing = std::move(trial);
      changed = true;
      break;
    }
  }
  return failing;
}

/// Prints the failure and gives its case file.
///
/// Errors: those of write_file().
Status report(Sweep& sweep, const RandomProblem& problem, const std::string& engine, Trial failing) {
  ++sweep.counts.failed;
  if (sweep.options.shrinks) failing = shrink(sweep, problem, engine, std::move(failing));
  sweep.io.out << "FAIL    seed " << problem.seed << " [" << engine << "] " << failing.verdict.why
               << std::endl;
  const std::string content = print_case(failing.made) + "\n";
  if (sweep.options.save_dir)
    return write_file(text(*sweep.options.save_dir, "/sweep_", problem.seed, '_', engine, ".json"), content);
  if (!sweep.has_printed) sweep.io.out << content << std::flush;
  sweep.has_printed = true;
  return {};
}

/// What the engines say before they plan.
Result<bool> all_take(const Sweep& sweep, const RandomProblem& problem) {
  const Graph graph = graph_of(problem, problem.pass);
  for (const std::string& engine : sweep.options.engines) {
    const Result<Target> target = sweep.library.context.target_of(engine);
    ATTNGRAPH_RETURN_IF_ERROR(target.status());
    const auto answers = sweep.library.context.support(graph, *target);
    ATTNGRAPH_RETURN_IF_ERROR(answers.status());
    for (const EngineSupport& answer : *answers)
      if (answer.engine == engine && !answer.ok()) return false;
  }
  return true;
}

/// Whether the options leave the problem in the sweep.
Result<bool> counts(const Sweep& sweep, const RandomProblem& problem) {
  const std::optional<Role> needed = sweep.options.needed;
  if (needed && graph_of(problem, problem.pass).find(uid_of(*needed)) == nullptr) return false;
  return sweep.options.only_taken ? all_take(sweep, problem) : true;
}

/// The problem of the first seed from `seed` on that counts; `seed` becomes its own.
Result<RandomProblem> next_problem(Sweep& sweep, uint64_t& seed) {
  const int64_t most = sweep.options.most_passed_over;
  for (int64_t passed = 0; passed < most; ++passed, ++seed) {
    RandomProblem problem = draw_problem(seed, sweep.options.size, sweep.options.rows);
    const Result<bool> is_one = counts(sweep, problem);
    ATTNGRAPH_RETURN_IF_ERROR(is_one.status());
    if (*is_one) return problem;
    ++sweep.counts.passed_over;
  }
  return fail(Code::kUnsupported, "--taken or --with: of ", most, " problems up to seed ", seed,
              " none counts; must be engines that take some, and a tensor that problems have");
}

Status run_problem(Sweep& sweep, const RandomProblem& problem) {
  const auto prepared = Prepared::make(problem, sweep.library);
  if (!prepared.ok()) {
    ++sweep.counts.failed;
    sweep.io.out << "FAIL    seed " << problem.seed
                 << ": the drawn problem is refused: " << prepared.status().message() << std::endl;
    return {};
  }
  for (const std::string& engine : sweep.options.engines) {
    const Trial trial = (*prepared)->on(engine);
    ++sweep.counts.runs;
    if (trial.verdict.kind == Verdict::Kind::kRefused) ++sweep.counts.refused;
    if (trial.verdict.kind == Verdict::Kind::kFail)
      ATTNGRAPH_RETURN_IF_ERROR(report(sweep, problem, engine, trial));
  }
  return {};
}

/// Errors: kInvalidGraph for a name that no role has.
Result<std::optional<Role>> needed_role(const Arguments& arguments) {
  const std::optional<std::string> name = arguments.value("--with");
  if (!name) return std::optional<Role>();
  for (size_t i = 0; i < kNumRoles; ++i)
    if (*name == name_of(static_cast<Role>(i))) return std::optional(static_cast<Role>(i));
  return fail(Code::kInvalidGraph, "--with: is \"", *name, "\"; must be a tensor's role, such as bias");
}

Result<SweepOptions> read_options(const Context& context, const Arguments& arguments) {
  constexpr int64_t kDefaultCount = 100;
  const Result<int64_t> seed = arguments.integer("--seed", 1, 0);
  const Result<int64_t> seconds = arguments.integer("--seconds", 0, 1);
  const Result<int64_t> count = arguments.integer("--count", kDefaultCount, 1);
  const Result<std::optional<Role>> needed = needed_role(arguments);
  auto engines = chosen_engines(context, arguments);
  for (const Result<int64_t>* number : {&seed, &seconds, &count}) ATTNGRAPH_RETURN_IF_ERROR(number->status());
  ATTNGRAPH_RETURN_IF_ERROR(engines.status());
  ATTNGRAPH_RETURN_IF_ERROR(needed.status());
  SweepOptions options;
  options.engines = std::move(engines).value();
  options.first_seed = *seed;
  if (arguments.has("--seconds")) options.seconds = *seconds;
  if (arguments.has("--count") || !options.seconds) options.count = *count;
  if (arguments.has("--large")) options.size = ProblemSize::kLarge;
  if (arguments.has("--aligned")) options.rows = ProblemRows::kAligned;
  options.only_taken = arguments.has("--taken");
  options.needed = *needed;
  options.shrinks = arguments.has("--shrink");
  options.save_dir = arguments.value("--save");
  return options;
}

Result<int> run(const Arguments& arguments, Io& io) {
  if (!arguments.positional().empty())
    return fail(Code::kInvalidGraph, arguments.positional().front(), ": is given; sweep takes options alone");
  Context context;
  const Result<SweepOptions> options = read_options(context, arguments);
  ATTNGRAPH_RETURN_IF_ERROR(options.status());
  const Result<int64_t> multiprocessors = chosen_multiprocessors(arguments);
  ATTNGRAPH_RETURN_IF_ERROR(multiprocessors.status());
  const Library library{.context = context, .multiprocessors = *multiprocessors};
  const Result<SweepCounts> counts = sweep(library, *options, io);
  ATTNGRAPH_RETURN_IF_ERROR(counts.status());
  io.out << counts->problems << " problems from seed " << options->first_seed << ", ";
  if (options->only_taken || options->needed) io.out << counts->passed_over << " passed over, ";
  io.out << counts->runs << " engine runs, " << counts->refused << " refused, " << counts->failed << " failed"
         << std::endl;
  return int{counts->failed == 0 ? kSuccess : kFailed};
}

}  // namespace

Result<SweepCounts> sweep(const Library& library, const SweepOptions& options, Io& io) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto goes_on = [&](int64_t tried) {
    return (!options.count || tried < *options.count) &&
           (!options.seconds || Clock::now() - start < std::chrono::seconds(*options.seconds));
  };
  Sweep state{library, options, io, {}, false};
  Progress progress(io);
  auto seed = static_cast<uint64_t>(options.first_seed);
  for (int64_t& tried = state.counts.problems; goes_on(tried); ++tried, ++seed) {
    const auto problem = next_problem(state, seed);
    ATTNGRAPH_RETURN_IF_ERROR(problem.status());
    progress.show(text("seed ", seed, ", ", tried, " problems, ", state.counts.failed, " failed"));
    ATTNGRAPH_RETURN_IF_ERROR(run_problem(state, *problem));
  }
  return state.counts;
}

const Verb kSweep = {
    "sweep",
    "",
    "compare every engine with the reference on random problems",
    "Draws problems over the whole contract: layouts, gaps, lengths, bands, biases, masks,\n"
    "pages, types, gradients, and sometimes lengths and offsets that lie. One seed gives one\n"
    "problem. A failing one is printed as a case file, which attngraph check replays.\n"
    "Exit code 0: nothing failed; 1: something did.\n\n"
    "example: attngraph sweep --seed 1 --seconds 60 --shrink --save .",
    kOptions,
    run};

}  // namespace attngraph::cli
