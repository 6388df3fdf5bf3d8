#include "engine/cpu/engine.hpp"

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

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(Executor& executor) : executor_(executor) {}

  std::string_view name() const override { return "cpu"; }
  bool runs(Pass) const override { return true; }
  std::vector<Reason> refusals(const Problem& problem, const Target& target) const override {
    std::vector<Reason> reasons = needs_host(target);
    return reasons.empty() ? needs_float_scores(problem) : reasons;
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
