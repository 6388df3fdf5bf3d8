#pragma once

#include "engine/cuda/kernels/scores.cuh"
#include "engine/cuda/row_tiles.hpp"

/// Kernels that touch each row or each sum once: before, between and after the attention kernels.
namespace attngraph::cuda {

/// Leaves a row's delta, and its log-sum-exp as the passes after it want it.
__device__ inline void store_row_numbers(const Params& p, const Sequence& s, const PackedRows& rows, int row,
                                         float delta) {
  const int position = rows.position(row);
  float lse = load_element(p[Role::kStats], row_offset(p, s, Role::kStats, rows.head(row), position));
  if (p.stats_base2) lse *= kLn2;
  const int64_t index = rows.index(s, row);
  const KeyRange keys = band_keys(p, s, position);  // lengths may say less than they did to the forward
  p.scratch.lse[index] = lse == -kInf || keys.end <= keys.begin ? kInf : lse;
  p.scratch.delta[index] = delta;
}

/// Sum of the products of two pairs of elements.
template <class T>
__device__ inline float dot_2(uint32_t x, uint32_t y) {
  const float2 a = unpack<T>(x), b = unpack<T>(y);
  return a.x * b.x + a.y * b.y;
}

/// The row that kWideLanes neighbouring threads share.
struct WideRow {
  int lane, row, head, position;

  __device__ WideRow(const Block& block, const PackedRows& rows)
      : lane(static_cast<int>(threadIdx.x) % kWideLanes),
        row(block.tile * (kRowThreads / kWideLanes) + static_cast<int>(threadIdx.x) / kWideLanes),
        head(rows.head(row)),
        position(rows.position(row)) {}
};

/// delta = sum over v_dim of do * o and lse of every row: a warp a row, kRowThreads / 32 rows a block.
__global__ void __launch_bounds__(kRowThreads) delta_rows(const __grid_constant__ Params p) {
  __shared__ Sequence s;
  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  const PackedRows rows{p, block.head};
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const TensorView &o = p[Role::kO], &dout = p[Role::kDo];
  for (int n = 0; n < kRowsPerWarp; ++n) {
    const int row = (block.tile * (kRowThreads / 32) + warp) * kRowsPerWarp + n;
    if (row >= s.q_len * p.group) return;
    const int head = rows.head(row), position = rows.position(row);
    const int64_t o_row = row_offset(p, s, Role::kO, head, position);
    const int64_t do_row = row_offset(p, s, Role::kDo, head, position);
    float sum = 0.0f;
    for (int c = lane; c < p.v_dim; c += 32)
      sum += load_element(o, o_row + c * o.stride[3]) * load_element(dout, do_row + c * dout.stride[3]);
    sum = lanes_sum<32>(sum);
    if (lane == 0) store_row_numbers(p, s, rows, row, sum);
  }
}

/// The same for rows of two-byte elements in whole chunks of 16 bytes: 8 lanes for four rows, whose loads
/// are under way together.
template <class T>
__global__ void __launch_bounds__(kRowThreads) wide_delta_rows(const __grid_constant__ Params p) {
  __shared__ Sequence s;
  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  const PackedRows rows{p, block.head};
  constexpr int kAtOnce = kRowThreads / kWideLanes, kEach = kDeltaRowsPerLane;
  const int lane = static_cast<int>(threadIdx.x) % kWideLanes;
  const int first = block.tile * kDeltaTileRows + static_cast<int>(threadIdx.x) / kWideLanes;
  const int num_rows = s.q_len * p.group;
  const uint4 *o[kEach], *dout[kEach];
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const int row = min(first + n * kAtOnce, num_rows - 1);  // where there is none, the last one again
    const auto chunks = [&](Role role) {
      return reinterpret_cast<const uint4*>(reinterpret_cast<const T*>(p[role].data) +
                                            row_offset(p, s, role, rows.head(row), rows.position(row)));
    };
    o[n] = chunks(Role::kO), dout[n] = chunks(Role::kDo);
  }
  float sums[kEach] = {};
  if (first < num_rows)
    for (int chunk = lane; 8 * chunk < p.v_dim; chunk += kWideLanes) {
      uint4 x[kEach], y[kEach];
#pragma unroll
      for (int n = 0; n < kEach; ++n) x[n] = o[n][chunk], y[n] = dout[n][chunk];
#pragma unroll
      for (int n = 0; n < kEach; ++n)
        sums[n] += dot_2<T>(x[n].x, y[n].x) + dot_2<T>(x[n].y, y[n].y) + dot_2<T>(x[n].z, y[n].z) +
                   dot_2<T>(x[n].w, y[n].w);
    }
  static_assert(kEach <= kWideLanes);
  float own = 0.0f;  // lane n stores row n
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const float sum = lanes_sum<kWideLanes>(sums[n]);
    if (lane == n) own = sum;
  }
  if (const int row = first + lane * kAtOnce; lane < kEach && row < num_rows)
    store_row_numbers(p, s, rows, row, own);
}

