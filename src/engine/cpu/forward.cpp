#include <cmath>
#include <cstring>

#include "base/enum_names.hpp"
#include "engine/cpu/passes.hpp"

namespace attngraph::cpu {
namespace {

/// Scratch arrays of one worker; a row's words count as floats.
struct ForwardScratch {
  PerWorker addresses, q, k, v, scores, narrow, out, kept, bias, mask, present, max, sum;
};

/// Where the splits of a chunk leave what they have: rows of out, max and sum.
struct Partials {
  Shared region;
  int64_t row_floats = 0, rows = 0;  ///< of one split of one chunk

  float* row(const PlacedWorkspace& workspace, int64_t part, int64_t r) const {
    return region.at<float>(workspace) + (part * rows + r) * row_floats;
  }
};

class ForwardPlan final : public EnginePlan {
 public:
  ForwardPlan(const PlanInput& in)
      : problem(in.problem),
        isa(in.target.isa),
        workers(std::max(1, in.target.num_threads)),
        executor(in.executor),
        kernels(cpu::kernels(in.target.isa)),
        products(products_for(problem, kernels)),
        tiles(forward_tiles(problem, workers)),
        scores(problem, kernels) {}

  Status book(const PlanInput& in);
  Status run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
             void* stream) const override;
  std::string describe() const override {
    return text("isa ", name_of(isa), ", ", workers, " threads, chunks of ", tiles.chunk_rows, " rows, ",
                tiles.splits, " key splits");
  }

  int64_t out_cols() const { return round_up(problem.v_dim, kColumnPad); }

  const Problem problem;
  const CpuIsa isa;
  const int64_t workers;
  Executor& executor;
  const Kernels& kernels;
  const Products& products;
  const ForwardTiles tiles;
  const Scores scores;
  ForwardScratch scratch;
  Partials partials;
};

Status ForwardPlan::book(const PlanInput& in) {
  Booker book(in.workspace, workers);
  const int64_t rows = tiles.chunk_rows, tile_rows = std::min(rows, kQRows), keys = kForwardKeys;
  const int64_t q_words = round_up(problem.qk_dim, kColumnPad);
  scratch.addresses = book.per_worker<const std::byte*>("row addresses", 2 * keys);
  scratch.q = book.per_worker<float>("q rows", rows * q_words);
  scratch.k = book.per_worker<float>("packed k", keys * q_words);
  scratch.v = book.per_worker<float>("packed v", keys * out_cols());
  scratch.scores = book.per_worker<float>("scores", tile_rows * keys);
  scratch.narrow = book.per_worker<float>("rounded p", products.narrow != nullptr ? tile_rows * keys / 2 : 0);
  scratch.out = book.per_worker<float>("o sums", rows * out_cols());
  scratch.kept = book.per_worker<float>("dropout factors", problem.draws_dropout() ? tile_rows * keys : 0);
  scratch.bias = book.per_worker<float>("bias row", keys);
  scratch.mask = book.per_worker<std::byte>("mask row", keys);
  scratch.present = book.per_worker<std::byte>("present keys", keys);
  scratch.max = book.per_worker<float>("row maxima", rows);
  scratch.sum = book.per_worker<float>("row sums", rows);
  if (tiles.splits > 1) {
    partials.row_floats = out_cols() + kMaxLanes;
    partials.rows = rows;
    const int64_t chunks = in.shape.batch * in.shape.kv_heads * tiles.lanes * tiles.chunks;
    partials.region = book.shared<float>("partial o", chunks * tiles.splits * rows * partials.row_floats);
  }
  return book.status();
}

/// One chunk of query rows against one split of its keys.
class ForwardItem {
 public:
  struct Place {
    int64_t chunk_index, batch, kv_head, lane, chunk;  ///< chunk_index counts within the slice
  };

  ForwardItem(const ForwardPlan& plan, const Sequence& sequence, const Place& place,
              const PlacedWorkspace& workspace, int64_t worker)
      : plan_(plan),
        problem_(plan.problem),
        kernels_(plan.kernels),
        products_(plan.products),
        seq_(sequence),
        place_(place),
        workspace_(workspace),
        worker_(worker) {
    const int64_t rows = plan.tiles.stacked ? seq_.q_len * problem_.group() : seq_.q_len;
    first_row_ = std::min(rows, place.chunk * plan.tiles.chunk_rows);
    num_rows_ = std::min(rows, first_row_ + plan.tiles.chunk_rows) - first_row_;
    const ForwardScratch& s = plan.scratch;
    q_ = s.q.at<float>(workspace, worker);
    out_ = s.out.at<float>(workspace, worker);
    max_ = s.max.at<float>(workspace, worker);
    sum_ = s.sum.at<float>(workspace, worker);
  }

