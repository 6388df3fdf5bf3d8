#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/cudnn/build.hpp"
#include "engine/cudnn/handles.hpp"
#include "engine/cudnn/rows.hpp"
#include "plan/engine.hpp"

namespace attngraph::cudnn {

/// A plan of cuDNN's for slices of one size, and what its variant packs are made of.
struct Piece {
  /// One entry of a variant pack: a tensor of the graph that is in memory.
  struct Entry {
    Place place = Place::kOperand;
    Role role = Role::kQ;
    Scratch scratch = Scratch::kQLen;
    size_t scalar = 0;
  };

  Problem problem;  ///< of the slice
  OpGraph graph;
  BuiltPlan built;
  std::vector<int64_t> ids;  ///< by entry
  std::vector<Entry> entries;
  std::vector<int32_t> scalars;  ///< bits of int32 and float32 values, read by cuDNN on the host
};

/// By the proposal of that number, without one by the first that builds.
///
/// Errors: those of Proposals.
Result<std::shared_ptr<const Piece>> make_piece(const Library& library, const Problem& problem,
                                                std::optional<int64_t> proposal, cudnnHandle_t handle);

/// Where the engine's own memory lies; index -1: none.
struct Regions {
  std::array<RegionId, kNumScratch> scratch;
  std::array<RegionId, kNumRoles> offsets;
  RegionId backend;
  RegionId dbias_sums;  ///< of all slices, when dbias sums over what they cut
};

/// What all plans of an engine share.
struct Backend {
  std::shared_ptr<const Library> library;
  std::shared_ptr<Handles> handles;
};

/// Prepares lengths and stats, runs cuDNN, settles the rows that it leaves unwritten.
class CudnnPlan final : public EnginePlan {
 public:
  CudnnPlan(Backend backend, const Problem& problem, std::vector<std::shared_ptr<const Piece>> pieces,
            const Regions& regions, int device);

  Status run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
             void* stream) const override;
  bool deterministic() const override { return problem_.pass == Pass::kForward; }
  std::string describe() const override;

 private:
  /// One call of run().
  struct Call;

  Status execute(const Call& call) const;
  PrepareParams prepare_params(const Call& call) const;
  Matrix matrix(const Call& call, Role role) const;
  Matrix own_matrix(const Call& call) const;
  BiasParams bias_params(const Call& call) const;
  StatsParams stats_params(const Call& call) const;
  SettleParams settle_params(const Call& call) const;
  SinkParams sink_params(const Call& call) const;
  Status store_dbias(const Call& call) const;
  RowFacts facts(const Call& call) const;
  RowTensor rows(const Call& call, Role role) const;
  RowTensor row_array(const Call& call, Scratch scratch) const;
  std::byte* data(const Call& call, Role role) const;

  Backend backend_;
  Problem problem_;
  std::vector<std::shared_ptr<const Piece>> pieces_;
  Regions regions_;
  int device_;
  bool prepares_, makes_bias_, copies_stats_, settles_;
};

}  // namespace attngraph::cudnn
