#include "engine/cpu/forward_item.hpp"

#include <cmath>
#include <cstring>
#include <span>

namespace attngraph::cpu {

void ForwardContext::book(const SliceShape& shape, Booker& book) {
  const int64_t rows = tiles.chunk_rows, tile_rows = std::min(rows, kForwardRows), keys = kForwardKeys;
  scratch.addresses = book.per_worker<const std::byte*>("row addresses", {2, keys});
  scratch.q = book.per_worker<float>("q rows", {rows, qk_cols()});
  scratch.k = book.per_worker<float>("packed k", {tiles.in_place ? 0 : keys, qk_cols()});
  scratch.v = book.per_worker<float>("packed v", {tiles.in_place ? 0 : keys, v_cols()});
  scratch.scores = book.per_worker<float>("scores", {tile_rows, keys});
  scratch.narrow =
      book.per_worker<float>("rounded p", {products.narrow != nullptr ? tile_rows : 0, keys / 2});
  scratch.out = book.per_worker<float>("o sums", {rows, v_cols()});
  scratch.kept = book.per_worker<float>("dropout factors", {problem.draws_dropout() ? tile_rows : 0, keys});
  const bool paged = problem.has(Role::kPageTableK) || problem.has(Role::kPageTableV);
  scratch.bias = book.per_worker<float>("bias row", {problem.has(Role::kBias) ? keys : 0});
  scratch.mask = book.per_worker<std::byte>(
      "mask row", {problem.has(Role::kMask) || (paged && !scores.plain()) ? keys : 0});
  scratch.present = book.per_worker<std::byte>("present keys", {paged ? keys : 0});
  scratch.max = book.per_worker<float>("row maxima", {rows + kMaxLanes});
  scratch.sum = book.per_worker<float>("row sums", {rows + kMaxLanes});
  scratch.correction = book.per_worker<float>("row corrections", {rows});
  if (tiles.splits > 1) {
    partials.row_floats = v_cols() + kMaxLanes;
    partials.rows = rows;
    partials.region =
        book.shared<float>("partial o", {shape.batch, tiles.bundles(shape.kv_heads), tiles.lanes,
                                         tiles.chunks, tiles.splits, rows, partials.row_floats});
  }
}

ForwardItem::ForwardItem(const ForwardContext& context, const Sequence& sequence, const Place& place,
                         const PlacedWorkspace& workspace, int64_t worker)
    : context_(context),
      problem_(context.problem),
      kernels_(context.kernels),
      products_(context.products),
      seq_(sequence),
      place_(place),
      workspace_(workspace),
      worker_(worker),
      q_(scratch(context.scratch.q)),
      out_(scratch(context.scratch.out)),
      max_(scratch(context.scratch.max)),
      sum_(scratch(context.scratch.sum)) {
  const ForwardTiles& tiles = context.tiles;
  const int64_t rows = tiles.stacked ? seq_.q_len * problem_.group() * place.num_kv_heads : seq_.q_len;
  first_row_ = std::min(rows, place.chunk * tiles.chunk_rows);
  num_rows_ = std::min(rows, first_row_ + tiles.chunk_rows) - first_row_;
  few_rows_ = tiles.bundle > 1 || (num_rows_ <= kFewRows && rows_lie_contiguous(problem_));
}

void ForwardItem::load_queries() {
  const Products& products = few_rows_ ? kernels_.f32 : products_;
  for (int64_t r = 0; r < num_rows_; ++r) {
    const std::byte* address = nullptr;
    products.load_rows(seq_.one(Role::kQ, head(r), position(r), address),
                       {q_ + r * context_.qk_cols(), context_.qk_cols()});
  }
}

TileKeys ForwardItem::make_tiles() {
  TileKeys chunk;
  const bool by_head = context_.tiles.bundle > 1;
  const int64_t rows = by_head ? seq_.q_len * problem_.group() : kForwardRows;
  for (int64_t first = 0; first < num_rows_; first += rows) {
    Tile& tile = tiles_[num_tiles_];
    tile.first = first;
    tile.rows = std::min(rows, num_rows_ - first);
    tile.kv_head = place_.kv_head + (by_head ? num_tiles_ : 0);
    ++num_tiles_;
    for (int64_t r = first; r < first + tile.rows; ++r)
      tile.keys.add(problem_.band.keys(position(r), seq_.q_len, seq_.kv_len));
    chunk.add(tile.keys.any);
  }
  return chunk;
}

void ForwardItem::attend(int64_t split) {
  std::fill(max_, max_ + num_rows_, -INFINITY);
  std::fill(sum_, sum_ + num_rows_, 0.0F);
  load_queries();
  const KeyRange keys = make_tiles().any;
  if (keys.begin >= keys.end) return;
  const int64_t first = keys.begin / block_keys(), blocks = ceil_div(keys.end, block_keys()) - first;
  const int64_t begin = first + blocks * split / context_.tiles.splits;
  const int64_t end = first + blocks * (split + 1) / context_.tiles.splits;
  const KeyRange mine{begin * block_keys(), std::min(keys.end, end * block_keys())};
  few_rows_ ? attend_in_place(mine) : attend_packed(mine);
}

void ForwardItem::attend_packed(KeyRange keys) {
  for (int64_t key = keys.begin; key < keys.end; key += kForwardKeys) {
    const Block block = pack({key, std::min(keys.end, key + kForwardKeys)});
    for (int64_t t = 0; t < num_tiles_; ++t)
      if (tiles_[t].keys.touches(block.keys.begin, block.keys.end)) attend_tile(tiles_[t], block);
  }
}

ForwardItem::Block ForwardItem::pack(KeyRange keys) const {
  const ForwardScratch& s = context_.scratch;
  const std::byte** addresses = s.addresses.at<const std::byte*>(workspace_, worker_);
  const Rows k = seq_.gather(Role::kK, place_.kv_head, keys, addresses);
  const Rows v = seq_.gather(Role::kV, place_.kv_head, keys, addresses + kForwardKeys);
  const int64_t cols = kernels_.panel_cols, k_words = ceil_div(problem_.qk_dim, products_.k_per_word);
  products_.pack_cols(k, {scratch(s.k), k_words * cols});
  products_.pack_rows(v, {scratch(s.v), kForwardKeys / products_.k_per_word * cols});
  return {keys, present_keys(k, v)};
}

const std::byte* ForwardItem::present_keys(const Rows& k, const Rows& v) const {
  if (!problem_.has(Role::kPageTableK) && !problem_.has(Role::kPageTableV)) return nullptr;
  std::byte* present = context_.scratch.present.at<std::byte>(workspace_, worker_);
  bool all = true;
  for (int64_t j = 0; j < k.count; ++j) {
    const bool here = k.row[j] != nullptr && v.row[j] != nullptr;
    present[j] = static_cast<std::byte>(here);
    all &= here;
  }
  return all ? nullptr : present;
}

void ForwardItem::attend_tile(Tile& tile, const Block& block) {
  float* x = scratch(context_.scratch.scores);
  const int64_t before = std::max<int64_t>(0, tile.keys.any.begin - block.keys.begin);
  Part part;
  part.skip = before / kColumnPad * kColumnPad;
  part.count = std::min(block.keys.end, tile.keys.any.end) - block.keys.begin - part.skip;
  raw_scores(tile, part, x);
  mask_scores(tile, block, part, x);
  softmax(tile, part, x);
  if (problem_.draws_dropout()) drop(tile, block.keys.begin + part.skip, padded(part.count), x);
  if (problem_.dropout_p < 1.0) add_values(tile, part, x);
}

void ForwardItem::raw_scores(const Tile& tile, Part part, float* x) const {
  Gemm g;
  g.a = q_ + tile.first * context_.qk_cols();
  g.a_row = context_.qk_cols();
  g.a_step = 1;
  g.k = ceil_div(problem_.qk_dim, products_.k_per_word);
  g.b_panel = g.k * kernels_.panel_cols;
  g.b = scratch(context_.scratch.k) + part.skip / kernels_.panel_cols * g.b_panel;
  g.c = x;
  g.c_row = kForwardKeys;
  g.m = tile.rows;
  g.n = part.count;
  products_.gemm(g);
}

/// Makes scores of products, -inf where a row does not see.
void ForwardItem::mask_scores(const Tile& tile, const Block& block, Part part, float* x) const {
  const bool plain = context_.scores.plain();
  Scores::Row row;
  row.first_key = block.keys.begin + part.skip;
  row.count = part.count;
  row.padded = padded(part.count);
  if (plain && block.present == nullptr && row.count == row.padded &&
      tile.keys.covers(row.first_key, row.first_key + row.count))
    return;
  row.present = block.present != nullptr ? block.present + part.skip : nullptr;
  row.bias_scratch = scratch(context_.scratch.bias);
  row.mask_scratch = context_.scratch.mask.at<std::byte>(workspace_, worker_);
  for (int64_t r = tile.first; r < tile.first + tile.rows; ++r, x += block_keys()) {
    row.x = x;
    row.head = head(r);
    row.i = position(r);
    plain ? context_.scores.hide(seq_, row) : context_.scores.apply(seq_, row);
  }
}

void ForwardItem::softmax(const Tile& tile, Part part, float* x) const {
  float* correction = scratch(context_.scratch.correction);
  kernels_.softmax({x, block_keys(), tile.rows, padded(part.count), context_.scores.to_base_2(),
                    max_ + tile.first, sum_ + tile.first, correction});
  for (int64_t t = 0; tile.started && t < tile.rows; ++t)
    if (correction[t] != 1.0F) kernels_.scale(out_row(tile.first + t), context_.v_cols(), correction[t]);
}

void ForwardItem::drop(const Tile& tile, int64_t first_key, int64_t padded, float* x) const {
  float* kept = scratch(context_.scratch.kept);
  const Dropout dropout = dropout_of(problem_, seq_.buffers);
  for (int64_t t = 0; t < tile.rows;) {  // head by head
    const int64_t r = tile.first + t, count = std::min(tile.rows - t, seq_.q_len - position(r));
    draw(kernels_, problem_, dropout,
         {seq_.batch * problem_.q_heads + head(r), position(r), count, first_key, kept + t * block_keys(),
          block_keys(), padded});
    t += count;
  }
  for (int64_t t = 0; t < tile.rows; ++t)
    kernels_.multiply(x + t * block_keys(), kept + t * block_keys(), padded);
}

void ForwardItem::add_values(Tile& tile, Part part, float* p) const {
  Gemm g;
  g.a = p;
  g.a_row = kForwardKeys;
  g.a_step = 1;
  if (products_.narrow != nullptr) {
    float* words = scratch(context_.scratch.narrow);
    g.a_row = kForwardKeys / products_.k_per_word;
    products_.narrow(p, kForwardKeys, tile.rows, part.count, words, g.a_row);
    g.a = words;
  }
  g.k = ceil_div(part.count, products_.k_per_word);
  g.b_panel = kForwardKeys / products_.k_per_word * kernels_.panel_cols;
  g.b = scratch(context_.scratch.v) + part.skip / products_.k_per_word * kernels_.panel_cols;
  g.c = out_row(tile.first);
  g.c_row = context_.v_cols();
  g.m = tile.rows;
  g.n = problem_.v_dim;
  g.accumulate = tile.started;
  products_.gemm(g);
  tile.started = true;
}

/// Divides by the sum, the sink's share included, and writes the row of o and of stats.
void ForwardItem::finish_row(int64_t r, float* out, float max, float sum) {
  const bool sees_nothing = sum == 0.0F;
  const float sink = problem_.has(Role::kSink) ? seq_.float_at(Role::kSink, head(r), 0) : -INFINITY;
  float correction = 1.0F, stats = sink;
  if (!sees_nothing) {
    max *= context_.scores.to_natural();
    if (sink != -INFINITY) {
      const float top = std::max(max, sink);
      correction = std::exp(max - top);
      sum = sum * correction + std::exp(sink - top);
      max = top;
    }
    stats = max + std::log(sum);
  }
  if (sees_nothing || problem_.dropout_p >= 1.0 || correction == 0.0F)
    std::fill(out, out + context_.v_cols(), 0.0F);
  seq_.write(kernels_, Role::kO, head(r), position(r), out, sees_nothing ? 0.0F : correction / sum);
  if (!problem_.has(Role::kStats)) return;
  const float value = problem_.stats_base == StatsBase::k2 ? static_cast<float>(stats * kLog2E) : stats;
  std::memcpy(seq_.at(Role::kStats, head(r), position(r)), &value, sizeof value);
}

void ForwardItem::write_rows() {
  for (int64_t r = 0; r < num_rows_; ++r) finish_row(r, out_row(r), max_[r], sum_[r]);
}

void ForwardItem::write_padding() {
  const int64_t first = place_.kv_head * problem_.group() + (context_.tiles.stacked ? 0 : place_.lane);
  const int64_t heads = context_.tiles.stacked ? problem_.group() * place_.num_kv_heads : 1;
  std::fill(out_, out_ + context_.v_cols(), 0.0F);
  for (int64_t h = first; h < first + heads; ++h)
    for (int64_t i = seq_.q_len; i < problem_.q_len; ++i) {
      if (!problem_[Role::kO].ragged) seq_.write(kernels_, Role::kO, h, i, out_, 1.0F);
      const float nothing = -INFINITY;
      if (problem_.has(Role::kStats) && !problem_[Role::kStats].ragged)
        std::memcpy(seq_.at(Role::kStats, h, i), &nothing, sizeof nothing);
    }
}

void ForwardItem::leave_partial(int64_t split) {
  const int64_t part = place_.chunk_index * context_.tiles.splits + split, cols = context_.v_cols();
  for (const Tile& tile : std::span(tiles_, static_cast<size_t>(num_tiles_)))
    for (int64_t r = tile.first; r < tile.first + tile.rows; ++r) {
      float* row = context_.partials.row(workspace_, part, r);
      row[0] = max_[r];
      row[1] = sum_[r];
      if (tile.started)
        std::copy_n(out_row(r), cols, row + kMaxLanes);
      else
        std::fill_n(row + kMaxLanes, cols, 0.0F);
    }
}

void ForwardItem::merge_partials() {
  const int64_t first = place_.chunk_index * context_.tiles.splits;
  for (int64_t r = 0; r < num_rows_; ++r) {
    float max = -INFINITY, sum = 0.0F;
    for (int64_t s = 0; s < context_.tiles.splits; ++s)
      max = std::max(max, context_.partials.row(workspace_, first + s, r)[0]);
    std::fill(out_, out_ + context_.v_cols(), 0.0F);
    for (int64_t s = 0; s < context_.tiles.splits; ++s) {
      const float* part = context_.partials.row(workspace_, first + s, r);
      if (part[1] == 0.0F) continue;  // saw nothing
      const float weight = std::exp2((part[0] - max) * context_.scores.to_base_2());
      sum += part[1] * weight;
      for (int64_t d = 0; d < context_.v_cols(); ++d) out_[d] += weight * part[kMaxLanes + d];
    }
    finish_row(r, out_, max, sum);
  }
}

}  // namespace attngraph::cpu
