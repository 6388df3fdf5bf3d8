#pragma once

#include "engine/cuda/kernels/dbias.cuh"
#include "engine/cuda/kernels/scores.cuh"
#include "engine/cuda/tiles.hpp"

/// The general family: float32 FMA over tiles in shared memory, any element type, stride and feature.
///
/// A block owns kTile rows of one head, eight threads a row; rows of the other side stream through
/// shared memory as float32. Every thread keeps kTile / 8 scores and max_dim / 8 accumulators.
/// Measured on an H200 on the float32 rows of attngraph bench, which have tiles since: 4.6 TFLOP/s at d64.
namespace attngraph::cuda {

template <int kTile>
struct General {
  static constexpr int kThreads = kTile * kGeneralLanes;
  static constexpr int kScores = kTile / kGeneralLanes;                 ///< a thread's columns
  static constexpr int kSums = general_max_dim(kTile) / kGeneralLanes;  ///< a thread's head dims

  int row = static_cast<int>(threadIdx.x) / kGeneralLanes;   ///< of the own tile
  int lane = static_cast<int>(threadIdx.x) % kGeneralLanes;  ///< columns lane, lane + 8, ...

  /// Copies `dim` elements of each row; element_of(row) < 0 makes it zero.
  template <class ElementOf>
  __device__ void load(float* tile, const TensorView& t, int dim, ElementOf element_of) const {
    const int64_t element = element_of(row);
    for (int c = lane; c < dim; c += kGeneralLanes)
      tile[row * general_pitch(dim) + c] = element < 0 ? 0.0f : load_element(t, element + c * t.stride[3]);
  }

  /// products[n] = own row . row lane + 8 n of the other tile.
  __device__ void dot(float (&products)[kScores], const float* own, const float* other, int dim) const {
    const int pitch = general_pitch(dim);
    for (float& product : products) product = 0.0f;
    for (int c = 0; c < dim; ++c) {
      const float value = own[row * pitch + c];
#pragma unroll
      for (int n = 0; n < kScores; ++n) products[n] += value * other[(lane + kGeneralLanes * n) * pitch + c];
    }
  }

  /// sums[m] += weights[row] . column lane + 8 m of the other tile.
  __device__ void accumulate(float (&sums)[kSums], const float* weights, const float* other, int dim) const {
    const int pitch = general_pitch(dim);
    for (int r = 0; r < kTile; ++r) {
      const float weight = weights[row * general_pitch(kTile) + r];
#pragma unroll
      for (int m = 0; m < kSums; ++m)
        if (lane + kGeneralLanes * m < dim) sums[m] += weight * other[r * pitch + lane + kGeneralLanes * m];
    }
  }

  /// Writes the own row's sums.
  __device__ void store(const TensorView& t, int64_t element, const float (&sums)[kSums], int dim,
                        float factor) const {
#pragma unroll
    for (int m = 0; m < kSums; ++m)
      if (const int c = lane + kGeneralLanes * m; c < dim)
        store_element(t, element + c * t.stride[3], factor == 0.0f ? 0.0f : sums[m] * factor);
  }
};

/// Tiles begin .. end-1 that hold some rows of the streamed side.
struct TileRange {
  int begin = 0, end = 0;

