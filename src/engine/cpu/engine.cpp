#include "engine/cpu/engine.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/enum_names.hpp"
#include "base/message.hpp"
#include "engine/cpu/isa.hpp"
#include "engine/cpu/passes.hpp"

namespace attngraph {
namespace cpu {

const Products& products_for(const Problem& problem, const Kernels& kernels) {
  if (kernels.bf16.k_per_word == 0) return kernels.f32;
  for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kDo})
    if (problem.has(role) && problem[role].dtype != DataType::kBf16) return kernels.f32;
  return kernels.bf16;
}

Status check_isa(CpuIsa planned) {
  if (machine_runs(planned)) return {};
  return fail(Code::kBackend, "cpu: the plan is for ", planned, " and this machine has ", best_isa(),
              "; plan for this machine's target");
}

namespace {

/// The refusals of problems whose rows and heads, with what a tile adds to them, could leave int64.
std::vector<Reason> needs_countable_rows(const Problem& p) {
  constexpr int64_t kMost = int64_t{1} << 58;
  std::vector<Reason> reasons;
  const auto at_most = [&](const char* subject, int64_t has) {
    if (has > kMost) reasons.push_back({Code::kUnsupported, subject, text(has), text("at most ", kMost), ""});
  };
  const int64_t len = std::max<int64_t>(p.q_len, 1);
  at_most("batch * q_heads * q_len", saturating_product({p.batch, p.q_heads, len}));
  at_most("batch * kv_heads", saturating_product({p.batch, p.kv_heads}));
  return reasons;
}

/// True where the workspace cannot leave int64: each of at most 32 arrays is a product of some of these sizes
/// and of tile extents, padding and element bytes, which together stay below 2^18.
bool has_small_workspace(const Problem& p, const Target& target) {
  const auto size = [](int64_t extent) { return std::max<int64_t>(extent, 1); };
  return saturating_product({size(p.batch), size(std::max(p.q_heads, p.kv_heads)), size(p.q_len),
                             size(p.kv_len), size(std::max(p.qk_dim, p.v_dim)), size(target.num_threads)}) <
         int64_t{1} << 40;
}

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(Executor& executor) : executor_(executor) {}

  std::string_view name() const override { return "cpu"; }
  bool runs(Pass) const override { return true; }
  std::vector<Reason> refusals(const Problem& problem, const Target& target) const override {
    std::vector<Reason> reasons = needs_host(target);
    if (reasons.empty()) reasons = needs_float_scores(problem);
    if (reasons.empty()) reasons = needs_countable_rows(problem);
    if (!reasons.empty() || has_small_workspace(problem, target)) return reasons;
    WorkspaceLayout trial;
    trial.open_node();
    const Result<std::unique_ptr<const EnginePlan>> planned =
        plan(problem, target, {problem.batch, problem.kv_heads}, trial);
    const Status status = planned.ok() ? trial.place() : planned.status();
    if (!status.ok())
      reasons.push_back({Code::kUnsupported, "workspace", status.message(), "less than 2^63 bytes", ""});
    return reasons;
  }
  Result<std::unique_ptr<const EnginePlan>> plan(const Problem& problem, const Target& target,
                                                 const SliceShape& shape,
                                                 WorkspaceLayout& workspace) const override {
    const PlanInput input{problem, target, shape, executor_, workspace};
    switch (problem.pass) {
      case Pass::kForward:
        return plan_forward(input);
      case Pass::kBackward:
        return plan_backward(input);
      case Pass::kMerge:
        return plan_merge(input);
    }
    return fail(Code::kInternal, "cpu: pass ", problem.pass, " has no plan; must be a pass that it runs");
  }

 private:
  Executor& executor_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Engine> make_cpu_engine(Executor& executor) {
  return std::make_unique<cpu::CpuEngine>(executor);
}

}  // namespace attngraph
