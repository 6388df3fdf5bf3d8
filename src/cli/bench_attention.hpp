#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>

#include "attngraph/context.hpp"
#include "attngraph/recording.hpp"
#include "attngraph/training.hpp"
#include "cli/bench_groups.hpp"
#include "cli/mirrored.hpp"

namespace attngraph::cli {

/// Lengths of a packed case: the mix of samples/graphs/llama3_8b_packed_training.json, 4 sequences in
/// 6,656 slots of which the longest may take 2,048, at sixteen times its lengths.
inline constexpr std::array<int64_t, 4> kPackedLens = {2048, 1536, 1792, 1024};
/// A prompt among short ones.
inline constexpr std::array<int64_t, 32> kOneLongLens = [] {
  std::array<int64_t, 32> lens{};
  lens.fill(128);
  lens[15] = 8192;
  return lens;
}();
inline constexpr int64_t kGapSlots = 64;

/// A forward graph and the names of its data that are not random.
struct BenchGraph {
  Graph graph;
  Uid lengths = 0, offsets = 0;  ///< 0: dense
  std::vector<int32_t> length_values;
  std::vector<int32_t> offset_values;  ///< where each sequence begins, in token slots, and the end
  Uid page_table = 0;                  ///< of k and v; 0: not paged
  std::vector<int32_t> pages;          ///< of all sequences, in random order
};
BenchGraph forward_graph(const AttentionCase& problem);
/// Derives the gradients of q, k and v.
Result<TrainingPair> bench_pair(const AttentionCase& problem, const Graph& forward);

/// Multiplications and additions of the kept elements.
///
/// Source: two products of 2 * dim operations a kept element forward, five backward.
double attention_flops(const AttentionCase& problem);
/// Of all keys and values.
double kv_bytes(const AttentionCase& problem);

/// A case planned, with memory of its own and true o and stats, ready to be timed.
class AttentionBench {
 public:
  /// `chunks`: plan with the workspace that the plan in so many chunks takes.
  ///
  /// Errors: those of planning; kUnsupported when no budget leads to so many chunks.
  static Result<std::shared_ptr<const AttentionBench>> make(const AttentionCase& problem,
                                                            const BenchSetup& setup, int64_t chunks = 1);
  /// On a device: launches and does not wait.
  Status run() const { return execute(bindings_->plan(), *bindings_, workspace()); }
  Result<Recording> record() const { return Recording::make(*bindings_, workspace()); }

 private:
  Workspace workspace() const { return {workspace_.data(), bindings_->plan().workspace_bytes()}; }
  Result<std::byte*> allocate(const Tensor& tensor, const Plan& plan, const BenchGraph& source);
  Status bind(const Graph& graph, const Plan& plan, const BenchGraph& source);
  Status autotune(const Graph& graph, Context& context, const BenchGraph& source);

  std::map<Uid, MirroredMemory> memory_;
  std::unique_ptr<const Bindings> bindings_;
  MirroredMemory workspace_;
};

/// Times the case: GB/s of k and v for one query a sequence, else GFLOP/s.
Result<Timing> time_attention(const AttentionCase& problem, const BenchSetup& setup, int64_t chunks = 1);

}  // namespace attngraph::cli
