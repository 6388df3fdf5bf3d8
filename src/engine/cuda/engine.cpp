#include "engine/cuda/engine.hpp"

#include <algorithm>
#include <limits>

#include "base/checked.hpp"
#include "base/message.hpp"
#include "device/device.hpp"
#include "engine/cuda/hopper_tiles.hpp"
#include "engine/cuda/launch.hpp"
#include "engine/cuda/recipe.hpp"
#include "engine/cuda/tensor_map.hpp"
#include "engine/cuda/tiles.hpp"
#include "problem/layout.hpp"

namespace attngraph::cuda {
namespace {

constexpr int64_t kMaxLen = int64_t{1} << 28;     ///< key - diagonal fits int32 with a band side added
constexpr int64_t kMaxExtent = int64_t{1} << 30;  ///< rows of a group, batch, heads, bias axes: int32 indices
constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
constexpr int64_t kSumBlocks = 64;
constexpr int64_t kWordBytes = 4;  ///< of a float or a counter

/// What is added up over batch or heads lives through all slices.
struct Regions {
  RegionId delta, lse, row_slopes, dq, dq_turns, partial_o, partial_rows, dbias, dsink, dslopes;
};

int64_t blocks_of_slice(const Problem& p, const SliceShape& shape) {
  const int64_t tiles = std::max(p.q_len, p.kv_len) / general_tile(kMaxHeadDim) + 1;
  return saturating_product({shape.batch, shape.kv_heads, std::max<int64_t>(p.group(), 1), tiles});
}

constexpr Limit kLimits[] = {{"batch * q_heads * tiles of 16 rows", blocks_of_slice, kMaxBlocks,
                              "one grid axis", "CUDA C++ programming guide, maximum x-dimension of a grid"}};

int64_t dbias_blocks(const TensorView& t, int tile) {
  return saturating_product(
      {t.extent[0], t.extent[1], ceil_div(t.extent[2], tile), ceil_div(t.extent[3], tile)});
}

class CudaPlan final : public EnginePlan {
 public:
  CudaPlan(const Problem& problem, Recipe recipe, Regions regions, int sm_version)
      : problem_(problem),
        recipe_(std::move(recipe)),
        regions_(regions),
        sm_version_(sm_version),
        encoder_(MapEncoder::find()) {
    for (const Step& step : recipe_.steps) kernels_.push_back(find_instance(step.kernel));
  }

  Status run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
             void* stream) const override {
    const Result<int> found = device::sm_version();
    ATTNGRAPH_RETURN_IF_ERROR(found.status());
    if (*found != sm_version_)
      return fail(Code::kBackend, "cuda: the plan is for sm_", sm_version_, "; the current device is sm_",
                  *found);
    Params p = recipe_.params;
    bind(buffers, slice, workspace, p);
    for (size_t i = 0; i < recipe_.steps.size(); ++i) {
      const Step& step = recipe_.steps[i];
      p.row_tiles = step.row_tiles, p.num_splits = step.splits, p.from_last = step.from_last;
      const LaunchShape shape{blocks_of(step, slice, p), step.shared_bytes, step.cluster};
      HopperCopies copies;
      if (shape.blocks > 0) ATTNGRAPH_RETURN_IF_ERROR(prepare(step, p, copies));
      ATTNGRAPH_RETURN_IF_ERROR(launch(*kernels_[i], shape, {p, copies}, stream));
    }
    return {};
  }

  bool deterministic() const override { return recipe_.dq_columns == 0 || recipe_.dq_in_turn; }

  std::string describe() const override {
    std::string line;
    for (const Step& step : recipe_.steps)
      line += text(line.empty() ? "" : ", ", name_of(step.kernel.family),
                   step.kernel.size > 0 ? text(' ', step.kernel.size) : "",
                   step.kernel.extras ? " extras" : "", step.kernel.reads ? " of matrices" : "",
                   step.splits > 1 ? text(" x", step.splits, " splits") : "");
    if (!recipe_.why_no_hopper.empty()) line += "; of sm_90a none: " + recipe_.why_no_hopper;
    return line;
  }