  __device__ TileRange(KeySpan rows, int tile)
      : begin(rows.begin / tile), end(rows.end > rows.begin ? (rows.end + tile - 1) / tile : begin) {}
};

/// o and stats of kTile query rows of one head.
template <int kTile>
__global__ void __launch_bounds__(General<kTile>::kThreads)
    general_forward(const __grid_constant__ Params p) {
  using G = General<kTile>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Sequence s;
  const G g;
  const Block block(p, p.kv_head_count * p.group, p.kv_head_begin * p.group);
  load_sequence(p, block.batch, s);

  float* const q_tile = reinterpret_cast<float*>(shared);
  float* const kv_tile = q_tile + kTile * general_pitch(p.qk_dim);
  float* const weights = kv_tile + kTile * general_pitch(p.qk_dim > p.v_dim ? p.qk_dim : p.v_dim);
  const int first = block.tile * kTile, position = first + g.row, kv_head = block.head / p.group;
  const QueryRow row = query_row(p, s, block.head, position);
  const auto q_row = [&](int r) {
    return first + r < s.q_len ? row_offset(p, s, Role::kQ, block.head, first + r) : int64_t{-1};
  };
  g.load(q_tile, p[Role::kQ], p.qk_dim, q_row);

  const TileRange tiles(span_seen(p, s, first, first + kTile - 1), kTile);
  float maximum = -kInf, sum = 0.0f, sums[G::kSums] = {};
  for (int tile = tiles.begin; tile < tiles.end; ++tile) {
    const int j0 = tile * kTile;
    __syncthreads();
    g.load(kv_tile, p[Role::kK], p.qk_dim, [&](int r) {
      return j0 + r < s.kv_len ? key_offset<Role::kK>(p, s, kv_head, j0 + r) : int64_t{-1};
    });
    __syncthreads();
    float x[G::kScores];
    g.dot(x, q_tile, kv_tile, p.qk_dim);
    float top = maximum;
#pragma unroll
    for (int n = 0; n < G::kScores; ++n) {
      const int j = j0 + g.lane + kGeneralLanes * n;
      const bool absent = j < row.end && j >= row.begin && is_absent(p, s, kv_head, j);
      x[n] = absent ? -kInf : logit(p, row, j, x[n]).x;
      top = fmaxf(top, x[n]);
    }
    top = lanes_max<kGeneralLanes>(top);
    const float reference = top == -kInf ? 0.0f : top, shrink = expf(maximum - reference);
    maximum = top, sum *= shrink;
#pragma unroll
    for (int m = 0; m < G::kSums; ++m) sums[m] *= shrink;
#pragma unroll
    for (int n = 0; n < G::kScores; ++n) {
      const int j = j0 + g.lane + kGeneralLanes * n;
      const float weight = x[n] == -kInf ? 0.0f : expf(x[n] - reference);
      sum += weight;
      weights[g.row * general_pitch(kTile) + g.lane + kGeneralLanes * n] =
          draws_keep(p, s, row, j) ? weight : 0.0f;
    }
    __syncthreads();
    g.load(kv_tile, p[Role::kV], p.v_dim, [&](int r) {
      return j0 + r < s.kv_len ? key_offset<Role::kV>(p, s, kv_head, j0 + r) : int64_t{-1};
    });
    __syncthreads();
    g.accumulate(sums, weights, kv_tile, p.v_dim);
  }

  sum = lanes_sum<kGeneralLanes>(sum);
  RowResult result;
  if (position < s.q_len) result = finish_row(p, block.head, maximum, sum);
  if (position < rows_written(p[Role::kO], s.q_len, p.q_len))
    g.store(p[Role::kO], row_offset(p, s, Role::kO, block.head, position), sums, p.v_dim,
            result.o_scale * p.dropout_scale);
  if (g.lane == 0) store_stats(p, s, block.head, position, result.lse);
}

/// Shared memory of the general backward: both operands of both sides and two weight tiles.
struct GeneralBackwardTiles {
  float *own_qk, *own_v, *other_qk, *other_v, *ds, *weights;

