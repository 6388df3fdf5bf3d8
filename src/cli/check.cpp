#include <algorithm>
#include <array>

#include "base/message.hpp"
#include "cli/case_check.hpp"
#include "cli/engines.hpp"
#include "cli/files.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"

namespace attngraph::cli {
namespace {

constexpr std::array kOptions = {
    Option{"--engine", "NAME", "run on this engine alone"},
    kMultiprocessors,
};

/// One line: "FAIL    gaps.json [cpu] step 0: uid 4 ...".
void print_line(std::ostream& out, const std::string& file, const std::string& engine,
                const Verdict& verdict) {
  constexpr std::array kWords = {"pass   ", "FAIL   ", "refused"};
  std::string why = verdict.why;
  std::replace(why.begin(), why.end(), '\n', ' ');
  out << kWords[static_cast<size_t>(verdict.kind)] << ' ' << file << " [" << engine << ']';
  if (!why.empty()) out << ' ' << why;
  out << std::endl;
}

/// kSuccess when no engine failed and one passed.
Exit check_file(const std::string& file, const std::vector<std::string>& engines, const Library& library,
                Io& io) {
  const Result<std::string> content = read_file(file);
  Result<Case> described = content.ok() ? parse_case(*content) : Result<Case>(content.status());
  if (!described.ok()) {
    io.err << "attngraph check: " << (content.ok() ? file + ": " : "") << described.status().message()
           << '\n';
    return kUnreadable;
  }
  Progress progress(io);
  CaseCheck check(*described, library);
  bool has_failed = false, has_passed = false;
  for (const std::string& engine : engines) {
    progress.show(text(file, " on ", engine));
    const Verdict verdict = check.run(engine);
    progress.clear();
    print_line(io.out, file, engine, verdict);
    has_failed |= verdict.kind == Verdict::Kind::kFail;
    has_passed |= verdict.kind == Verdict::Kind::kPass;
  }
  return has_failed || !has_passed ? kFailed : kSuccess;
}

Result<int> run(const Arguments& arguments, Io& io) {
  if (arguments.positional().empty())
    return fail(Code::kInvalidGraph, "CASE: none is given; must be one case file or more");
  Context context;
  const auto engines = chosen_engines(context, arguments);
  if (!engines.ok()) return engines.status();
  const Result<int64_t> multiprocessors = chosen_multiprocessors(arguments);
  ATTNGRAPH_RETURN_IF_ERROR(multiprocessors.status());
  int worst = kSuccess;
  for (const std::string& file : arguments.positional()) {
    Context of_case;  // the steps of one case share a plan cache, cases do not
    const Library library{.context = of_case, .multiprocessors = *multiprocessors};
    worst = std::max<int>(worst, check_file(file, *engines, library, io));
  }
  return worst;
}

}  // namespace

const Verb kCheck = {"check",
                     "CASE...",
                     "run conformance cases on every engine and compare with their answers",
                     "Prints one line per case and engine: pass, FAIL with the first wrong element, or\n"
                     "refused with the engine's reason. Every step runs twice, with NaN and with zero in\n"
                     "all memory that the engine has to write, between guards. Exit code 0: nothing\n"
                     "failed and every case passed on an engine; 1: something failed; 2: a file could\n"
                     "not be read.\n\n"
                     "example: attngraph check test/cases/ragged_gaps.json --engine reference",
                     kOptions,
                     run};

}  // namespace attngraph::cli
