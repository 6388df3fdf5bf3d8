#include "base/enum_names.hpp"
#include "engine/cpu/forward_item.hpp"

namespace attngraph::cpu {
namespace {

class ForwardPlan final : public EnginePlan {
 public:
  explicit ForwardPlan(const PlanInput& in)
      : isa_(in.target.isa),
        workers_(std::max(1, in.target.num_threads)),
        executor_(in.executor),
        context_(in.problem, isa_, workers_) {}

  Status book(const PlanInput& in) {
    Booker book(in.workspace, workers_);
    context_.book(in.shape, book);
    return book.status();
  }
  Status run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
             void* stream) const override;
  std::string describe() const override {
    return text("isa ", name_of(isa_), ", ", workers_, " threads, chunks of ", context_.tiles.chunk_rows,
                " rows, ", context_.tiles.splits, " key splits");
  }

 private:
  const CpuIsa isa_;
  const int64_t workers_;
  Executor& executor_;
  ForwardContext context_;
};

Status ForwardPlan::run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
                        void*) const {
  ATTNGRAPH_RETURN_IF_ERROR(check_isa(isa_));
  const ForwardTiles& tiles = context_.tiles;
  const int64_t bundles = tiles.bundles(slice.kv_head_end - slice.kv_head_begin);
  const int64_t num_chunks = (slice.batch_end - slice.batch_begin) * bundles * tiles.lanes * tiles.chunks;
  const auto place = [&](int64_t index) {
    ForwardItem::Place p{};
    p.chunk_index = index;
    p.chunk = tiles.chunks - 1 - index % tiles.chunks;  // under a causal band the last are the longest
    const int64_t lane = index / tiles.chunks;
    p.lane = lane % tiles.lanes;
    p.kv_head = slice.kv_head_begin + lane / tiles.lanes % bundles * tiles.bundle;
    p.num_kv_heads = std::min(tiles.bundle, slice.kv_head_end - p.kv_head);
    p.batch = slice.batch_begin + lane / tiles.lanes / bundles;
    return p;
  };
  for_each_item(executor_, workers_, num_chunks * tiles.splits, [&](int64_t index, int64_t worker) {
    const int64_t split = index % tiles.splits;
    const ForwardItem::Place at = place(index / tiles.splits);
    const Sequence sequence(context_.problem, buffers, at.batch);
    ForwardItem item(context_, sequence, at, workspace, worker);
    if (at.chunk == 0 && split == 0) item.write_padding();
    item.attend(split);
    tiles.splits == 1 ? item.write_rows() : item.leave_partial(split);
  });
  if (tiles.splits == 1) return {};
  for_each_item(executor_, workers_, num_chunks, [&](int64_t index, int64_t worker) {
    const ForwardItem::Place at = place(index);
    const Sequence sequence(context_.problem, buffers, at.batch);
    ForwardItem(context_, sequence, at, workspace, worker).merge_partials();
  });
  return {};
}

}  // namespace

Result<std::unique_ptr<const EnginePlan>> plan_forward(const PlanInput& input) {
  auto plan = std::make_unique<ForwardPlan>(input);
  ATTNGRAPH_RETURN_IF_ERROR(plan->book(input));
  return std::unique_ptr<const EnginePlan>(std::move(plan));
}

}  // namespace attngraph::cpu