 private:
  int64_t blocks_of(const Step& step, const Slice& slice, const Params& p) const {
    const int64_t batch = slice.batch_end - slice.batch_begin,
                  kv_heads = slice.kv_head_end - slice.kv_head_begin;
    switch (step.grid) {
      case Grid::kKvHeads:
        return int64_t{step.row_tiles} * step.splits * kv_heads * batch;
      case Grid::kQHeads:
        return step.row_tiles * kv_heads * p.group * batch;
      case Grid::kMultiprocessors:
      case Grid::kKvMultiprocessors:
        return std::min<int64_t>(recipe_.multiprocessors, row_tiles_of(step, p));
      case Grid::kBias:
        return dbias_blocks(p[Role::kDbias], step.kernel.size);
      case Grid::kBiasMultiprocessors:
        return std::min<int64_t>(recipe_.multiprocessors, dbias_blocks(p[Role::kDbias], kHopperDbiasTile));
      case Grid::kHeads:
        return kv_heads * p.group;
      case Grid::kSums:
        return slice.is_last ? kSumBlocks : 0;
    }
    return 0;
  }

  static int64_t row_tiles_of(const Step& step, const Params& p) {
    const int64_t heads = int64_t{p.kv_head_count} * (step.grid == Grid::kKvMultiprocessors ? 1 : p.group);
    return step.row_tiles * heads * p.batch_count;
  }

  Status prepare(const Step& step, const Params& p, HopperCopies& copies) const {
    int32_t rows = 0, keys = 0;
    copies.tiles = static_cast<int32_t>(row_tiles_of(step, p)), copies.heads_together = step.heads_together;
    copies.sequences_together = step.sequences_together;
    copies.bias_in_chunks = recipe_.bias_in_chunks, copies.mask_in_chunks = recipe_.mask_in_chunks;
    if (step.kernel.family == Family::kHopperForward) {
      const Scores scores = step.kernel.reads    ? Scores::kRead
                            : step.kernel.extras ? Scores::kBent
                                                 : Scores::kPlain;
      const HopperTile tile = hopper_forward_tile(step.kernel.size, scores);
      rows = tile.q_box_rows(), keys = copies.key_box_rows = recipe_.key_box_rows;
    } else if (step.kernel.family == Family::kHopperBackward) {
      const HopperGradientTile tile = hopper_gradient_tile(step.kernel.size);
      rows = tile.q_rows, keys = tile.keys;
    } else if (step.kernel.family == Family::kHopperDkdv) {
      rows = hopper_dkdv_tile(step.kernel.size, step.kernel.extras).q_rows, keys = HopperDkdvTile::keys;
    } else if (step.kernel.family == Family::kHopperDq) {
      rows = HopperDqTile::rows, keys = hopper_dq_tile(step.kernel.size).keys;
    } else if (step.kernel.family == Family::kHopperDbias) {
      rows = keys = kHopperDbiasTile;
      copies.tiles = static_cast<int32_t>(dbias_blocks(p[Role::kDbias], kHopperDbiasTile));
    } else if (step.kernel.family == Family::kHopperDecode) {
      keys = copies.key_box_rows = recipe_.key_box_rows;
    } else {
      return {};
    }
    if (rows > 0) ATTNGRAPH_RETURN_IF_ERROR(encoder_.encode(p[Role::kQ], rows, copies.q));
    if (p[Role::kDo].present) ATTNGRAPH_RETURN_IF_ERROR(encoder_.encode(p[Role::kDo], rows, copies.dout));
    ATTNGRAPH_RETURN_IF_ERROR(encoder_.encode(p[Role::kK], keys, copies.k));
    return encoder_.encode(p[Role::kV], keys, copies.v);
  }

