#pragma once

#include "engine/cpu/passes.hpp"
#include "engine/cpu/scratch.hpp"
#include "engine/cpu/sequence.hpp"
#include "engine/cpu/tiles.hpp"

namespace attngraph::cpu {

/// Scratch arrays of one worker of a forward pass; a row's words count as floats.
struct ForwardScratch {
  PerWorker addresses, q, k, v, scores, narrow, out, kept, bias, mask, present, max, sum, correction;
};

/// Where the splits of a chunk leave what they have: rows of out, max and sum.
struct Partials {
  Shared region;
  int64_t row_floats = 0, rows = 0;  ///< of one split of one chunk

  float* row(const PlacedWorkspace& workspace, int64_t part, int64_t r) const {
    return region.at<float>(workspace) + (part * rows + r) * row_floats;
  }
};

/// What the items of one forward plan share.
struct ForwardContext {
  ForwardContext(const Problem& p, CpuIsa isa, int64_t workers)
      : problem(p),
        kernels(cpu::kernels(isa)),
        products(products_for(problem, kernels)),
        tiles(forward_tiles(problem, workers)),
        scores(problem, kernels) {}

  void book(const SliceShape& shape, Booker& book);
  int64_t qk_cols() const { return round_up(problem.qk_dim, kColumnPad); }
  int64_t v_cols() const { return round_up(problem.v_dim, kColumnPad); }

  const Problem problem;
  const Kernels& kernels;
  const Products& products;
  const ForwardTiles tiles;
  const Scores scores;
  ForwardScratch scratch;
  Partials partials;
};

/// One chunk of query rows against one split of its keys.
class ForwardItem {
 public:
  struct Place {
    int64_t chunk_index;  ///< counts within the slice
    int64_t batch, kv_head, num_kv_heads, lane, chunk;
  };

  ForwardItem(const ForwardContext& context, const Sequence& sequence, const Place& place,
              const PlacedWorkspace& workspace, int64_t worker);

  void attend(int64_t split);
  /// Divides by the sums and writes the rows of o and stats.
  void write_rows();
  /// Writes the rows at and beyond the length of the lane's heads, where the outputs are dense.
  void write_padding();
  void leave_partial(int64_t split);
  void merge_partials();

 private:
  struct Tile {
    int64_t first = 0, rows = 0;  ///< within the chunk
    int64_t kv_head = 0;
    TileKeys keys;
    bool started = false;
  };
  struct Block {
    KeyRange keys;
    const std::byte* present = nullptr;  ///< by key: 0 where a page is absent; null: all are there
  };
  /// The same keys of all heads of a bundle.
  struct BundleBlock {
    KeyRange keys;
    Rows k[kMaxBundle], v[kMaxBundle];
  };
  /// The keys of a block that a tile needs.
  struct Part {
    int64_t skip = 0, count = 0;  ///< skip: whole panels
  };

  int64_t head(int64_t r) const {
    const int64_t in_group = context_.tiles.stacked ? (first_row_ + r) / seq_.q_len : place_.lane;
    return place_.kv_head * problem_.group() + in_group;
  }
  int64_t position(int64_t r) const {
    return context_.tiles.stacked ? (first_row_ + r) % seq_.q_len : first_row_ + r;
  }
  /// Floats from row to row of a tile of scores, and the keys of a block.
  int64_t block_keys() const { return few_rows_ ? kFewRowsKeys : kForwardKeys; }
  int64_t padded(int64_t count) const { return round_up(count, few_rows_ ? kMaxLanes : kColumnPad); }
  float* scratch(const PerWorker& part) const { return part.at<float>(workspace_, worker_); }
  float* out_row(int64_t r) const { return out_ + r * context_.v_cols(); }

  void load_queries();
  TileKeys make_tiles();
  void attend_packed(KeyRange keys);
  void attend_in_place(KeyRange keys);
  Block pack(KeyRange keys) const;
  BundleBlock gather(KeyRange keys, bool odd) const;
  Upcoming upcoming(const Rows* heads, int64_t t, const std::byte** rows) const;
  const std::byte* present_keys(const Rows& k, const Rows& v) const;
  void attend_tile(Tile& tile, const Block& block);
  void raw_scores(const Tile& tile, Part part, float* x) const;
  void mask_scores(const Tile& tile, const Block& block, Part part, float* x) const;
  void softmax(const Tile& tile, Part part, float* x) const;
  void drop(const Tile& tile, int64_t first_key, int64_t padded, float* x) const;
  void add_values(Tile& tile, Part part, float* p) const;
  void finish_row(int64_t r, float* out, float max, float sum);

  const ForwardContext& context_;
  const Problem& problem_;
  const Kernels& kernels_;
  const Products& products_;
  const Sequence& seq_;
  const Place place_;
  const PlacedWorkspace& workspace_;
  const int64_t worker_;
  int64_t first_row_ = 0, num_rows_ = 0;
  bool few_rows_ = false;  ///< k and v are read where they lie; for more rows they are packed first
  float *q_, *out_, *max_, *sum_;
  static_assert(kMaxBundle <= kTilesPerChunk);
  Tile tiles_[kTilesPerChunk];  ///< of rows, or one for each head of a bundle
  int64_t num_tiles_ = 0;
};

}  // namespace attngraph::cpu
