#include "engine/cpu/gradient_tile.hpp"

#include <cmath>

namespace attngraph::cpu {

void GradientContext::book(Booker& book) {
  const int64_t rows = std::min(problem.q_len, kQRows), keys = std::min(kBackwardKeys, problem.kv_len);
  const int64_t padded_keys = round_up(keys, kColumnPad), padded_rows = round_up(rows, 2);
  const int64_t tile = rows * kBackwardKeys;
  scratch.addresses = book.per_worker<const std::byte*>("row addresses", std::max(rows, keys));
  scratch.k_cols = book.per_worker<float>("packed k, keys as columns", padded_keys * qk_cols());
  scratch.v_cols = book.per_worker<float>("packed v, keys as columns", padded_keys * v_cols());
  scratch.k_rows = book.per_worker<float>("packed k, keys as rows", padded_keys * qk_cols());
  scratch.q = book.per_worker<float>("q rows", rows * qk_cols());
  scratch.dout = book.per_worker<float>("do rows", rows * v_cols());
  scratch.q_rows = book.per_worker<float>("packed q", padded_rows * qk_cols());
  scratch.dout_rows = book.per_worker<float>("packed do", padded_rows * v_cols());
  scratch.scores = book.per_worker<float>("p", tile);
  scratch.ds = book.per_worker<float>("ds", tile);
  scratch.narrow =
      book.per_worker<float>("rounded p or ds", products.narrow != nullptr ? padded_rows * kBackwardKeys : 0);
  scratch.kept = book.per_worker<float>("dropout factors", problem.dropout_p > 0 ? tile : 0);
  scratch.softcap_slope = book.per_worker<float>("softcap derivative", problem.softcap > 0 ? tile : 0);
  scratch.bias = book.per_worker<float>("bias row", kBackwardKeys);
  scratch.mask = book.per_worker<std::byte>("mask row", kBackwardKeys);
  scratch.stats = book.per_worker<float>("row stats", rows);
  scratch.delta = book.per_worker<float>("row deltas", rows);
  scratch.row_a = book.per_worker<float>("do row", v_cols());
  scratch.row_b = book.per_worker<float>("o row", v_cols());
}

GradientTile::GradientTile(const GradientContext& context, const Sequence& sequence, Wanted wanted,
                           const PlacedWorkspace& workspace, int64_t worker)
    : context_(context),
      problem_(context.problem),
      kernels_(context.kernels),
      products_(context.products),
      seq_(sequence),
      wanted_(wanted),
      workspace_(workspace),
      worker_(worker),
      x_(scratch(context.scratch.scores)),
      ds_(scratch(context.scratch.ds)),
      stats_(scratch(context.scratch.stats)),
      delta_(scratch(context.scratch.delta)) {}

void GradientTile::load_keys(int64_t kv_head, int64_t first_key, int64_t count) {
  const GradientScratch& s = context_.scratch;
  const std::byte** addresses = s.addresses.at<const std::byte*>(workspace_, worker_);
  const int64_t cols = kernels_.panel_cols;
  loaded_ = {first_key, first_key + count};
  const Rows k = seq_.gather(Role::kK, kv_head, loaded_, addresses);
  products_.pack_cols(k, {scratch(s.k_cols), words(problem_.qk_dim) * cols});
  if (wanted_.dq) products_.pack_rows(k, {scratch(s.k_rows), words(count) * cols});
  if (!wanted_.ds) return;
  const Rows v = seq_.gather(Role::kV, kv_head, loaded_, addresses);
  products_.pack_cols(v, {scratch(s.v_cols), words(problem_.v_dim) * cols});
}

bool GradientTile::load_queries(int64_t head, int64_t first_row, int64_t count) {
  TileKeys seen;
  for (int64_t i = first_row; i < first_row + count; ++i)
    seen.add(problem_.band.keys(i, seq_.q_len, seq_.kv_len));
  if (!seen.touches(loaded_.begin, loaded_.end)) return false;
  const int64_t before = std::max<int64_t>(0, seen.any.begin - loaded_.begin);
  keys_ = {loaded_.begin + before / kColumnPad * kColumnPad, std::min(loaded_.end, seen.any.end)};
  all_seen_ = seen.all.begin <= keys_.begin && seen.all.end >= keys_.end;

  const GradientScratch& s = context_.scratch;
  const std::byte** addresses = s.addresses.at<const std::byte*>(workspace_, worker_);
  const int64_t panel = words(count) * kernels_.panel_cols;
  head_ = head;
  rows_ = {first_row, first_row + count};
  const Rows q = seq_.gather(Role::kQ, head, rows_, addresses);
  products_.load_rows(q, {scratch(s.q), context_.qk_cols()});
  if (wanted_.dk) products_.pack_rows(q, {scratch(s.q_rows), panel});
  const Rows dout = seq_.gather(Role::kDo, head, rows_, addresses);
  if (wanted_.ds) products_.load_rows(dout, {scratch(s.dout), context_.v_cols()});
  if (wanted_.dv) products_.pack_rows(dout, {scratch(s.dout_rows), panel});
  load_row_factors();
  return true;
}

/// Statistics in base 2, and delta = do . o.
void GradientTile::load_row_factors() {
  const double to_base_2 = problem_.stats_base == StatsBase::k2 ? 1.0 : kLog2E;
  float *dout = scratch(context_.scratch.row_a), *o = scratch(context_.scratch.row_b);
  const std::byte* address = nullptr;
  for (int64_t r = 0; r < rows(); ++r) {
    const int64_t i = rows_.begin + r;
    stats_[r] = static_cast<float>(seq_.float_at(Role::kStats, head_, i) * to_base_2);
    if (!wanted_.ds) continue;
    kernels_.widen(seq_.one(Role::kDo, head_, i, address), dout, context_.v_cols());
    kernels_.widen(seq_.one(Role::kO, head_, i, address), o, context_.v_cols());
    delta_[r] = kernels_.dot(dout, o, context_.v_cols());
  }
}

void GradientTile::compute() {
  multiply_keys();
  const bool plain = context_.scores.plain() && all_seen_;
  if (!plain) score_rows();
  if (problem_.dropout_p > 0) draw_dropout();
  const int64_t padded = round_up(cols(), kColumnPad);
  for (int64_t r = 0; r < rows(); ++r) {
    GradRow row;
    row.x = x_ + r * row_stride;
    row.dp = ds_ + r * row_stride;
    row.padded = padded;
    row.scale = plain ? context_.scores.plain_scale() : 1.0F;
    row.stats = stats_[r];
    row.delta = wanted_.ds ? delta_[r] : 0.0F;
    if (problem_.dropout_p > 0) row.kept = scratch(context_.scratch.kept) + r * row_stride;
    if (std::isinf(stats_[r])) {  // the row sees nothing
      std::fill(row.x, row.x + padded, 0.0F);
      std::fill(row.dp, row.dp + padded, 0.0F);
      continue;
    }
    if (plain) std::fill(row.x + cols(), row.x + padded, -INFINITY);
    kernels_.gradient(row);
  }
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

void GradientTile::score_rows() {
  Scores::Row row;
  row.head = head_;
  row.first_key = keys_.begin;
  row.count = cols();
  row.padded = round_up(cols(), kColumnPad);
  row.bias_scratch = scratch(context_.scratch.bias);
  row.mask_scratch = context_.scratch.mask.at<std::byte>(workspace_, worker_);
  for (int64_t r = 0; r < rows(); ++r) {
    row.x = x_ + r * row_stride;
    row.i = rows_.begin + r;
    if (problem_.softcap > 0) row.softcap_slope = scratch(context_.scratch.softcap_slope) + r * row_stride;
    context_.scores.apply(seq_, row);
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