  void attend(int64_t split);
  void write_rows();
  void write_padding();
  void leave_partial(int64_t split);
  void merge_partials();

 private:
  struct Tile {
    int64_t first = 0, rows = 0;  ///< within the chunk
    TileKeys keys;
    bool started = false;
  };
  struct Block {
    int64_t first_key = 0, count = 0;
    Rows k, v;
    const std::byte* present = nullptr;
  };

  int64_t head(int64_t r) const {
    const int64_t in_group = plan_.tiles.stacked ? (first_row_ + r) / seq_.q_len : place_.lane;
    return place_.kv_head * problem_.group() + in_group;
  }
  int64_t position(int64_t r) const {
    return plan_.tiles.stacked ? (first_row_ + r) % seq_.q_len : first_row_ + r;
  }
  int64_t q_words() const { return round_up(problem_.qk_dim, kColumnPad); }
  bool few_rows() const {
    return num_rows_ <= kFewRows && row_contiguous(Role::kK) && row_contiguous(Role::kV);
  }
  bool row_contiguous(Role role) const { return dim(problem_[role]) == 1 || dim_stride(problem_[role]) == 1; }

  void load_queries();
  TileKeys make_tiles();
  Block load_block(int64_t first_key, int64_t count);
  const std::byte* present_keys(const Block& block) const;
  void attend_tile(Tile& tile, const Block& block);
  void raw_scores(const Tile& tile, const Block& block, int64_t skip, int64_t count, float* x);
  void softmax_rows(const Tile& tile, const Block& block, int64_t skip, int64_t count, float* x);
  void drop(const Tile& tile, int64_t first_key, int64_t padded, float* x);
  void add_values(Tile& tile, const Block& block, int64_t skip, int64_t count, float* p);
  void finish_row(int64_t r, float* out, float max, float sum);