/// Sum over the block, the same order at each run; valid in thread 0.
__device__ inline float block_sum(float value) {
  __shared__ float by_warp[kRowThreads / 32];
  value = lanes_sum<32>(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < kRowThreads / 32; ++warp) total += by_warp[warp];
  return total;
}

/// Adds the rows of each (sequence, head) to dsink and dalibi_slopes; a block a query head.
__global__ void __launch_bounds__(kRowThreads) head_sums(const __grid_constant__ Params p) {
  __shared__ Sequence s;
  const int head = p.kv_head_begin * p.group + static_cast<int>(blockIdx.x);
  const PackedRows rows{p, head / p.group};
  const float sink =
      p.scratch.dsink != nullptr ? load_element(p[Role::kSink], head * p[Role::kSink].stride[1]) : 0.0f;
  for (int batch = p.batch_begin; batch < p.batch_begin + p.batch_count; ++batch) {
    __syncthreads();
    load_sequence(p, batch, s);
    float sink_sum = 0.0f, slope_sum = 0.0f;
    for (int position = static_cast<int>(threadIdx.x); position < s.q_len; position += kRowThreads) {
      const int64_t index = rows.index(s, position * p.group + head % p.group);
      const float lse = p.scratch.lse[index];
      if (p.scratch.dsink != nullptr && lse != kInf) sink_sum -= expf(sink - lse) * p.scratch.delta[index];
      if (p.scratch.row_slopes != nullptr) slope_sum += p.scratch.row_slopes[index];
    }
    sink_sum = block_sum(sink_sum), slope_sum = block_sum(slope_sum);
    if (threadIdx.x > 0) continue;
    if (p.scratch.dsink != nullptr) p.scratch.dsink[head] += sink_sum;
    if (p.scratch.dslopes != nullptr) {
      const bool by_batch = p[Role::kDalibiSlopes].extent[0] > 1;
      p.scratch.dslopes[(by_batch ? int64_t{batch} * p.q_heads : 0) + head] += slope_sum;
    }
  }
}

/// Converts finished sums to an output of any type and strides.
__device__ inline void store_sums(const TensorView& t, const float* sums) {
  if (!t.present || sums == nullptr) return;
  const int64_t count = int64_t{t.extent[0]} * t.extent[1] * t.extent[2] * t.extent[3];
  for (int64_t index = int64_t{blockIdx.x} * kRowThreads + threadIdx.x; index < count;
       index += int64_t{gridDim.x} * kRowThreads) {
    int64_t rest = index, element = 0;
    for (int axis = 3; axis >= 0; --axis) {
      element += rest % t.extent[axis] * t.stride[axis];
      rest /= t.extent[axis];
    }
    store_element(t, element, sums[index]);
  }
}
__global__ void __launch_bounds__(kRowThreads) store_all_sums(const __grid_constant__ Params p) {
  store_sums(p[Role::kDbias], p.scratch.dbias);
  store_sums(p[Role::kDsink], p.scratch.dsink);
  store_sums(p[Role::kDalibiSlopes], p.scratch.dslopes);
}

/// Joins the splits of each row: o and stats from partial_o and partial_rows; a warp a row, the lanes first
/// by split, then by four columns.
__global__ void __launch_bounds__(kRowThreads) merge_splits(const __grid_constant__ Params p) {
  __shared__ Sequence s;
  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  const PackedRows rows{p, block.head};
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = block.tile * (kRowThreads / 32) + warp;
  if (row >= p.q_len * p.group) return;
  const int head = rows.head(row), position = rows.position(row);
  const TensorView& o = p[Role::kO];
  const int num_splits = position < s.q_len ? p.merged_splits : 0;
  const int64_t index = position < s.q_len ? rows.index(s, row) : 0, pitch = packed_rows(p);
  constexpr int kPerLane = kMaxSplits / 32;
  PartRow parts[kPerLane];
  float weights[kPerLane], maximum = -kInf, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int split = 32 * i + lane;
    parts[i] = split < num_splits ? p.scratch.partial_rows[split * pitch + index] : PartRow{-kInf, 0.0f};
    maximum = fmaxf(maximum, parts[i].maximum);
  }
  maximum = lanes_max<32>(maximum);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    weights[i] = parts[i].sum == 0.0f ? 0.0f : parts[i].sum * expf(parts[i].maximum - maximum);
    sum += weights[i];
  }
  RowResult result;
  if (num_splits > 0) result = finish_row(p, head, maximum, lanes_sum<32>(sum));
  if (lane == 0) store_stats(p, s, head, position, result.lse);
  if (position >= rows_written(o, s.q_len, p.q_len)) return;
  const int64_t element = row_offset(p, s, Role::kO, head, position);
  for (int first = 0; first < p.v_dim; first += 4 * 32) {
    const int column = first + 4 * lane;
    float4 value{};
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
#pragma unroll 8
      for (int from = 0; from < min(num_splits - 32 * i, 32); ++from) {
        const float weight = __shfl_sync(0xffffffffu, weights[i], from);
        if (weight == 0.0f || column >= p.v_dim) continue;
        const float4 part = *reinterpret_cast<const float4*>(
            p.scratch.partial_o + ((32 * i + from) * pitch + index) * p.v_dim + column);
        value.x += weight * part.x, value.y += weight * part.y;
        value.z += weight * part.z, value.w += weight * part.w;
      }
    if (column >= p.v_dim) continue;
    const float factor = result.o_scale;
    const float columns[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
    for (int c = 0; c < 4; ++c)
      store_element(o, element + (column + c) * o.stride[3], factor == 0.0f ? 0.0f : columns[c] * factor);
  }
}