  __device__ GeneralBackwardTiles(const Params& p, int tile, unsigned char* shared) {
    own_qk = reinterpret_cast<float*>(shared);
    own_v = own_qk + tile * general_pitch(p.qk_dim);
    other_qk = own_v + tile * general_pitch(p.v_dim);
    other_v = other_qk + tile * general_pitch(p.qk_dim);
    ds = other_v + tile * general_pitch(p.v_dim);
    weights = ds + tile * general_pitch(tile);
  }
};

/// Loads q and do (or k and v) of kTile rows of one head.
template <int kTile>
__device__ void load_q_side(const General<kTile>& g, const Params& p, const Sequence& s, int head, int first,
                            float* q, float* dout) {
  const auto element = [&](Role role) {
    return [&, role](int r) {
      return first + r < s.q_len ? row_offset(p, s, role, head, first + r) : int64_t{-1};
    };
  };
  g.load(q, p[Role::kQ], p.qk_dim, element(Role::kQ));
  g.load(dout, p[Role::kDo], p.v_dim, element(Role::kDo));
}
template <int kTile>
__device__ void load_kv_side(const General<kTile>& g, const Params& p, const Sequence& s, int kv_head,
                             int first, float* k, float* v) {
  const auto element = [&](Role role) {
    return [&, role](int r) {
      return first + r < s.kv_len ? row_offset(p, s, role, kv_head, first + r) : int64_t{-1};
    };
  };
  g.load(k, p[Role::kK], p.qk_dim, element(Role::kK));
  g.load(v, p[Role::kV], p.v_dim, element(Role::kV));
}

/// dq, and the row sums behind dalibi_slopes, of kTile query rows of one head.
template <int kTile>
__global__ void __launch_bounds__(General<kTile>::kThreads) general_dq(const __grid_constant__ Params p) {
  using G = General<kTile>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Sequence s;
  const G g;
  const Block block(p, p.kv_head_count * p.group, p.kv_head_begin * p.group);
  load_sequence(p, block.batch, s);

  const GeneralBackwardTiles t(p, kTile, shared);
  const int first = block.tile * kTile, position = first + g.row, kv_head = block.head / p.group;
  const QueryRow row = query_row(p, s, block.head, position);
  const RowSums of_row = row_sums(p, s, block.head, position);
  load_q_side(g, p, s, block.head, first, t.own_qk, t.own_v);

  const TileRange tiles(span_seen(p, s, first, first + kTile - 1), kTile);
  float sums[G::kSums] = {}, slope_sum = 0.0f;
  for (int tile = tiles.begin; tile < tiles.end; ++tile) {
    __syncthreads();
    load_kv_side(g, p, s, kv_head, tile * kTile, t.other_qk, t.other_v);
    __syncthreads();
    float products[G::kScores], dp[G::kScores];
    g.dot(products, t.own_qk, t.other_qk, p.qk_dim);
    g.dot(dp, t.own_v, t.other_v, p.v_dim);
#pragma unroll
    for (int n = 0; n < G::kScores; ++n) {
      const int column = g.lane + kGeneralLanes * n, j = tile * kTile + column;
      const ElementGradient e = element_gradient(p, s, row, j, products[n], dp[n], of_row.lse, of_row.delta);
      t.ds[g.row * general_pitch(kTile) + column] = e.dx;
      if (e.ds != 0.0f) slope_sum += e.ds * static_cast<float>(j - row.diagonal);
    }
    __syncthreads();
    g.accumulate(sums, t.ds, t.other_qk, p.qk_dim);
  }

  if (const TensorView& dq = p[Role::kDq]; dq.present && position < rows_written(dq, s.q_len, p.q_len))
    g.store(dq, row_offset(p, s, Role::kDq, block.head, position), sums, p.qk_dim,
            position < s.q_len ? p.scale : 0.0f);
  slope_sum = lanes_sum<kGeneralLanes>(slope_sum);
  if (p.scratch.row_slopes != nullptr && g.lane == 0 && position < s.q_len) {
    const PackedRows rows{p, kv_head};
    p.scratch.row_slopes[rows.index(s, position * p.group + block.head % p.group)] = slope_sum;
  }
}

/// dk and dv of kTile keys of one kv head, summed over the group's query heads in order.
template <int kTile>
__global__ void __launch_bounds__(General<kTile>::kThreads) general_dkdv(const __grid_constant__ Params p) {
  using G = General<kTile>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Sequence s;
  __shared__ QueryRow rows[kTile];
  __shared__ RowSums of_rows[kTile];
  const G g;
  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);

  const GeneralBackwardTiles t(p, kTile, shared);
  const int first = block.tile * kTile, j = first + g.row, kv_head = block.head;
  load_kv_side(g, p, s, kv_head, first, t.own_qk, t.own_v);

  const TileRange tiles(span_seeing(p, s, first, first + kTile - 1), kTile);
  float dk[G::kSums] = {}, dv[G::kSums] = {};
  for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head) {
    for (int tile = tiles.begin; tile < tiles.end; ++tile) {
      __syncthreads();
      load_q_side(g, p, s, head, tile * kTile, t.other_qk, t.other_v);
      if (threadIdx.x < kTile) {
        const int r = static_cast<int>(threadIdx.x);
        rows[r] = query_row(p, s, head, tile * kTile + r);
        of_rows[r] = row_sums(p, s, head, tile * kTile + r);
      }
      __syncthreads();
      float products[G::kScores], dp[G::kScores];
      g.dot(products, t.own_qk, t.other_qk, p.qk_dim);
      g.dot(dp, t.own_v, t.other_v, p.v_dim);
#pragma unroll
      for (int n = 0; n < G::kScores; ++n) {
        const int column = g.lane + kGeneralLanes * n;
        const ElementGradient e = element_gradient(p, s, rows[column], j, products[n], dp[n],
                                                   of_rows[column].lse, of_rows[column].delta);
        t.ds[g.row * general_pitch(kTile) + column] = e.dx;
        t.weights[g.row * general_pitch(kTile) + column] = e.p;
      }
      __syncthreads();
      if (p[Role::kDk].present) g.accumulate(dk, t.ds, t.other_qk, p.qk_dim);
      if (p[Role::kDv].present) g.accumulate(dv, t.weights, t.other_v, p.v_dim);
    }
  }

  if (const TensorView& out = p[Role::kDk]; out.present && j < rows_written(out, s.kv_len, p.kv_len))
    g.store(out, row_offset(p, s, Role::kDk, kv_head, j), dk, p.qk_dim, j < s.kv_len ? p.scale : 0.0f);
  if (const TensorView& out = p[Role::kDv]; out.present && j < rows_written(out, s.kv_len, p.kv_len))
    g.store(out, row_offset(p, s, Role::kDv, kv_head, j), dv, p.v_dim, j < s.kv_len ? 1.0f : 0.0f);
}

