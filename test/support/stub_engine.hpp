#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/planner.hpp"

namespace attngraph::test {

/// What a stub engine answers; each member has the plain answer as its default.
struct StubBehaviour {
  std::string name = "stub";
  std::vector<Reason> refusals;
  std::vector<Limit> limits;
  /// Regions of a slice; by default one of 1024 bytes per sequence and kv head.
  std::function<std::vector<Booking>(const Problem&, const SliceShape&)> regions =
      [](const Problem&, const SliceShape& shape) {
        Booking booking;
        booking.name = "accumulator";
        booking.bytes = 1024 * shape.batch * shape.kv_heads;
        return std::vector<Booking>{booking};
      };
  std::function<void(const Buffers&, const Slice&, const PlacedWorkspace&)> run =
      [](const Buffers&, const Slice&, const PlacedWorkspace&) {};
  std::vector<std::function<void()>> ways;  ///< what a run does in each way; none: the engine has one
  std::vector<Status> way_failures;         ///< of planning, by way
  std::vector<int64_t> way_bytes;           ///< of a region more, by way
  Status plan_failure;
  bool refuses_late = false;
  bool takes_fewer_sequences = true;
  bool deterministic = true;
};

class StubPlan final : public EnginePlan {
 public:
  explicit StubPlan(const StubBehaviour& behaviour, size_t way = 0) : behaviour_(behaviour), way_(way) {}
  Status run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
             void*) const override {
    behaviour_.run(buffers, slice, workspace);
    if (way_ < behaviour_.ways.size()) behaviour_.ways[way_]();
    return {};
  }
  bool deterministic() const override { return behaviour_.deterministic; }
  std::string describe() const override { return "does what the test says"; }

 private:
  const StubBehaviour& behaviour_;
  const size_t way_;
};

class StubEngine final : public Engine {
 public:
  explicit StubEngine(StubBehaviour behaviour) : behaviour_(std::move(behaviour)) {}
  std::string_view name() const override { return behaviour_.name; }
  std::vector<Reason> refusals(const Problem&, const Target&) const override { return behaviour_.refusals; }
  bool refuses_late() const override { return behaviour_.refuses_late; }
  bool takes_fewer_sequences() const override { return behaviour_.takes_fewer_sequences; }
  std::span<const Limit> limits() const override { return behaviour_.limits; }
  Result<std::unique_ptr<const EnginePlan>> plan(const Problem& problem, const Target&,
                                                 const SliceShape& shape,
                                                 WorkspaceLayout& workspace) const override {
    if (!behaviour_.plan_failure.ok()) return behaviour_.plan_failure;
    for (Booking& booking : behaviour_.regions(problem, shape)) {
      auto region = workspace.book(std::move(booking));
      if (!region.ok()) return region.status();
    }
    return std::unique_ptr<const EnginePlan>(std::make_unique<StubPlan>(behaviour_));
  }
  Result<int64_t> num_ways(const Problem&, const Target&, const SliceShape&) const override {
    return std::max<int64_t>(1, static_cast<int64_t>(behaviour_.ways.size()));
  }
  Result<std::unique_ptr<const EnginePlan>> plan_way(int64_t way, const Problem& problem,
                                                     const Target& target, const SliceShape& shape,
                                                     WorkspaceLayout& workspace) const override {
    const auto index = static_cast<size_t>(way);
    if (index < behaviour_.way_failures.size() && !behaviour_.way_failures[index].ok())
      return behaviour_.way_failures[index];
    const auto planned = plan(problem, target, shape, workspace);
    if (!planned.ok()) return planned.status();
    if (index < behaviour_.way_bytes.size()) {
      Booking booking;
      booking.name = "way";
      booking.bytes = behaviour_.way_bytes[index];
      if (const auto region = workspace.book(std::move(booking)); !region.ok()) return region.status();
    }
    return std::unique_ptr<const EnginePlan>(std::make_unique<StubPlan>(behaviour_, index));
  }

 private:
  StubBehaviour behaviour_;
};

/// Stub engines in the given order, for both passes on the host.
inline std::shared_ptr<const EngineSet> stub_engines(std::vector<StubBehaviour> behaviours) {
  struct Owner {
    EngineSet set;
    std::vector<OrderRow> order;
  };
  auto owner = std::make_shared<Owner>();
  for (StubBehaviour& behaviour : behaviours)
    owner->set.engines.push_back(std::make_unique<StubEngine>(std::move(behaviour)));
  for (const auto& engine : owner->set.engines)
    for (const Pass pass : {Pass::kForward, Pass::kBackward})
      owner->order.push_back({pass, MemoryKind::kHost, engine->name()});
  owner->set.order = owner->order;
  return {owner, &owner->set};
}

/// A dense float32 forward node over q, k, v and o in slots 0 to 3.
inline ProgramNode forward_node(int64_t batch, int64_t heads, int64_t len, int64_t dim) {
  ProgramNode node;
  Problem& p = node.problem;
  p.batch = batch, p.q_heads = p.kv_heads = heads, p.q_len = p.kv_len = len, p.qk_dim = p.v_dim = dim;
  int slot = 0;
  for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kO}) {
    p[role].present = true;
    p[role].extent = {batch, heads, len, dim};
    p[role].stride = {heads * len * dim, len * dim, dim, 1};
    node.slots.data[static_cast<size_t>(role)] = slot++;
  }
  return node;
}

inline Program forward_program(int64_t batch, int64_t heads, int64_t len, int64_t dim) {
  return {{forward_node(batch, heads, len, dim)}, {false, false, false, false}};
}

/// Plans a program whose slot i has uid i + 1 and the name of its first role.
inline Result<Plan> plan_program(const Program& program, const PlanOptions& options,
                                 std::shared_ptr<const EngineSet> engines) {
  auto core = make_plan(program, Target::cpu(1), options, std::move(engines));
  if (!core.ok()) return core.status();
  std::vector<SlotName> names;
  for (const SlotFacts& facts : (*core)->slots)
    names.push_back({static_cast<Uid>(names.size()) + 1, std::string(name_of(facts.uses.front().role))});
  return Plan(std::make_shared<PlanState>(std::move(*core), std::move(names)));
}

}  // namespace attngraph::test