/// Rounds the sums of dq that the one-pass backward left: 8 lanes a row, 16 columns a lane.
template <class T>
__global__ void __launch_bounds__(kRowThreads) store_dq(const __grid_constant__ Params p) {
  __shared__ Sequence s;
  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  const PackedRows rows{p, block.head};
  const auto [lane, row, head, position] = WideRow(block, rows);
  const TensorView& dq = p[Role::kDq];
  if (row >= p.q_len * p.group || position >= rows_written(dq, s.q_len, p.q_len)) return;
  // Sums that were added to in order were written, not cleared, first: where a row sees no key, maybe never.
  const bool has_sums = position < s.q_len && p.scratch.lse[rows.index(s, row)] != kInf;
  T* const to = reinterpret_cast<T*>(dq.data) + row_offset(p, s, Role::kDq, head, position);
  for (int first = 16 * lane; first < p.qk_dim; first += 16 * kWideLanes) {
    uint32_t pairs[2][4] = {};
    if (has_sums) {
      const float* const sums = dq_sums(p, s, head, position, first / kDqColumns);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 x =
            *reinterpret_cast<const float4*>(sums + dq_position(position, first % kDqColumns / 16, i));
        pairs[0][i] = pack<T>(x.x * p.scale, x.y * p.scale),
        pairs[1][i] = pack<T>(x.z * p.scale, x.w * p.scale);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (first + 8 * half < p.qk_dim)
        *reinterpret_cast<uint4*>(to + first + 8 * half) =
            uint4{pairs[half][0], pairs[half][1], pairs[half][2], pairs[half][3]};
  }
}

/// The same for float32 rows of any stride.
__global__ void __launch_bounds__(kRowThreads) store_float_dq(const __grid_constant__ Params p) {
  __shared__ Sequence s;
  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  const PackedRows rows{p, block.head};
  const auto [lane, row, head, position] = WideRow(block, rows);
  const TensorView& dq = p[Role::kDq];
  if (row >= p.q_len * p.group || position >= rows_written(dq, s.q_len, p.q_len)) return;
  const int64_t element = row_offset(p, s, Role::kDq, head, position);
  for (int c = lane; c < p.qk_dim; c += kWideLanes) {
    const float sum =
        position < s.q_len ? dq_sums(p, s, head, position, c / kDqColumns)[c % kDqColumns] : 0.0f;
    store_element(dq, element + c * dq.stride[3], sum * p.scale);
  }
}

/// Weight of one side of a merge before normalisation; a side without a key weighs nothing.
struct MergeSide {
  float stats = -kInf, weight = 0.0f;

  __device__ MergeSide(const Params& p, const Sequence& s, Role role, int head, int position) {
    const float stored = load_element(p[role], row_offset(p, s, role, head, position));
    if (stored != kInf) stats = p.stats_base2 ? stored * kLn2 : stored;
  }
  __device__ void weigh(float top) { weight = stats == -kInf ? 0.0f : expf(stats - top); }
};

/// o and stats of two disjoint sets of keys as those of their union (contract section 9); a warp a row.
__global__ void __launch_bounds__(kRowThreads) merge_partials(const __grid_constant__ Params p) {
  __shared__ Sequence s;
  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, s);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int head = block.head, position = block.tile * (kRowThreads / 32) + warp;
  const TensorView &o = p[Role::kO], &o_a = p[Role::kOA], &o_b = p[Role::kOB];
  if (position >= p.q_len) return;
  float stats = -kInf, share_a = 0.0f, share_b = 0.0f;
  if (position < s.q_len) {
    MergeSide a(p, s, Role::kStatsA, head, position), b(p, s, Role::kStatsB, head, position);
    const float top = fmaxf(a.stats, b.stats);
    a.weigh(top), b.weigh(top);
    if (const float total = a.weight + b.weight; total != 0.0f)
      stats = top + logf(total), share_a = a.weight / total, share_b = b.weight / total;
  }
  if (position < rows_written(o, s.q_len, p.q_len)) {
    const int64_t element = row_offset(p, s, Role::kO, head, position),
                  element_a = row_offset(p, s, Role::kOA, head, position),
                  element_b = row_offset(p, s, Role::kOB, head, position);
    for (int c = lane; c < p.v_dim; c += 32) {
      float value = 0.0f;
      if (share_a != 0.0f) value += share_a * load_element(o_a, element_a + c * o_a.stride[3]);
      if (share_b != 0.0f) value += share_b * load_element(o_b, element_b + c * o_b.stride[3]);
      store_element(o, element + c * o.stride[3], value);
    }
  }
  if (lane == 0) store_stats(p, s, head, position, stats);
}

}  // namespace attngraph::cuda
