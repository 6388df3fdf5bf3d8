#include "cli/case_check.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/message.hpp"

namespace attngraph::cli {
namespace {

Verdict failed(std::string why) { return {Verdict::Kind::kFail, std::move(why)}; }

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Whether `word` occurs where no letter, digit or underscore continues it: "k" not in "kv_len".
bool has_word(std::string_view message, std::string_view word) {
  for (size_t at = message.find(word); at != std::string_view::npos; at = message.find(word, at + 1)) {
    const bool begins = at == 0 || !is_word_char(message[at - 1]) || !is_word_char(word.front());
    const size_t end = at + word.size();
    const bool ends = end == message.size() || !is_word_char(message[end]) || !is_word_char(word.back());
    if (begins && ends) return true;
  }
  return false;
}

std::string describe(const Stop& stop) {
  return text(stop.stage, " gives ", stop.why.code(), ": ", stop.why.message());
}

Verdict check_error(const ExpectedError& wanted, const StepOutcome& outcome) {
  if (!outcome.stop) return failed(text("succeeds; want ", wanted.code, " from ", wanted.stage));
  const Stop& stop = *outcome.stop;
  if (stop.stage != wanted.stage || stop.why.code() != wanted.code)
    return failed(text(describe(stop), "; want ", wanted.code, " from ", wanted.stage));
  for (const std::string& word : wanted.words)
    if (!has_word(stop.why.message(), word))
      return failed(text(describe(stop), "; want the word \"", word, "\""));
  return {};
}

/// An expectation that no output answers to is as wrong as an output without one.
std::string check_uids(const std::map<Uid, Expectation>& expect, const std::vector<OutputRule>& rules) {
  for (const OutputRule& rule : rules)
    if (!expect.contains(rule.uid))
      return text("uid ", rule.uid, " \"", rule.name, "\": is an output without expect");
  for (const auto& [uid, expectation] : expect)
    if (std::none_of(rules.begin(), rules.end(), [u = uid](const OutputRule& rule) { return rule.uid == u; }))
      return text("expect.", uid, ": is no output of the graph");
  return "";
}

}  // namespace

const StepOutcome& CaseCheck::reference(size_t step) {
  const auto known = reference_.find(step);
  if (known != reference_.end()) return known->second;
  StepOutcome outcome = run_step(library_, kReferenceEngine, case_.steps[step], data_[step]);
  return reference_.emplace(step, std::move(outcome)).first->second;
}

std::string CaseCheck::check_output(size_t step, const OutputRule& rule,
                                    const std::vector<StepOutcome>& earlier, const OutputBits& got) {
  const Expectation& expectation = case_.steps[step].expect.at(rule.uid);
  if (const auto* wanted = std::get_if<WantedList>(&expectation)) {
    if (static_cast<int64_t>(wanted->list.size()) != got.num_elems())
      return text("expect.", rule.uid, ": has ", wanted->list.size(), " elements; the storage has ",
                  got.num_elems());
    return first_mismatch(rule, got, [wanted](int64_t i) { return wanted->list[static_cast<size_t>(i)]; });
  }
  if (const auto* wanted = std::get_if<WantedEverywhere>(&expectation))
    return first_mismatch(rule, got, [wanted](int64_t) { return wanted->value; });
  if (const auto* same = std::get_if<SameAs>(&expectation)) {
    const auto index = static_cast<size_t>(same->step);
    if (index >= earlier.size() || !earlier[index].outputs.contains(same->uid))
      return text("expect.", rule.uid, ".same_as: names step ", same->step, " and uid ", same->uid,
                  "; must be an output of an earlier step");
    return first_difference(rule, got, earlier[index].outputs.at(same->uid));
  }
  const StepOutcome& right = reference(step);
  if (right.stop) return text("the reference does not run: ", describe(*right.stop));
  return first_mismatch(rule, got, answer_of(right.outputs.at(rule.uid)));
}

Verdict CaseCheck::check_step(size_t index, const std::vector<StepOutcome>& earlier,
                              const StepOutcome& outcome) {
  const Step& step = case_.steps[index];
  const std::optional<Stop>& stop = outcome.stop;
  const bool wants_refusal = step.expect_error && step.expect_error->stage == Stage::kPlan;
  if (stop && stop->stage == Stage::kPlan && stop->why.code() == Code::kUnsupported && !wants_refusal)
    return {Verdict::Kind::kRefused, stop->why.message()};
  if (step.expect_error) return check_error(*step.expect_error, outcome);
  if (stop) return failed(describe(*stop));
  if (step.workspace_bytes_at_most && outcome.workspace_bytes > *step.workspace_bytes_at_most)
    return failed(text("the plan needs ", outcome.workspace_bytes, " bytes of workspace; want at most ",
                       *step.workspace_bytes_at_most));
  if (!step.bind) return {};
  std::vector<OutputRule> rules = output_rules(step.text.graph);
  if (std::string wrong = check_uids(step.expect, rules); !wrong.empty()) return failed(std::move(wrong));
  for (OutputRule& rule : rules) {
    const auto got = outcome.outputs.find(rule.uid);
    if (got == outcome.outputs.end()) return failed(text("uid ", rule.uid, ": is bound to null and written"));
    if (step.tolerance) rule.tolerance = *step.tolerance, rule.scales = false;
    std::string wrong = first_disagreement(rule, got->second, outcome.deterministic);
    if (wrong.empty()) wrong = check_output(index, rule, earlier, got->second);
    if (!wrong.empty()) return failed(std::move(wrong));
  }
  return {};
}

Verdict CaseCheck::run(const std::string& engine) {
  std::vector<StepOutcome> outcomes;
  for (size_t i = 0; i < case_.steps.size(); ++i) {
    StepOutcome outcome =
        engine == kReferenceEngine ? reference(i) : run_step(library_, engine, case_.steps[i], data_[i]);
    Verdict verdict = check_step(i, outcomes, outcome);
    if (verdict.kind != Verdict::Kind::kPass) {
      verdict.why = text("step ", i, ": ", verdict.why);
      return verdict;
    }
    outcomes.push_back(std::move(outcome));
  }
  return {};
}

}  // namespace attngraph::cli
