#include "plan/engine.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/message.hpp"

namespace attngraph {

std::string describe(const Reason& reason) {
  return text(reason.subject, " is ", reason.has, "; needs ", reason.wants,
              reason.since.empty() ? "" : " (since " + reason.since + ")");
}

std::vector<Reason> needs_host(const Target& target) {
  if (target.memory == MemoryKind::kHost) return {};
  return {{Code::kUnsupported, "target", text("sm_", target.sm_version), "host memory", ""}};
}

std::vector<Reason> needs_float_scores(const Problem& problem) {
  constexpr double kLargest = std::numeric_limits<float>::max() / std::numbers::log2e;
  constexpr double kLeast = std::numeric_limits<float>::min();
  const double scale = std::abs(problem.scale), softcap = problem.softcap;
  std::vector<Reason> reasons;
  const auto refuse = [&](const char* subject, double value, std::string wants) {
    reasons.push_back({Code::kUnsupported, subject, text(value), std::move(wants), ""});
  };
  if (scale > kLargest) refuse("scale", problem.scale, text("a magnitude of ", kLargest, " at most"));
  if (softcap == 0) return reasons;
  if (softcap < kLeast || softcap > kLargest)
    refuse("softcap", softcap, text("0 or ", kLeast, " to ", kLargest));
  else if (2 * scale > kLargest * std::min(softcap, 1.0))  // tanh(y) = 1 - 2 / (1 + exp(2 y))
    refuse("scale", problem.scale,
           text("a magnitude of ", kLargest / 2 * std::min(softcap, 1.0), " at most with a softcap of ",
                softcap));
  return reasons;
}

bool keeps_order_of_products(const Problem& problem) {
  constexpr double kLeast = 1e-36;  // times the largest float32 340, and exp(-340) is 0 there
  return problem.scale >= kLeast;
}

std::string EngineSet::names() const {
  std::string list;
  for (const auto& engine : engines) list += text(list.empty() ? "" : ", ", engine->name());
  return list;
}

const Engine* EngineSet::find(std::string_view name) const {
  for (const auto& engine : engines)
    if (engine->name() == name) return engine.get();
  return nullptr;
}

Result<const Engine*> EngineSet::named(std::string_view name) const {
  if (engines.empty()) return fail(Code::kUnsupported, why_empty);
  if (const Engine* engine = find(name)) return engine;
  return fail(Code::kUnsupported, "engine: is ", name, "; this build has ", names());
}

MemoryKind EngineSet::memory_of(std::string_view name) const {
  for (const OrderRow& row : order)
    if (row.engine == name) return row.memory;
  return MemoryKind::kHost;
}

std::vector<const Engine*> EngineSet::ordered(const Problem& problem, const Target& target) const {
  std::vector<const Engine*> list;
  const auto add = [&](const Engine* engine) {
    if (engine != nullptr && std::find(list.begin(), list.end(), engine) == list.end())
      list.push_back(engine);
  };
  for (const OrderRow& row : order)
    if (row.pass == problem.pass && row.memory == target.memory &&
        (row.covers == nullptr || row.covers(problem, target)))
      add(find(row.engine));
  for (const auto& engine : engines) add(engine.get());
  return list;
}

}  // namespace attngraph
