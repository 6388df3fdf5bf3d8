#include "cli/program.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <iomanip>
#include <new>
#include <string>

namespace attngraph::cli {
namespace {

constexpr std::array kVerbs = {&kCheck, &kRun, &kExplain, &kSweep, &kBench, &kConvert};

constexpr Option kHelp = {"--help", nullptr, "show this text"};

void print_help(std::ostream& out) {
  out << "usage: attngraph VERB [OPTION...] [FILE...]\n\n";
  for (const Verb* verb : kVerbs)
    out << "  " << std::left << std::setw(10) << verb->name << verb->summary << '\n';
  out << "\nattngraph VERB --help says more, with an example.\n"
         "Exit codes: 0 success, 1 something failed, 2 a file or an option could not be read.\n";
}

void print_help(const Verb& verb, std::ostream& out) {
  out << "usage: attngraph " << verb.name << " [OPTION...] " << verb.operands << "\n\n"
      << verb.summary << "\n\n"
      << verb.details << "\n\n";
  const auto print = [&](const Option& option) {
    std::string left = option.name;
    if (option.value != nullptr) left += std::string(" ") + option.value;
    out << "  " << std::left << std::setw(26) << left << option.help << '\n';
  };
  for (const Option& option : verb.options) print(option);
  print(kHelp);
}

Result<int> run_verb(const Verb& verb, std::span<const char* const> words, Io& io) {
  const auto is_help = [](const std::string& word) { return word == kHelp.name || word == "-h"; };
  if (std::any_of(words.begin(), words.end(), is_help)) {
    print_help(verb, io.out);
    return int{kSuccess};
  }
  const Result<Arguments> arguments = Arguments::parse(verb.options, words);
  if (!arguments.ok()) return arguments.status();
  return verb.run(*arguments, io);
}

int dispatch(std::span<const char* const> words, Io& io) {
  const std::string name = words.empty() ? "" : words[0];
  if (name == "--help" || name == "-h" || name == "help") {
    print_help(io.out);
    return kSuccess;
  }
  const auto verb =
      std::find_if(kVerbs.begin(), kVerbs.end(), [&](const Verb* v) { return v->name == name; });
  if (verb == kVerbs.end()) {
    if (!name.empty()) io.err << "attngraph: " << name << ": unknown verb\n";
    print_help(io.err);
    return kUnreadable;
  }
  const Result<int> code = run_verb(**verb, words.subspan(1), io);
  if (code.ok()) return *code;
  io.err << "attngraph " << name << ": " << code.status().message() << '\n';
  return code.status().code() == Code::kInvalidGraph ? kUnreadable : kFailed;
}

}  // namespace

int run_program(std::span<const char* const> words, Io& io) {
  try {
    return dispatch(words, io);
  } catch (const std::bad_alloc&) {
    io.err << "attngraph: out of memory\n";
  } catch (const std::exception& e) {
    io.err << "attngraph: internal error: " << e.what() << '\n';
  }
  return kFailed;
}

}  // namespace attngraph::cli
