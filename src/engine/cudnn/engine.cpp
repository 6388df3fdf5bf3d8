#include "engine/cudnn/engine.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/checked.hpp"
#include "base/message.hpp"
#include "device/device.hpp"
#include "engine/cudnn/bias.hpp"
#include "engine/cudnn/gates.hpp"
#include "engine/cudnn/lower.hpp"
#include "engine/cudnn/plan.hpp"
#include "plan/slices.hpp"
#include "problem/layout.hpp"

namespace attngraph::cudnn {
namespace {

/// The sizes of the slices that a node is cut into: that of all, and of the last along each axis.
std::vector<SliceShape> slice_shapes(const Problem& p, const SliceShape& shape) {
  std::vector<SliceShape> shapes;
  const SliceCounts counts = count_slices(shape, p.batch, p.kv_heads);
  for (const int64_t index :
       {int64_t{0}, counts.kv_heads - 1, counts.total() - counts.kv_heads, counts.total() - 1}) {
    const Slice slice = slice_at(index, counts, shape, p.batch, p.kv_heads);
    const SliceShape size{slice.batch_end - slice.batch_begin, slice.kv_head_end - slice.kv_head_begin};
    const auto is_same = [&](const SliceShape& s) {
      return s.batch == size.batch && s.kv_heads == size.kv_heads;
    };
    if (std::none_of(shapes.begin(), shapes.end(), is_same)) shapes.push_back(size);
  }
  return shapes;
}

Status book(WorkspaceLayout& workspace, Booking booking, RegionId& region) {
  const auto booked = workspace.book(std::move(booking));
  if (booked.ok()) region = *booked;
  return booked.status();
}

/// Books all that the largest slice needs; the others fit into it.
Status book_regions(const std::vector<std::shared_ptr<const Piece>>& pieces, WorkspaceLayout& workspace,
                    Regions& regions) {
  const Piece& largest = *pieces.front();
  for (const OpTensor& tensor : largest.graph.tensors) {
    if (tensor.place != Place::kScratch) continue;
    const auto bytes = scratch_bytes(largest.problem, tensor);
    if (!bytes.ok()) return bytes.status();
    Booking booking{.name = tensor.name, .bytes = *bytes};
    if (tensor.scratch == Scratch::kDbias) booking.fill = Fill::kZero;
    ATTNGRAPH_RETURN_IF_ERROR(
        book(workspace, std::move(booking), regions.scratch[static_cast<size_t>(tensor.scratch)]));
  }
  for (size_t i = 0; i < kNumRoles; ++i)
    if (has_lengths(largest.problem) && largest.problem.operands[i].present &&
        side_of(static_cast<Role>(i)) != Side::kNone)
      ATTNGRAPH_RETURN_IF_ERROR(book(workspace,
                                     {.name = text(static_cast<Role>(i), " offsets"),
                                      .bytes = (largest.problem.batch + 1) * element_bytes(DataType::kI64)},
                                     regions.offsets[i]));
  int64_t backend_bytes = 0;
  for (const auto& piece : pieces) backend_bytes = std::max(backend_bytes, piece->built.workspace_bytes);
  return book(workspace, {.name = "cudnn", .bytes = backend_bytes}, regions.backend);
}

/// Sums of dbias that outlive a slice, where slices cut an axis that it sums over.
Status book_dbias_sums(const Problem& problem, const SliceShape& shape, WorkspaceLayout& workspace,
                       Regions& regions) {
  const std::array<int64_t, 4>& extent = problem[Role::kDbias].extent;
  const bool sums_slices = (extent[0] == 1 && shape.batch < problem.batch) ||
                           (extent[1] == 1 && shape.kv_heads < problem.kv_heads);
  if (!problem.has(Role::kDbias) || !sums_slices) return {};
  OpTensor sums{"dbias_sums", DataType::kF32, extent, packed_strides(extent)};
  const auto bytes = scratch_bytes(problem, sums);
  if (!bytes.ok()) return bytes.status();
  Booking booking{.name = "dbias of all slices", .bytes = *bytes};
  booking.fill = Fill::kZero, booking.scope = Scope::kNode;
  return book(workspace, std::move(booking), regions.dbias_sums);
}

/// Of the largest tensor of a slice of a backward.
int64_t elems_of_slice(const Problem& problem, const SliceShape& shape) {
  if (problem.pass != Pass::kBackward) return 0;
  const Problem slice = slice_of(problem, shape);
  int64_t most = 0;
  for (size_t i = 0; i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    if (slice.has(role) && side_of(role) != Side::kNone) most = std::max(most, footprint_elems(slice, role));
  }
  return most;
}

/// What a slice books by the score: the gradients of a backward with dbias, and the engine's own bias.
int64_t scores_of_slice(const Problem& problem, const SliceShape& shape) {
  if (problem.has(Role::kDbias))
    return saturating_product({shape.batch, shape.kv_heads, problem.group(), problem.q_len, problem.kv_len});
  if (!makes_bias(problem)) return 0;
  const auto [batch, heads, rows, keys] = own_bias_extent(slice_of(problem, shape));
  return saturating_product({batch, heads, rows, keys});
}

constexpr Limit kLimits[] = {
    {"elements of a tensor in backward", elems_of_slice, (int64_t{1} << 31) - 1,
     "cuDNN writes a wrong dq and dk beyond",
     "measured with 9.19.0 on an H200, samples/pytorch/test_attngraph_torch.py"},
    {"scores in the workspace, of a bias or for dbias", scores_of_slice, int64_t{1} << 30,
     "each takes 2 bytes, or 4", "a choice: 2 or 4 GiB of a device's memory"},
};

class CudnnEngine final : public Engine {
 public:
  explicit CudnnEngine(std::string path) : path_(std::move(path)) {}