  void bind(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace, Params& p) const {
    for (size_t i = 0; i < kNumRoles; ++i) {
      const Role role = static_cast<Role>(i);
      TensorView& t = p.tensors[i];
      if (!t.present) continue;
      t.data = buffers.data[i], t.offsets = buffers.offsets[i];
      t.slots = buffers.bounds.slots(t.side);
      if (t.extent[0] == problem_.batch) t.extent[0] = static_cast<int32_t>(buffers.bounds.batch);
      if (role == Role::kK && problem_.has(Role::kPageTableK)) t.pages = buffers.bounds.k_pages;
      if (role == Role::kV && problem_.has(Role::kPageTableV)) t.pages = buffers.bounds.v_pages;
      if (t.ragged) p.ragged_roles |= uint32_t{1} << i;
      p.batch_strides[i] = t.ragged || t.pages > 0 ? 0 : t.stride[0];
    }
    p.batch = static_cast<int32_t>(buffers.bounds.batch);
    p.batch_begin = static_cast<int32_t>(slice.batch_begin);
    p.batch_count = static_cast<int32_t>(slice.batch_end - slice.batch_begin);
    p.kv_head_begin = static_cast<int32_t>(slice.kv_head_begin);
    p.kv_head_count = static_cast<int32_t>(slice.kv_head_end - slice.kv_head_begin);
    p.merged_splits = recipe_.splits;
    const auto bytes = [&](RegionId id) { return id.index < 0 ? nullptr : workspace[id]; };
    const auto floats = [&](RegionId id) { return reinterpret_cast<float*>(bytes(id)); };
    const auto words = [&](RegionId id) { return reinterpret_cast<int32_t*>(bytes(id)); };
    p.scratch = {floats(regions_.delta),
                 floats(regions_.lse),
                 floats(regions_.row_slopes),
                 floats(regions_.dq),
                 words(regions_.dq_turns),
                 floats(regions_.partial_o),
                 reinterpret_cast<PartRow*>(bytes(regions_.partial_rows)),
                 floats(regions_.dbias),
                 floats(regions_.dsink),
                 floats(regions_.dslopes)};
  }

  Problem problem_;
  Recipe recipe_;
  Regions regions_;
  int sm_version_;  ///< of the target
  MapEncoder encoder_;
  std::vector<const KernelInstance*> kernels_;
};

/// Collects bookings; the first failure stays.
class Booker {
 public:
  explicit Booker(WorkspaceLayout& workspace) : workspace_(workspace) {}

  RegionId words(const char* name, std::initializer_list<int64_t> extents, Scope scope = Scope::kSlice,
                 Fill fill = Fill::kNone) {
    const int64_t bytes = saturating_product({saturating_product(extents), kWordBytes});
    Booking booking;
    booking.name = name;
    booking.bytes = bytes;
    booking.fill = scope == Scope::kNode ? Fill::kZero : fill;
    booking.scope = scope;
    const auto id = workspace_.book(booking);
    if (id.ok()) return *id;
    if (status_.ok()) status_ = id.status();
    return {};
  }
  const Status& status() const { return status_; }

 private:
  WorkspaceLayout& workspace_;
  Status status_;
};

Reason reason(std::string subject, std::string has, std::string wants) {
  return {Code::kUnsupported, std::move(subject), std::move(has), std::move(wants), ""};
}

class CudaEngine final : public Engine {
 public:
  std::string_view name() const override { return "cuda"; }
  bool runs(Pass) const override { return true; }
  std::span<const Limit> limits() const override { return kLimits; }

