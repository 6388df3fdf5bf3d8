#include "engine/cpu/gradient_tile.hpp"

#include <cmath>

namespace attngraph::cpu {

void GradientContext::book(const SliceShape& shape, Booker& book) {
  const int64_t rows = std::min(problem.q_len, kBackwardRows), keys = std::min(kBackwardKeys, problem.kv_len);
  const int64_t padded_keys = round_up(keys, kColumnPad), padded_rows = round_up(rows, 2);
  scratch.addresses = book.per_worker<const std::byte*>("row addresses", {std::max(rows, keys)});
  scratch.k_cols = book.per_worker<float>("packed k, keys as columns", {padded_keys, qk_cols()});
  scratch.v_cols = book.per_worker<float>("packed v, keys as columns", {padded_keys, v_cols()});
  scratch.k_rows = book.per_worker<float>("packed k, keys as rows", {padded_keys, qk_cols()});
  scratch.q = book.per_worker<float>("q rows", {rows, qk_cols()});
  scratch.dout = book.per_worker<float>("do rows", {rows, v_cols()});
  scratch.q_rows = book.per_worker<float>("packed q", {padded_rows, qk_cols()});
  scratch.dout_rows = book.per_worker<float>("packed do", {padded_rows, v_cols()});
  scratch.scores = book.per_worker<float>("p", {rows, kBackwardKeys});
  scratch.ds = book.per_worker<float>("ds", {rows, kBackwardKeys});
  scratch.narrow = book.per_worker<float>("rounded p or ds",
                                          {products.narrow != nullptr ? padded_rows : 0, kBackwardKeys});
  scratch.kept = book.per_worker<float>("dropout factors", {problem.dropout_p > 0 ? rows : 0, kBackwardKeys});
  scratch.softcap_slope =
      book.per_worker<float>("softcap derivative", {problem.softcap > 0 ? rows : 0, kBackwardKeys});
  scratch.bias = book.per_worker<float>("bias row", {problem.has(Role::kBias) ? kBackwardKeys : 0});
  scratch.mask = book.per_worker<std::byte>("mask row", {problem.has(Role::kMask) ? kBackwardKeys : 0});
  const int64_t group = problem.group();
  scratch.stats = book.shared<float>("row stats", {shape.batch, shape.kv_heads, group, problem.q_len});
  scratch.delta = book.shared<float>("row deltas", {shape.batch, shape.kv_heads, group, problem.q_len});
  scratch.row_a = book.per_worker<float>("do row", {v_cols()});
  scratch.row_b = book.per_worker<float>("o row", {v_cols()});
}

void compute_row_factors(const BackwardCall& call) {
  const GradientContext& context = call.context;
  const Problem& p = context.problem;
  const double to_base_e = p.stats_base == StatsBase::k2 ? kLn2 : 1.0;
  const int64_t tiles = ceil_div(p.q_len, kBackwardRows), padded = context.v_cols();
  const auto fill = [&](int64_t index, int64_t worker) {
    const int64_t lane = index / tiles, head = call.first_head() + lane % call.heads();
    const Sequence sequence(p, call.buffers, call.slice.batch_begin + lane / call.heads());
    float* stats = call.row_factors(context.scratch.stats, sequence.batch, head);
    float* delta = call.row_factors(context.scratch.delta, sequence.batch, head);
    float* dout = context.scratch.row_a.at<float>(call.workspace, worker);
    float* o = context.scratch.row_b.at<float>(call.workspace, worker);
    const int64_t first = index % tiles * kBackwardRows;
    for (int64_t i = first; i < std::min(first + kBackwardRows, sequence.q_len); ++i) {
      const std::byte* address = nullptr;
      stats[i] = static_cast<float>(sequence.float_at(Role::kStats, head, i) * to_base_e);
      context.kernels.widen(sequence.one(Role::kDo, head, i, address), dout, padded);
      context.kernels.widen(sequence.one(Role::kO, head, i, address), o, padded);
      delta[i] = context.kernels.dot(dout, o, padded);
    }
  };
  for_each_item(call.executor, call.workers, call.batches() * call.heads() * tiles, fill);
}

GradientTile::GradientTile(const BackwardCall& call, const Sequence& sequence, Wanted wanted, int64_t worker)
    : call_(call),
      context_(call.context),
      problem_(context_.problem),
      kernels_(context_.kernels),
      products_(context_.products),
      seq_(sequence),
      wanted_(wanted),
      worker_(worker),
      x_(scratch(context_.scratch.scores)),
      ds_(scratch(context_.scratch.ds)) {}

void GradientTile::load_keys(int64_t kv_head, int64_t first_key, int64_t count) {
  const GradientScratch& s = context_.scratch;
  const std::byte** addresses = s.addresses.at<const std::byte*>(call_.workspace, worker_);
  const int64_t cols = kernels_.panel_cols;
  loaded_ = {first_key, first_key + count};
  const Rows k = seq_.gather(Role::kK, kv_head, loaded_, addresses);
  products_.pack_cols(k, {scratch(s.k_cols), words(problem_.qk_dim) * cols});
  if (wanted_.dq) products_.pack_rows(k, {scratch(s.k_rows), words(count) * cols});
  if (!wanted_.ds) return;
  const Rows v = seq_.gather(Role::kV, kv_head, loaded_, addresses);
  products_.pack_cols(v, {scratch(s.v_cols), words(problem_.v_dim) * cols});
}

TileKeys GradientTile::keys_seen(int64_t first_row, int64_t count) const {
  TileKeys seen;
  for (int64_t i = first_row; i < first_row + count; ++i)
    seen.add(problem_.band.keys(i, seq_.q_len, seq_.kv_len));
  return seen;
}

int64_t GradientTile::tile_rows(int64_t first_row, int64_t end) const {
  const int64_t count = std::min(kBackwardRows, end - first_row);
  const TileKeys seen = keys_seen(first_row, count);
  const bool at_edge = seen.touches(loaded_.begin, loaded_.end) && !seen.covers(loaded_.begin, loaded_.end);
  return at_edge ? std::min(count, kBackwardRows / 2) : count;
}

bool GradientTile::load_queries(int64_t head, int64_t first_row, int64_t count) {
  const TileKeys seen = keys_seen(first_row, count);
  if (!seen.touches(loaded_.begin, loaded_.end)) return false;
  const int64_t before = std::max<int64_t>(0, seen.any.begin - loaded_.begin);
  keys_ = {loaded_.begin + before / kColumnPad * kColumnPad, std::min(loaded_.end, seen.any.end)};
  all_seen_ = seen.covers(keys_.begin, keys_.end);

  const GradientScratch& s = context_.scratch;
  const std::byte** addresses = s.addresses.at<const std::byte*>(call_.workspace, worker_);
  const int64_t panel = words(count) * kernels_.panel_cols;
  head_ = head;
  rows_ = {first_row, first_row + count};
  const Rows q = seq_.gather(Role::kQ, head, rows_, addresses);
  products_.load_rows(q, {scratch(s.q), context_.qk_cols()});
  if (wanted_.dk) products_.pack_rows(q, {scratch(s.q_rows), panel});
  const Rows dout = seq_.gather(Role::kDo, head, rows_, addresses);
  if (wanted_.ds) products_.load_rows(dout, {scratch(s.dout), context_.v_cols()});
  if (wanted_.dv) products_.pack_rows(dout, {scratch(s.dout_rows), panel});
  return true;
}

void GradientTile::compute() {
  multiply_keys();
  mask_scores();
  if (problem_.dropout_p > 0) draw_dropout();
  GradientRows g;
  g.x = x_;
  g.dp = ds_;
  g.row = row_stride;
  g.count = rows();
  g.padded = round_up(cols(), kColumnPad);
  g.scale = context_.scores.to_natural();
  g.stats = call_.row_factors(context_.scratch.stats, seq_.batch, head_) + rows_.begin;
  g.delta = call_.row_factors(context_.scratch.delta, seq_.batch, head_) + rows_.begin;
  if (problem_.dropout_p > 0) g.kept = scratch(context_.scratch.kept);
  kernels_.gradient(g);
}

/// The scores q k^T and dp = do v^T.
void GradientTile::multiply_keys() {
  const GradientScratch& s = context_.scratch;
  const int64_t skipped_panels = (keys_.begin - loaded_.begin) / kernels_.panel_cols;
  Gemm g;
  g.a_step = 1;
  g.c_row = row_stride;
  g.m = rows();
  g.n = cols();
  g.a = scratch(s.q);
  g.a_row = context_.qk_cols();
  g.k = words(problem_.qk_dim);
  g.b_panel = g.k * kernels_.panel_cols;
  g.b = scratch(s.k_cols) + skipped_panels * g.b_panel;
  g.c = x_;
  products_.gemm(g);
  if (!wanted_.ds) return;
  g.a = scratch(s.dout);
  g.a_row = context_.v_cols();
  g.k = words(problem_.v_dim);
  g.b_panel = g.k * kernels_.panel_cols;
  g.b = scratch(s.v_cols) + skipped_panels * g.b_panel;
  g.c = ds_;
  products_.gemm(g);
}

/// Makes -inf of what a row does not see.
void GradientTile::mask_scores() {
  const bool plain = context_.scores.plain();
  if (plain && all_seen_ && cols() % kColumnPad == 0) return;
  Scores::Row row;
  row.head = head_;
  row.first_key = keys_.begin;
  row.count = cols();
  row.padded = round_up(cols(), kColumnPad);
  row.bias_scratch = scratch(context_.scratch.bias);
  row.mask_scratch = context_.scratch.mask.at<std::byte>(call_.workspace, worker_);
  for (int64_t r = 0; r < rows(); ++r) {
    row.x = x_ + r * row_stride;
    row.i = rows_.begin + r;
    if (problem_.softcap > 0) row.softcap_slope = scratch(context_.scratch.softcap_slope) + r * row_stride;
    plain ? context_.scores.hide(seq_, row) : context_.scores.apply(seq_, row);
  }
}

void GradientTile::draw_dropout() {
  float* kept = scratch(context_.scratch.kept);
  if (problem_.dropout_p >= 1.0) {
    std::fill(kept, kept + rows() * row_stride, 0.0F);
    return;
  }
  draw(kernels_, problem_, dropout_of(problem_, seq_.buffers),
       {seq_.batch * problem_.q_heads + head_, rows_.begin, rows(), keys_.begin, kept, row_stride,
        round_up(cols(), kColumnPad)});
}

void GradientTile::through_softcap() {
  if (problem_.softcap == 0) return;
  const float* slope = scratch(context_.scratch.softcap_slope);
  for (int64_t r = 0; r < rows(); ++r)
    for (int64_t j = 0; j < cols(); ++j)
      if (float& ds = ds_[r * row_stride + j]; ds != 0.0F) ds *= slope[r * row_stride + j];
}

void GradientTile::add_dv(float* dv) const {
  add_transposed(x_, context_.scratch.dout_rows, problem_.v_dim, dv);
}
void GradientTile::add_dk(float* dk) const {
  add_transposed(ds_, context_.scratch.q_rows, problem_.qk_dim, dk);
}

/// out[keys, dim] += tile^T panels
void GradientTile::add_transposed(const float* tile, const PerWorker& panels, int64_t dim, float* out) const {
  Gemm g;
  g.a = tile;
  g.a_row = 1;
  g.a_step = row_stride;
  if (products_.narrow_transposed != nullptr) {
    float* narrow = scratch(context_.scratch.narrow);
    products_.narrow_transposed(tile, row_stride, rows(), cols(), narrow, row_stride);
    g.a = narrow;
  }
  g.k = words(rows());
  g.b = scratch(panels);
  g.b_panel = g.k * kernels_.panel_cols;
  g.c_row = round_up(dim, kColumnPad);
  g.c = out + (keys_.begin - loaded_.begin) * g.c_row;
  g.m = cols();
  g.n = dim;
  g.accumulate = true;
  products_.gemm(g);
}

void GradientTile::add_dq(float* dq) const {
  Gemm g;
  g.a = ds_;
  g.a_row = row_stride;
  g.a_step = 1;
  if (products_.narrow != nullptr) {
    float* narrow = scratch(context_.scratch.narrow);
    g.a_row = row_stride / products_.k_per_word;
    products_.narrow(ds_, row_stride, rows(), cols(), narrow, g.a_row);
    g.a = narrow;
  }
  g.k = words(cols());
  g.b_panel = words(loaded_.end - loaded_.begin) * kernels_.panel_cols;
  g.b = scratch(context_.scratch.k_rows) + words(keys_.begin - loaded_.begin) * kernels_.panel_cols;
  g.c_row = context_.qk_cols();
  g.c = dq;
  g.m = rows();
  g.n = problem_.qk_dim;
  g.accumulate = true;
  products_.gemm(g);
}

}  // namespace attngraph::cpu
