#pragma once

#include <cstdint>

#include "engine/cuda/kernels/sequence.cuh"

namespace attngraph::cuda {

/// What one query row needs to turn products into scores. A row at or beyond the length sees no key.
struct QueryRow {
  int position, head;
  int begin, end;  ///< keys of the band
  int diagonal;    ///< ALiBi's distance is key - diagonal
  float slope;
  int64_t bias, mask;  ///< element of key 0
};

__device__ inline KeyRange band_keys(const Params& p, const Sequence& s, int position) {
  if (position >= s.q_len) return {0, 0};
  return p.band.keys(position, s.q_len, s.kv_len);
}

__device__ inline QueryRow query_row(const Params& p, const Sequence& s, int head, int position) {
  QueryRow row;
  row.position = position;
  row.head = head;
  const KeyRange keys = band_keys(p, s, position);
  row.slope = 0.0f;
  row.begin = static_cast<int>(keys.begin), row.end = static_cast<int>(keys.end);
  row.diagonal = position + static_cast<int>(p.band.offset(s.q_len, s.kv_len));
  if (const TensorView& t = p[Role::kAlibiSlopes]; t.present && row.end > row.begin)
    row.slope = load_element(t, s.start[static_cast<size_t>(Role::kAlibiSlopes)] + head * t.stride[1]);
  row.bias = row_offset(p, s, Role::kBias, head, position);
  row.mask = row_offset(p, s, Role::kMask, head, position);
  return row;
}

/// Keys begin .. end-1 that some of the query rows `first .. last` sees; the band moves one way.
struct KeySpan {
  int begin, end;
};
__device__ inline KeySpan span_seen(const Params& p, const Sequence& s, int first, int last) {
  if (first >= s.q_len) return {0, 0};
  return {static_cast<int>(band_keys(p, s, first).begin),
          static_cast<int>(band_keys(p, s, last < s.q_len ? last : s.q_len - 1).end)};
}
/// Query rows that see some of the keys `first .. last`.
__device__ inline KeySpan span_seeing(const Params& p, const Sequence& s, int first, int last) {
  if (first >= s.kv_len) return {0, 0};
  const Band band = p.band.transposed();
  return {static_cast<int>(band.keys(first, s.kv_len, s.q_len).begin),
          static_cast<int>(band.keys(last < s.kv_len ? last : s.kv_len - 1, s.kv_len, s.q_len).end)};
}

struct Logit {
  float x = -kInf;             ///< -inf: the key is not kept
  float softcap_slope = 0.0f;  ///< d x / d (scale * product)
};

/// Steps 1 to 5 of contract section 3. Storage of a slot that is not kept is not read.
__device__ inline Logit logit(const Params& p, const QueryRow& row, int j, float product) {
  if (j < row.begin || j >= row.end) return {};
  if (const TensorView& t = p[Role::kMask]; t.present && t.data[row.mask + j * t.stride[3]] == std::byte{0})
    return {};
  Logit result{product * p.scale, 1.0f};
  if (p.softcap > 0.0f) {
    const float bent = tanhf(result.x / p.softcap);
    result = {p.softcap * bent, 1.0f - bent * bent};
  }
  if (const TensorView& t = p[Role::kBias]; t.present)
    result.x += load_element(t, row.bias + j * t.stride[3]);
  if (p[Role::kAlibiSlopes].present) result.x += row.slope * static_cast<float>(j - row.diagonal);
  return result;
}

/// Whether dropout keeps element (row, j).
__device__ inline bool draws_keep(const Params& p, const Sequence& s, const QueryRow& row, int j) {
  if (!p.dropout) return true;
  const Dropout dropout{s.seed, s.offset, p.dropout_threshold};
  return dropout.keeps(int64_t{s.batch} * p.q_heads + row.head, row.position, j);
}

/// One element of backward.
struct ElementGradient {
  float p = 0.0f;   ///< probability after dropout: what dv sums
  float ds = 0.0f;  ///< with respect to the score: what dbias and dalibi_slopes sum
  float dx = 0.0f;  ///< with respect to scale * product
};

/// Contract section 6; zero where the key is not kept or the row is empty (lse = +inf).
__device__ inline ElementGradient element_gradient(const Params& p, const Sequence& s, const QueryRow& row,
                                                   int j, float product, float dp, float lse, float delta) {
  const Logit score = logit(p, row, j, product);
  if (score.x == -kInf || lse == kInf) return {};
  const float probability = expf(score.x - lse);
  const bool keep = draws_keep(p, s, row, j);
  ElementGradient g;
  g.p = keep ? probability * p.dropout_scale : 0.0f;
  g.ds = probability * ((keep ? dp * p.dropout_scale : 0.0f) - delta);
  g.dx = g.ds * score.softcap_slope;
  return g;
}

/// Reduction over lanes that differ in the low bits: 4 lanes of a fragment row, 8 of a general row.
template <int kLanes>
__device__ inline float lanes_max(float value) {
  for (int step = 1; step < kLanes; step *= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}
template <int kLanes>
__device__ inline float lanes_sum(float value) {
  for (int step = 1; step < kLanes; step *= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

/// A finished row: what its accumulators are multiplied by, and its stats in natural units.
struct RowResult {
  float o_scale = 0.0f, lse = -kInf;
};

/// From the running maximum and sum of exp(x - maximum), natural units; step 6's sink joins here.
__device__ inline RowResult finish_row(const Params& p, int head, float maximum, float sum) {
  const TensorView& t = p[Role::kSink];
  const float sink = t.present ? load_element(t, head * t.stride[1]) : -kInf;
  if (sum == 0.0f) return {0.0f, sink};  // no key
  const float top = fmaxf(maximum, sink), shrink = expf(maximum - top);
  const float total = sum * shrink + (sink == -kInf ? 0.0f : expf(sink - top));
  return {shrink / total, top + logf(total)};
}

__device__ inline void store_stats(const Params& p, const Sequence& s, int head, int position, float lse) {
  const TensorView& t = p[Role::kStats];
  if (!t.present || position >= rows_written(t, s.q_len, p.q_len)) return;
  store_element(t, row_offset(p, s, Role::kStats, head, position), p.stats_base2 ? lse * kLog2e : lse);
}

}  // namespace attngraph::cuda