  std::vector<Reason> refusals(const Problem& problem, const Target& target) const override {
    if (target.memory != MemoryKind::kCuda) return {reason("target", "host", "a cuda device")};
    std::vector<Reason> reasons = needs_float_scores(problem);
    const auto at_most = [&](const char* subject, int64_t has, int64_t most) {
      if (has > most) reasons.push_back(reason(subject, text(has), text("at most ", most)));
    };
    if (target.sm_version < 80)
      reasons.push_back(reason("target", text("sm_", target.sm_version), "sm_80 or newer"));
    if (target.sm_count < 1) reasons.push_back(reason("target", text(target.sm_count, " SMs"), "at least 1"));
    at_most("qk_dim", problem.qk_dim, kMaxHeadDim);
    at_most("v_dim", problem.v_dim, problem.pass == Pass::kMerge ? kMaxExtent : kMaxHeadDim);
    at_most("q_len", problem.q_len, kMaxLen);
    at_most("kv_len", problem.kv_len, kMaxLen);
    at_most("q_len * group", saturating_product({problem.q_len, std::max<int64_t>(problem.group(), 1)}),
            kMaxExtent);
    at_most("kv_len * group", saturating_product({problem.kv_len, std::max<int64_t>(problem.group(), 1)}),
            kMaxExtent);
    at_most("batch", problem.batch, kMaxExtent);
    at_most("q_heads", problem.q_heads, kMaxExtent);
    if (problem.has(Role::kPageTableK)) {
      at_most("pages of k", batch(problem[Role::kK]), kMaxExtent);
      at_most("page size of k", len(problem[Role::kK]), kMaxExtent);
    }
    if (problem.has(Role::kPageTableV)) {
      at_most("pages of v", batch(problem[Role::kV]), kMaxExtent);
      at_most("page size of v", len(problem[Role::kV]), kMaxExtent);
    }
    if (reasons.empty() && problem.pass != Pass::kMerge) {
      const int64_t bytes =
          general_backward_shared_bytes(static_cast<int>(problem.qk_dim), static_cast<int>(problem.v_dim));
      if (bytes > target.shared_memory_bytes)
        reasons.push_back(
            reason("target", text(target.shared_memory_bytes, " bytes of shared memory"), text(bytes)));
    }
    return reasons;
  }

  Result<std::unique_ptr<const EnginePlan>> plan(const Problem& problem, const Target& target,
                                                 const SliceShape& shape,
                                                 WorkspaceLayout& workspace) const override {
    Recipe recipe = make_recipe(problem, target, shape);
    Booker book(workspace);
    Regions regions;
    const int64_t heads = shape.kv_heads * problem.group(), slots = recipe.params.packed_slots;
    if (problem.pass == Pass::kBackward) {
      regions.delta = book.words("delta", {heads, slots});
      regions.lse = book.words("log-sum-exp", {heads, slots});
      if (recipe.dq_columns > 0)
        regions.dq = book.words("dq sums", {heads, slots, recipe.dq_columns}, Scope::kSlice,
                                recipe.dq_in_turn ? Fill::kNone : Fill::kZero);
      if (recipe.dq_in_turn)
        regions.dq_turns =
            book.words("dq turns", {heads, recipe.dq_columns / kDqColumns, dq_blocks(slots, shape.batch)},
                       Scope::kSlice, Fill::kZero);
      if (problem.has(Role::kDalibiSlopes)) {
        regions.row_slopes = book.words("dalibi rows", {heads, slots});
        regions.dslopes =
            book.words("dalibi sums", {batch(problem[Role::kDalibiSlopes]), problem.q_heads}, Scope::kNode);
      }
      if (problem.has(Role::kDsink))
        regions.dsink = book.words("dsink sums", {problem.q_heads}, Scope::kNode);
      const auto& e = problem[Role::kDbias].extent;
      if (recipe.keeps_dbias)
        regions.dbias = book.words("dbias sums", {e[0], e[1], e[2], e[3]}, Scope::kNode);
    }
    if (recipe.splits > 1) {
      regions.partial_o = book.words("split o", {recipe.splits, heads, slots, problem.v_dim});
      regions.partial_rows =
          book.words("split maxima and sums", {recipe.splits, heads, slots, sizeof(PartRow) / kWordBytes});
    }
    ATTNGRAPH_RETURN_IF_ERROR(book.status());
    return std::unique_ptr<const EnginePlan>(
        new CudaPlan(problem, std::move(recipe), regions, target.sm_version));
  }
};

}  // namespace
}  // namespace attngraph::cuda

namespace attngraph {

std::unique_ptr<const Engine> make_cuda_engine() { return std::make_unique<cuda::CudaEngine>(); }

}  // namespace attngraph
