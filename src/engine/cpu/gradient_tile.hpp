#pragma once

#include "engine/cpu/passes.hpp"
#include "engine/cpu/scratch.hpp"
#include "engine/cpu/sequence.hpp"
#include "engine/cpu/tiles.hpp"

namespace attngraph::cpu {

/// Scratch arrays of one worker of a backward pass.
struct GradientScratch {
  PerWorker addresses, k_cols, v_cols, k_rows, q, dout, q_rows, dout_rows, scores, ds, narrow, kept;
  PerWorker softcap_slope, bias, mask, row_a, row_b;
  Shared stats, delta;  ///< by sequence, head and row of the slice: natural, and do . o
};

/// What the tiles of one backward plan share.
struct GradientContext {
  GradientContext(const Problem& p, CpuIsa isa)
      : problem(p),
        kernels(cpu::kernels(isa)),
        products(products_for(problem, kernels)),
        scores(problem, kernels) {}

  void book(const SliceShape& shape, Booker& book);
  int64_t qk_cols() const { return round_up(problem.qk_dim, kColumnPad); }
  int64_t v_cols() const { return round_up(problem.v_dim, kColumnPad); }

  const Problem problem;
  const Kernels& kernels;
  const Products& products;
  const Scores scores;
  GradientScratch scratch;
};

/// What one call of a backward plan works on.
struct BackwardCall {
  const GradientContext& context;
  const Buffers& buffers;
  const Slice& slice;
  const PlacedWorkspace& workspace;
  Executor& executor;
  int64_t workers;

  int64_t batches() const { return slice.batch_end - slice.batch_begin; }
  int64_t kv_heads() const { return slice.kv_head_end - slice.kv_head_begin; }
  int64_t first_head() const { return slice.kv_head_begin * context.problem.group(); }
  int64_t heads() const { return kv_heads() * context.problem.group(); }
  /// Statistics or deltas of the rows of one head.
  float* row_factors(const Shared& factors, int64_t batch, int64_t head) const {
    const int64_t index = (batch - slice.batch_begin) * heads() + head - first_head();
    return factors.at<float>(workspace) + index * context.problem.q_len;
  }
};

/// Fills the statistics and deltas of all rows of the slice, which the tiles and sums read.
void compute_row_factors(const BackwardCall& call);

/// One worker's tile of query rows and keys: recomputes p and ds, and multiplies them out.
///
/// Keys and queries are packed when they are loaded; what is not wanted is not packed.
class GradientTile {
 public:
  struct Wanted {
    bool ds = false, dq = false, dk = false, dv = false;
  };

  GradientTile(const BackwardCall& call, const Sequence& sequence, Wanted wanted, int64_t worker);

  void load_keys(int64_t kv_head, int64_t first_key, int64_t count);
  /// How many of the query rows first_row .. end-1 make the next tile: fewer at the edge of the band.
  int64_t tile_rows(int64_t first_row, int64_t end) const;
  /// Loads query rows; false, and nothing loaded, when they see none of the loaded keys.
  bool load_queries(int64_t head, int64_t first_row, int64_t count);

  /// Fills p() and ds() for the keys that the loaded rows see.
  void compute();
  /// Applies softcap's derivative to ds, after those gradients that come before it.
  void through_softcap();

  const Sequence& sequence() const { return seq_; }
  int64_t head() const { return head_; }

  // The tile as computed: rows at `row_stride` floats, columns key .. key+cols-1.
  const float* p() const { return x_; }
  const float* ds() const { return ds_; }
  int64_t key() const { return keys_.begin; }
  int64_t cols() const { return keys_.end - keys_.begin; }
  int64_t first_row() const { return rows_.begin; }
  int64_t rows() const { return rows_.end - rows_.begin; }
  static constexpr int64_t row_stride = kBackwardKeys;

  /// dv (rows at v_cols) and dk (rows at qk_cols) hold the loaded keys, dq the loaded rows.
  void add_dv(float* dv) const;
  void add_dk(float* dk) const;
  void add_dq(float* dq) const;

 private:
  TileKeys keys_seen(int64_t first_row, int64_t count) const;
  void multiply_keys();
  void mask_scores();
  void draw_dropout();
  void add_transposed(const float* tile, const PerWorker& panels, int64_t dim, float* out) const;
  float* scratch(const PerWorker& part) const { return part.at<float>(call_.workspace, worker_); }
  int64_t words(int64_t elems) const { return ceil_div(elems, products_.k_per_word); }

  const BackwardCall& call_;
  const GradientContext& context_;
  const Problem& problem_;
  const Kernels& kernels_;
  const Products& products_;
  const Sequence& seq_;
  const Wanted wanted_;
  const int64_t worker_;
  float *x_, *ds_;
  KeyRange loaded_, keys_, rows_;
  bool all_seen_ = false;  ///< every row sees each of keys_
  int64_t head_ = 0;
};

}  // namespace attngraph::cpu