  std::string_view name() const override { return "cudnn"; }
  bool refuses_late() const override { return true; }
  bool takes_fewer_sequences() const override { return false; }
  std::span<const Limit> limits() const override { return kLimits; }

  void complete(Target& target) const override {
    if (const Library* library = backend().library.get()) target.cudnn_version = library->version();
  }

  std::vector<Reason> refusals(const Problem& problem, const Target& target) const override {
    return cudnn::refusals({problem, target, was_searched_ ? std::string_view(missing_) : ""});
  }

  Result<int64_t> num_ways(const Problem& problem, const Target& target,
                           const SliceShape& shape) const override {
    const auto device = device_of(target);
    if (!device.ok()) return device.status();
    const auto handle = backend().handles->take(*device, nullptr);
    if (!handle.ok()) return handle.status();
    const OpGraph graph = lower(slice_of(problem, slice_shapes(problem, shape).front()));
    auto proposals = Proposals::make(*backend().library, graph, handle->raw());
    if (!proposals.ok()) return proposals.status();
    return proposals->count();
  }

  Result<std::unique_ptr<const EnginePlan>> plan(const Problem& problem, const Target& target,
                                                 const SliceShape& shape,
                                                 WorkspaceLayout& workspace) const override {
    return plan_by(std::nullopt, problem, target, shape, workspace);
  }

  Result<std::unique_ptr<const EnginePlan>> plan_way(int64_t way, const Problem& problem,
                                                     const Target& target, const SliceShape& shape,
                                                     WorkspaceLayout& workspace) const override {
    return plan_by(way, problem, target, shape, workspace);
  }

 private:
  /// The current device, when the target is it.
  ///
  /// Errors: kUnsupported: cuDNN plans on the device that it will run on.
  Result<int> device_of(const Target& target) const {
    if (backend().library == nullptr) return fail(Code::kUnsupported, missing_);
    const auto here = device::cuda_target();
    if (!here.ok()) return fail(Code::kUnsupported, "cudnn: ", here.status().message());
    const int version = backend().library->version();
    if (target.sm_version != here->sm_version || target.cudnn_version != version)
      return fail(Code::kUnsupported, "cudnn: target is sm_", target.sm_version, " with cuDNN ",
                  version_text(target.cudnn_version), "; must be the current device, sm_", here->sm_version,
                  " with ", version_text(version), ", as cuDNN plans where it runs");
    return device::current();
  }

  Result<std::unique_ptr<const EnginePlan>> plan_by(std::optional<int64_t> proposal, const Problem& problem,
                                                    const Target& target, const SliceShape& shape,
                                                    WorkspaceLayout& workspace) const {
    const auto device = device_of(target);
    if (!device.ok()) return device.status();
    std::vector<std::shared_ptr<const Piece>> pieces;
    for (const SliceShape& size : slice_shapes(problem, shape)) {
      auto piece = piece_for(slice_of(problem, size), proposal, *device);
      if (!piece.ok()) return piece.status();
      pieces.push_back(std::move(*piece));
    }
    Regions regions;
    ATTNGRAPH_RETURN_IF_ERROR(book_regions(pieces, workspace, regions));
    ATTNGRAPH_RETURN_IF_ERROR(book_dbias_sums(problem, shape, workspace, regions));
    return std::unique_ptr<const EnginePlan>(
        new CudnnPlan(backend(), problem, std::move(pieces), regions, *device));
  }

  /// Plans of the same slices share what cuDNN built, as long as one of them lives.
  Result<std::shared_ptr<const Piece>> piece_for(const Problem& problem, std::optional<int64_t> proposal,
                                                 int device) const {
    const std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const Known& known) { return known.piece.expired(); });
    for (const Known& known : known_)
      if (auto piece = known.piece.lock();
          piece && known.proposal == proposal && known.device == device && piece->problem == problem)
        return piece;
    const auto handle = backend().handles->take(device, nullptr);
    if (!handle.ok()) return handle.status();
    auto piece = make_piece(*backend().library, problem, proposal, handle->raw());
    if (piece.ok()) known_.push_back({*piece, proposal, device});
    return piece;
  }

  struct Known {
    std::weak_ptr<const Piece> piece;
    std::optional<int64_t> proposal;
    int device = 0;
  };

  /// The library, searched for once.
  const Backend& backend() const {
    std::call_once(search_, [this] {
      if (auto library = Library::find(path_, Linker::system()); library.ok())
        backend_ = {*library, std::make_shared<Handles>(*library)};
      else
        missing_ = library.status().message();
      was_searched_ = true;
    });
    return backend_;
  }

  const std::string path_;
  mutable std::once_flag search_;
  mutable Backend backend_;      ///< without a library when none was found
  mutable std::string missing_;  ///< why none was found
  mutable std::atomic<bool> was_searched_ = false;
  mutable std::mutex mutex_;
  mutable std::vector<Known> known_;
};

}  // namespace
}  // namespace attngraph::cudnn

namespace attngraph {

std::unique_ptr<const Engine> make_cudnn_engine(std::string path) {
  return std::make_unique<cudnn::CudnnEngine>(std::move(path));
}

}  // namespace attngraph
