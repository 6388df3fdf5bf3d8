#include "engine/reference/reference.hpp"

#include "base/checked.hpp"
#include "engine/reference/passes.hpp"
#include "engine/reference/scratch.hpp"
#include "engine/reference/summed_gradient.hpp"

namespace attngraph {
namespace reference {

Result<Regions> book_regions(const Problem& p, WorkspaceLayout& workspace) {
  if (p.pass == Pass::kMerge) return Regions{};  // element by element
  const bool is_forward = p.pass == Pass::kForward;
  const int64_t kv = p.kv_len, rows = is_forward ? 0 : 1;
  struct Row {
    RegionId Regions::*region;
    const char* name;
    std::array<int64_t, 4> extent;
  };
  const Row table[] = {
      {&Regions::k, "k of a head", {1, 1, kv, p.qk_dim}},
      {&Regions::v, "v of a head", {1, 1, kv, p.v_dim}},
      {&Regions::q, "q row", {1, 1, 1, p.qk_dim}},
      {&Regions::o, "o row", {1, 1, 1, p.v_dim}},
      {&Regions::dout, "do row", {1, 1, rows, p.v_dim}},
      {&Regions::scores, "score row", {1, 1, 1 - rows, kv}},
      {&Regions::dq, "dq row", {1, 1, rows, p.qk_dim}},
      {&Regions::dk, "dk of a head", {1, rows, kv, p.qk_dim}},
      {&Regions::dv, "dv of a head", {1, rows, kv, p.v_dim}},
      {&Regions::dbias, "dbias sums", SummedGradient::accumulators(p, Role::kDbias)},
      {&Regions::dsink, "dsink sums", SummedGradient::accumulators(p, Role::kDsink)},
      {&Regions::dalibi_slopes, "dalibi_slopes sums", SummedGradient::accumulators(p, Role::kDalibiSlopes)},
  };
  Regions regions;
  for (const Row& row : table) {
    const auto& e = row.extent;
    const Result<int64_t> bytes = checked_product({sizeof(double), e[0], e[1], e[2], e[3]}, row.name);
    if (!bytes.ok()) return bytes.status();
    const Result<RegionId> region = workspace.book({.name = row.name, .bytes = *bytes});
    if (!region.ok()) return region.status();
    regions.*row.region = *region;
  }
  return regions;
}

namespace {

class Plan : public EnginePlan {
 public:
  Plan(const Problem& problem, const Regions& regions) : problem_(problem), regions_(regions) {}

  Status run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
             void*) const override {
    const Launch launch{problem_, buffers, slice, regions_, workspace};
    switch (problem_.pass) {
      case Pass::kForward:
        forward(launch);
        break;
      case Pass::kBackward:
        backward(launch);
        break;
      case Pass::kMerge:
        merge(launch);
        break;
    }
    return {};
  }

  std::string describe() const override { return "double precision, one thread"; }

 private:
  Problem problem_;
  Regions regions_;
};

class ReferenceEngine : public Engine {
 public:
  std::string_view name() const override { return "reference"; }
  bool runs(Pass) const override { return true; }

  std::vector<Reason> refusals(const Problem& problem, const Target& target) const override {
    std::vector<Reason> reasons = needs_host(target);
    WorkspaceLayout trial;
    const Result<Regions> regions = book_regions(problem, trial);
    const Status status = regions.ok() ? trial.place() : regions.status();
    if (!status.ok())
      reasons.push_back({Code::kUnsupported, "workspace", status.message(), "less than 2^63 bytes", ""});
    return reasons;
  }

  Result<std::unique_ptr<const EnginePlan>> plan(const Problem& problem, const Target&, const SliceShape&,
                                                 WorkspaceLayout& workspace) const override {
    const Result<Regions> regions = book_regions(problem, workspace);
    if (!regions.ok()) return regions.status();
    return std::unique_ptr<const EnginePlan>(std::make_unique<Plan>(problem, *regions));
  }
};

}  // namespace
}  // namespace reference

std::unique_ptr<Engine> make_reference_engine() { return std::make_unique<reference::ReferenceEngine>(); }

}  // namespace attngraph