/// A kTile x kTile tile of dbias: sums ds over the axes along which the bias is broadcast, sequences
/// and heads ascending, each (sequence, head) summed for itself before it joins the total.
///
/// The grid covers dbias's own tiles, heads and sequences.
template <int kTile>
__global__ void __launch_bounds__(General<kTile>::kThreads) general_dbias(const __grid_constant__ Params p) {
  using G = General<kTile>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Sequence s;
  const G g;
  const DbiasTile place(p, kTile, blockIdx.x);
  const bool all_i = p[Role::kDbias].extent[2] == 1, all_j = p[Role::kDbias].extent[3] == 1;

  const GeneralBackwardTiles t(p, kTile, shared);
  float total[G::kScores] = {};
  for (int batch = place.batch_begin; batch < place.batch_end; ++batch) {
    __syncthreads();
    load_sequence(p, batch, s);
    const int ti_begin = all_i ? 0 : place.tile_i,
              ti_end = all_i ? (s.q_len + kTile - 1) / kTile : place.tile_i + 1;
    for (int head = place.head_begin; head < place.head_end; ++head) {
      float sum[G::kScores] = {};
      for (int ti = ti_begin; ti < ti_end; ++ti) {
        const int position = ti * kTile + g.row;
        const QueryRow row = query_row(p, s, head, position);
        const RowSums of_row = row_sums(p, s, head, position);
        __syncthreads();
        load_q_side(g, p, s, head, ti * kTile, t.own_qk, t.own_v);
        const TileRange seen(span_seen(p, s, ti * kTile, (ti + 1) * kTile - 1), kTile);
        const int j_begin = all_j ? seen.begin : max(seen.begin, place.tile_j);
        const int j_end = all_j ? seen.end : min(seen.end, place.tile_j + 1);
        for (int tj = j_begin; tj < j_end; ++tj) {
          __syncthreads();
          load_kv_side(g, p, s, head / p.group, tj * kTile, t.other_qk, t.other_v);
          __syncthreads();
          float products[G::kScores], dp[G::kScores];
          g.dot(products, t.own_qk, t.other_qk, p.qk_dim);
          g.dot(dp, t.own_v, t.other_v, p.v_dim);
#pragma unroll
          for (int n = 0; n < G::kScores; ++n)
            sum[n] += element_gradient(p, s, row, tj * kTile + g.lane + kGeneralLanes * n, products[n], dp[n],
                                       of_row.lse, of_row.delta)
                          .ds;
        }
      }
      // Fold broadcast positions onto row 0 and broadcast keys onto column 0, in order.
      __syncthreads();
      const int pitch = general_pitch(kTile);
#pragma unroll
      for (int n = 0; n < G::kScores; ++n) t.ds[g.row * pitch + g.lane + kGeneralLanes * n] = sum[n];
      __syncthreads();
#pragma unroll
      for (int n = 0; n < G::kScores; ++n) {
        const int column = g.lane + kGeneralLanes * n;
        if ((all_i && g.row > 0) || (all_j && column > 0)) continue;
        float folded = 0.0f;
        for (int r = all_i ? 0 : g.row; r < (all_i ? kTile : g.row + 1); ++r)
          for (int c = all_j ? 0 : column; c < (all_j ? kTile : column + 1); ++c)
            folded += t.ds[r * pitch + c];
        total[n] += folded;
      }
    }
  }

  const DbiasPlane plane = place.plane(p);
  const int i = place.tile_i * kTile + g.row;
#pragma unroll
  for (int n = 0; n < G::kScores; ++n) {
    const int j = place.tile_j * kTile + g.lane + kGeneralLanes * n;
    if (i < p[Role::kDbias].extent[2] && j < p[Role::kDbias].extent[3])
      plane.with_type([&](auto type) { plane.put(plane.at<decltype(type)>(i, j), total[n]); });
  }
}

}  // namespace attngraph::cuda
