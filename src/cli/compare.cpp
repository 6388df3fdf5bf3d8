#include "cli/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/element.hpp"
#include "base/message.hpp"
#include "graph/fields.hpp"

namespace attngraph::cli {
namespace {

constexpr Tolerance kStatsTolerance = {1e-4, 1e-5};

/// What rounding p to the io type may cost an element of o under dropout, which lets the kept p of a row add
/// up to 1 / (1 - dropout_p).
///
/// Source: contract section 8.
template <class Node>
double dropout_rounding(const Node& node, DataType io) {
  if constexpr (std::is_same_v<Node, SdpaForward>) {
    const double dropout_p = node.attributes.dropout_p;
    if (dropout_p > 0 && dropout_p < 1 && io != DataType::kF32)
      return (io == DataType::kBf16 ? 0x1p-8 : 0x1p-11) / (1 - dropout_p);
  }
  return 0;
}

template <class Node>
void add_rules(const Graph& graph, const Node& node, std::vector<OutputRule>& rules) {
  constexpr bool kIsBackward = std::is_same_v<Node, SdpaBackward>;
  DataType io = DataType::kF32;
  ports(node, [&](Role role, const Port& port, bool is_output) {
    const Tensor* tensor = port ? graph.find(*port) : nullptr;
    if (tensor == nullptr) return;
    if (role == Role::kQ || role == Role::kOA) io = tensor->dtype;
    if (!is_output || tensor->is_virtual) return;
    // An output of a coarser type than q's is rounded to that type.
    const double t = std::max(type_tolerance(io, kIsBackward), type_tolerance(tensor->dtype, kIsBackward));
    OutputRule rule{*port, tensor->name, tensor->dtype, {t, t}, kIsBackward};
    if (role == Role::kO) rule.tolerance.abs += dropout_rounding(node, io);
    if (role == Role::kStats) rule.tolerance = kStatsTolerance;
    rules.push_back(rule);
  });
}

std::string show(const Wanted& wanted) {
  if (wanted.kind == Wanted::Kind::kAny) return "any";
  if (wanted.kind == Wanted::Kind::kUntouched) return "untouched";
  std::ostringstream out;
  out.precision(9);
  out << wanted.value;
  return std::move(out).str();
}

/// The rule's tolerance for answers whose largest magnitude is known.
Tolerance scaled(const OutputRule& rule, int64_t num_elems, const Answer& want) {
  if (!rule.scales) return rule.tolerance;
  double largest = 0;
  for (int64_t i = 0; i < num_elems; ++i) {
    const Wanted wanted = want(i);
    if (wanted.kind == Wanted::Kind::kNumber && std::isfinite(wanted.value))
      largest = std::max(largest, std::fabs(wanted.value));
  }
  return {rule.tolerance.abs * largest, rule.tolerance.rel};
}

bool is_close(const Wanted& got, const Wanted& want, const Tolerance& tolerance) {
  if (want.kind == Wanted::Kind::kAny) return true;
  if (got.kind != want.kind) return false;
  if (want.kind == Wanted::Kind::kUntouched) return true;
  if (std::isnan(want.value) || std::isnan(got.value)) return std::isnan(want.value) && std::isnan(got.value);
  if (std::isinf(want.value) || std::isinf(got.value)) return want.value == got.value;
  return std::fabs(got.value - want.value) <= tolerance.abs + tolerance.rel * std::fabs(want.value);
}

std::string where(const OutputRule& rule, int64_t index) {
  return text("uid ", rule.uid, " \"", rule.name, "\" index ", index, ": ");
}

}  // namespace

double type_tolerance(DataType io, bool is_backward) {
  if (io == DataType::kF16) return is_backward ? 8e-3 : 4e-3;
  if (io == DataType::kBf16) return is_backward ? 4e-2 : 2e-2;
  return is_backward ? 1e-4 : 2e-5;
}

std::vector<OutputRule> output_rules(const Graph& graph) {
  std::vector<OutputRule> rules;
  for (const Node& node : graph.nodes)
    std::visit([&](const auto& any) { add_rules(graph, any, rules); }, node);
  return rules;
}

Answer answer_of(const OutputBits& bits) {
  return [&bits](int64_t index) {
    if (bits.untouched[static_cast<size_t>(index)]) return Wanted{Wanted::Kind::kUntouched, 0};
    return Wanted{Wanted::Kind::kNumber, read_real(bits.bytes.data(), bits.dtype, index)};
  };
}

std::string first_mismatch(const OutputRule& rule, const OutputBits& got, const Answer& want) {
  const Tolerance tolerance = scaled(rule, got.num_elems(), want);
  const Answer given = answer_of(got);
  for (int64_t i = 0; i < got.num_elems(); ++i)
    if (const Wanted wanted = want(i); !is_close(given(i), wanted, tolerance))
      return text(where(rule, i), "got ", show(given(i)), ", want ", show(wanted), " within ", tolerance.abs,
                  " + ", tolerance.rel, " * |want|");
  return "";
}

std::string first_disagreement(const OutputRule& rule, const OutputBits& got, bool deterministic) {
  const auto again = [&](int64_t index) {
    return Wanted{Wanted::Kind::kNumber, read_real(got.bytes_again.data(), got.dtype, index)};
  };
  const Answer first = answer_of(got);
  const Tolerance tolerance = deterministic ? Tolerance{} : scaled(rule, got.num_elems(), first);
  for (int64_t i = 0; i < got.num_elems(); ++i)
    if (!got.agrees(i) && (deterministic || !is_close(again(i), first(i), tolerance)))
      return text(where(rule, i), "got ", show(first(i)), " with NaN poison and ", show(again(i)),
                  " with zero poison; must be equal");
  return "";
}

std::string first_difference(const OutputRule& rule, const OutputBits& got, const OutputBits& want) {
  if (got.bytes.size() != want.bytes.size())
    return text("uid ", rule.uid, " \"", rule.name, "\": has ", got.bytes.size(),
                " bytes; the earlier step has ", want.bytes.size());
  const auto size = static_cast<size_t>(element_bytes(rule.dtype));
  for (int64_t i = 0; i < got.num_elems(); ++i) {
    const auto element = static_cast<size_t>(i);
    const bool both_untouched = got.untouched[element] && want.untouched[element];
    if (both_untouched || std::memcmp(&got.bytes[element * size], &want.bytes[element * size], size) == 0)
      continue;
    return text(where(rule, i), "got ", show(answer_of(got)(i)), ", want the bits of ",
                show(answer_of(want)(i)));
  }
  return "";
}

}  // namespace attngraph::cli