  const ForwardPlan& plan_;
  const Problem& problem_;
  const Kernels& kernels_;
  const Products& products_;
  const Sequence& seq_;
  const Place place_;
  const PlacedWorkspace& workspace_;
  const int64_t worker_;
  int64_t first_row_ = 0, num_rows_ = 0;
  float *q_, *out_, *max_, *sum_;
  Tile tiles_[kTilesPerChunk];
  int64_t num_tiles_ = 0;
};

void ForwardItem::load_queries() {
  const Products& products = few_rows() ? kernels_.f32 : products_;
  for (int64_t r = 0; r < num_rows_; ++r) {
    const std::byte* address = nullptr;
    products.load_rows(seq_.one(Role::kQ, head(r), position(r), address), {q_ + r * q_words(), q_words()});
  }
}

TileKeys ForwardItem::make_tiles() {
  TileKeys chunk;
  for (int64_t first = 0; first < num_rows_; first += kQRows) {
    Tile& tile = tiles_[num_tiles_++];
    tile.first = first;
    tile.rows = std::min(kQRows, num_rows_ - first);
    for (int64_t r = first; r < first + tile.rows; ++r)
      tile.keys.add(problem_.band.keys(position(r), seq_.q_len, seq_.kv_len));
    chunk.add(tile.keys.any);
  }
  return chunk;
}

void ForwardItem::attend(int64_t split) {
  for (int64_t r = 0; r < num_rows_; ++r) max_[r] = -INFINITY, sum_[r] = 0.0F;
  load_queries();
  const KeyRange keys = make_tiles().any;
  if (keys.begin >= keys.end) return;
  const int64_t first_block = keys.begin / kForwardKeys;
  const int64_t blocks = ceil_div(keys.end, kForwardKeys) - first_block;
  for (int64_t b = blocks * split / plan_.tiles.splits; b < blocks * (split + 1) / plan_.tiles.splits; ++b) {
    const int64_t first_key = (first_block + b) * kForwardKeys;
    const Block block = load_block(first_key, std::min(kForwardKeys, keys.end - first_key));
    for (int64_t t = 0; t < num_tiles_; ++t)
      if (tiles_[t].keys.touches(first_key, first_key + block.count)) attend_tile(tiles_[t], block);
  }
}

ForwardItem::Block ForwardItem::load_block(int64_t first_key, int64_t count) {
  const ForwardScratch& s = plan_.scratch;
  const std::byte** addresses = s.addresses.at<const std::byte*>(workspace_, worker_);
  Block block;
  block.first_key = first_key;
  block.count = count;
  const KeyRange range{first_key, first_key + count};
  block.k = seq_.gather(Role::kK, place_.kv_head, range, addresses);
  block.v = seq_.gather(Role::kV, place_.kv_head, range, addresses + kForwardKeys);
  block.present = present_keys(block);
  if (few_rows()) return block;
  const int64_t cols = kernels_.panel_cols, k_words = ceil_div(problem_.qk_dim, products_.k_per_word);
  products_.pack_cols(block.k, {s.k.at<float>(workspace_, worker_), k_words * cols});
  products_.pack_rows(block.v,
                      {s.v.at<float>(workspace_, worker_), kForwardKeys / products_.k_per_word * cols});
  return block;
}

/// By key of a paged block: 0 where a page is absent; null when all are there.
const std::byte* ForwardItem::present_keys(const Block& block) const {
  if (!problem_.has(Role::kPageTableK) && !problem_.has(Role::kPageTableV)) return nullptr;
  std::byte* present = plan_.scratch.present.at<std::byte>(workspace_, worker_);
  bool all = true;
  for (int64_t j = 0; j < block.count; ++j) {
    const bool here = block.k.row[j] != nullptr && block.v.row[j] != nullptr;
    present[j] = static_cast<std::byte>(here);
    all &= here;
  }
  return all ? nullptr : present;
}

void ForwardItem::attend_tile(Tile& tile, const Block& block) {
  float* x = plan_.scratch.scores.at<float>(workspace_, worker_);
  const int64_t before = std::max<int64_t>(0, tile.keys.any.begin - block.first_key);
  const int64_t skip = before / kColumnPad * kColumnPad;  // whole panels that no row sees
  const int64_t count = std::min(block.count, tile.keys.any.end - block.first_key) - skip;
  raw_scores(tile, block, skip, count, x);
  softmax_rows(tile, block, skip, count, x);
  if (problem_.draws_dropout()) drop(tile, block.first_key + skip, round_up(count, kColumnPad), x);
  if (problem_.dropout_p < 1.0) add_values(tile, block, skip, count, x);
}

void ForwardItem::raw_scores(const Tile& tile, const Block& block, int64_t skip, int64_t count, float* x) {
  const float* q = q_ + tile.first * q_words();
  if (few_rows()) {
    Rows keys = block.k;
    keys.row += skip;
    keys.count = count;
    return kernels_.dots({q, q_words(), tile.rows, keys, x, kForwardKeys});
  }
  Gemm g;
  g.a = q;
  g.a_row = q_words();
  g.a_step = 1;
  g.k = ceil_div(problem_.qk_dim, products_.k_per_word);
  g.b_panel = g.k * kernels_.panel_cols;
  g.b = plan_.scratch.k.at<float>(workspace_, worker_) + skip / kernels_.panel_cols * g.b_panel;
  g.c = x;
  g.c_row = kForwardKeys;
  g.m = tile.rows;
  g.n = count;
  products_.gemm(g);
}

void ForwardItem::softmax_rows(const Tile& tile, const Block& block, int64_t skip, int64_t count, float* x) {
  const int64_t first_key = block.first_key + skip, padded = round_up(count, kColumnPad);
  const bool plain = plan_.scores.plain() && block.present == nullptr && tile.keys.all.begin <= first_key &&
                     tile.keys.all.end >= first_key + count;
  for (int64_t t = 0; t < tile.rows; ++t, x += kForwardKeys) {
    const int64_t r = tile.first + t;
    if (plain) {
      std::fill(x + count, x + padded, -INFINITY);
    } else {
      Scores::Row row;
      row.x = x;
      row.head = head(r);
      row.i = position(r);
      row.first_key = first_key;
      row.count = count;
      row.padded = padded;
      row.present = block.present != nullptr ? block.present + skip : nullptr;
      row.bias_scratch = plan_.scratch.bias.at<float>(workspace_, worker_);
      row.mask_scratch = plan_.scratch.mask.at<std::byte>(workspace_, worker_);
      plan_.scores.apply(seq_, row);
    }
    SoftmaxRow s{x, padded, plain ? plan_.scores.plain_scale() : 1.0F, max_[r], sum_[r]};
    kernels_.softmax(s);
    max_[r] = s.max;
    sum_[r] = s.sum;
    if (tile.started && s.correction != 1.0F)
      kernels_.scale(out_ + r * plan_.out_cols(), plan_.out_cols(), s.correction);
  }
}

void ForwardItem::drop(const Tile& tile, int64_t first_key, int64_t padded, float* x) {
  float* kept = plan_.scratch.kept.at<float>(workspace_, worker_);
  const Dropout dropout = dropout_of(problem_, seq_.buffers);
  for (int64_t t = 0; t < tile.rows;) {  // head by head
    const int64_t r = tile.first + t, count = std::min(tile.rows - t, seq_.q_len - position(r));
    draw(kernels_, problem_, dropout,
         {seq_.batch * problem_.q_heads + head(r), position(r), count, first_key, kept + t * kForwardKeys,
          kForwardKeys, padded});
    t += count;
  }
  for (int64_t t = 0; t < tile.rows; ++t)
    kernels_.multiply(x + t * kForwardKeys, kept + t * kForwardKeys, padded);
}

void ForwardItem::add_values(Tile& tile, const Block& block, int64_t skip, int64_t count, float* p) {
  float* out = out_ + tile.first * plan_.out_cols();
  if (few_rows()) {
    if (!tile.started) std::fill(out, out + tile.rows * plan_.out_cols(), 0.0F);
    tile.started = true;
    Rows values = block.v;
    values.row += skip;
    values.count = count;
    return kernels_.weighted_sum({p, kForwardKeys, tile.rows, values, out, plan_.out_cols()});
  }
  Gemm g;
  g.a = p;
  g.a_row = kForwardKeys;
  g.a_step = 1;
  if (products_.narrow != nullptr) {
    float* words = plan_.scratch.narrow.at<float>(workspace_, worker_);
    g.a_row = kForwardKeys / products_.k_per_word;
    products_.narrow(p, kForwardKeys, tile.rows, count, words, g.a_row);
    g.a = words;
  }
  g.k = ceil_div(count, products_.k_per_word);
  g.b_panel = kForwardKeys / products_.k_per_word * kernels_.panel_cols;
  g.b = plan_.scratch.v.at<float>(workspace_, worker_) + skip / products_.k_per_word * kernels_.panel_cols;
  g.c = out;
  g.c_row = plan_.out_cols();
  g.m = tile.rows;
  g.n = problem_.v_dim;
  g.accumulate = tile.started;
  products_.gemm(g);
  tile.started = true;
}

/// Divides by the sum, the sink's share included, and writes the row of o and of stats.
void ForwardItem::finish_row(int64_t r, float* out, float max, float sum) {
  float correction = 1.0F;
  if (problem_.has(Role::kSink)) {
    const float sink = static_cast<float>(seq_.float_at(Role::kSink, head(r), 0) * kLog2E);
    const float top = std::max(max, sink);
    if (top != -INFINITY) {
      correction = std::exp2(max - top);
      sum = sum * correction + std::exp2(sink - top);
      max = top;
    }
  }
  const bool sees_nothing = sum == 0.0F;
  if (sees_nothing || problem_.dropout_p >= 1.0 || correction == 0.0F)
    std::fill(out, out + plan_.out_cols(), 0.0F);
  seq_.write(kernels_, Role::kO, head(r), position(r), out, sees_nothing ? 0.0F : correction / sum);
  if (!problem_.has(Role::kStats)) return;
  const float stats = sees_nothing ? -INFINITY : max + std::log2(sum);  // base 2
  const float value = problem_.stats_base == StatsBase::k2 ? stats : static_cast<float>(stats * kLn2);
  std::memcpy(seq_.at(Role::kStats, head(r), position(r)), &value, sizeof value);
}

void ForwardItem::write_rows() {
  for (int64_t r = 0; r < num_rows_; ++r) finish_row(r, out_ + r * plan_.out_cols(), max_[r], sum_[r]);
}

/// Rows at and beyond the length of the lane's heads, where the outputs are dense.
void ForwardItem::write_padding() {
  const int64_t first = place_.kv_head * problem_.group() + (plan_.tiles.stacked ? 0 : place_.lane);
  const int64_t heads = plan_.tiles.stacked ? problem_.group() : 1;
  std::fill(out_, out_ + plan_.out_cols(), 0.0F);
  for (int64_t h = first; h < first + heads; ++h)
    for (int64_t i = seq_.q_len; i < problem_.q_len; ++i) {
      if (!problem_[Role::kO].ragged) seq_.write(kernels_, Role::kO, h, i, out_, 1.0F);
      const float nothing = -INFINITY;
      if (problem_.has(Role::kStats) && !problem_[Role::kStats].ragged)
        std::memcpy(seq_.at(Role::kStats, h, i), &nothing, sizeof nothing);
    }
}

void ForwardItem::leave_partial(int64_t split) {
  const int64_t part = place_.chunk_index * plan_.tiles.splits + split;
  for (int64_t r = 0; r < num_rows_; ++r) {
    float* row = plan_.partials.row(workspace_, part, r);
    row[0] = max_[r];
    row[1] = sum_[r];
    if (tiles_[r / kQRows].started)
      std::copy_n(out_ + r * plan_.out_cols(), plan_.out_cols(), row + kMaxLanes);
    else
      std::fill_n(row + kMaxLanes, plan_.out_cols(), 0.0F);
  }
}

void ForwardItem::merge_partials() {
  const int64_t first = place_.chunk_index * plan_.tiles.splits;
  for (int64_t r = 0; r < num_rows_; ++r) {
    float max = -INFINITY, sum = 0.0F;
    for (int64_t s = 0; s < plan_.tiles.splits; ++s)
      max = std::max(max, plan_.partials.row(workspace_, first + s, r)[0]);
    std::fill(out_, out_ + plan_.out_cols(), 0.0F);
    for (int64_t s = 0; s < plan_.tiles.splits; ++s) {
      const float* part = plan_.partials.row(workspace_, first + s, r);
      if (part[1] == 0.0F) continue;  // saw nothing
      const float weight = std::exp2(part[0] - max);
      sum += part[1] * weight;
      for (int64_t d = 0; d < plan_.out_cols(); ++d) out_[d] += weight * part[kMaxLanes + d];
    }
    finish_row(r, out_, max, sum);
  }
}

Status ForwardPlan::run(const Buffers& buffers, const Slice& slice, const PlacedWorkspace& workspace,
                        void*) const {
  ATTNGRAPH_RETURN_IF_ERROR(check_isa(isa));
  const int64_t kv_heads = slice.kv_head_end - slice.kv_head_begin;
  const int64_t num_chunks = (slice.batch_end - slice.batch_begin) * kv_heads * tiles.lanes * tiles.chunks;
  const auto place = [&](int64_t index) {
    ForwardItem::Place p{};
    p.chunk_index = index;
    p.chunk = tiles.chunks - 1 - index % tiles.chunks;  // under a causal band the last are the longest
    const int64_t lane = index / tiles.chunks;
    p.lane = lane % tiles.lanes;
    p.kv_head = slice.kv_head_begin + lane / tiles.lanes % kv_heads;
    p.batch = slice.batch_begin + lane / tiles.lanes / kv_heads;
    return p;
  };
  for_each_item(executor, workers, num_chunks * tiles.splits, [&](int64_t index, int64_t worker) {
    const int64_t split = index % tiles.splits;
    const ForwardItem::Place at = place(index / tiles.splits);
    const Sequence sequence(problem, buffers, at.batch);
    ForwardItem item(*this, sequence, at, workspace, worker);
    if (at.chunk == 0 && split == 0) item.write_padding();
    item.attend(split);
    tiles.splits == 1 ? item.write_rows() : item.leave_partial(split);
  });
  if (tiles.splits == 1) return {};
  for_each_item(executor, workers, num_chunks, [&](int64_t index, int64_t worker) {
    const ForwardItem::Place at = place(index);
    const Sequence sequence(problem, buffers, at.batch);
    ForwardItem(*this, sequence, at, workspace, worker).merge_partials();
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
