#include "engine/registry.hpp"

#include <array>

#include "engine/reference/reference.hpp"

namespace attngraph {
namespace {

constexpr std::array<OrderRow, 4> kOrder = {{
    {Pass::kForward, MemoryKind::kHost, "cpu"},
    {Pass::kForward, MemoryKind::kHost, "reference"},
    {Pass::kBackward, MemoryKind::kHost, "cpu"},
    {Pass::kBackward, MemoryKind::kHost, "reference"},
}};

}  // namespace

EngineSet make_engines(Executor&) {
  EngineSet set;
  set.engines.push_back(make_reference_engine());
  set.order = kOrder;
  return set;
}

}  // namespace attngraph
