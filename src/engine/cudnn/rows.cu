#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "device/error.hpp"
#include "engine/cudnn/rows.hpp"

namespace attngraph::cudnn {
namespace {

constexpr int kThreads = 256, kWarp = 32;
constexpr int kRowsPerBlock = kThreads;        ///< a warp looks at 32 rows at once
constexpr int kMatrixRows = kThreads / kWarp;  ///< of a block, a warp a row
constexpr float kInf = __builtin_huge_valf();

__device__ int64_t load_int(const std::byte* data, DataType dtype, int64_t index) {
  if (dtype == DataType::kI32) return reinterpret_cast<const int32_t*>(data)[index];
  return reinterpret_cast<const int64_t*>(data)[index];
}

__device__ int64_t bound_len(const BoundLengths& lengths, int64_t b) {
  if (lengths.data == nullptr) return lengths.declared;
  const int64_t first = load_int(lengths.data, lengths.dtype, b * lengths.stride);
  if (!lengths.cumulative) return clamped_len(first, lengths.declared);
  return clamped_difference(first, load_int(lengths.data, lengths.dtype, (b + 1) * lengths.stride),
                            lengths.declared);
}

/// Inclusive prefix sum over the block.
__device__ int64_t block_scan(int64_t value, int64_t* shared) {
  const int i = static_cast<int>(threadIdx.x);
  shared[i] = value;
  for (int reach = 1; reach < kThreads; reach *= 2) {
    __syncthreads();
    const int64_t below = i >= reach ? shared[i - reach] : 0;
    __syncthreads();
    shared[i] += below;
  }
  __syncthreads();
  return shared[i];
}

/// One block: a thread a sequence, tile after tile.
__global__ void __launch_bounds__(kThreads) prepare_kernel(const __grid_constant__ PrepareParams p) {
  __shared__ int64_t shared[kThreads];
  int64_t packed = 0;  // token slots of earlier tiles
  for (int64_t tile = 0; tile < p.batch; tile += kThreads) {
    const int64_t i = tile + threadIdx.x, b = p.batch_begin + i;
    int64_t q_len = 0;
    if (i < p.batch) {
      q_len = bound_len(p.q, b);
      int64_t kv_len = bound_len(p.kv, b);
      for (int n = 0; n < p.num_offsets; ++n) {
        const BoundOffsets& t = p.offsets[n];
        if (t.data == nullptr) continue;
        int64_t& len = t.side == Side::kQ ? q_len : kv_len;
        len = min(len, rows_inside(t.rows, t.slots, load_int(t.data, t.dtype, b * t.stride)));
      }
      p.q_len[i] = static_cast<int32_t>(q_len), p.kv_len[i] = static_cast<int32_t>(kv_len);
      for (int n = 0; n < p.num_offsets; ++n) {
        const BoundOffsets& t = p.offsets[n];
        const bool is_dense = t.data == nullptr;
        const int64_t len = t.side == Side::kQ ? q_len : kv_len;
        int64_t first = i * t.batch_stride;
        if (!is_dense) first = len > 0 ? load_int(t.data, t.dtype, b * t.stride) * t.rows.multiplier : 0;
        t.elements[i] = first;
        if (i == p.batch - 1)
          t.elements[p.batch] = is_dense ? p.batch * t.batch_stride : t.slots * t.rows.len_stride;
      }
    }
    if (p.packed_offsets == nullptr) continue;
    const int64_t end = packed + block_scan(q_len, shared);
    // Only sequences that overlap sum up to more than the capacity; they keep inside it.
    if (i < p.batch)
      p.packed_offsets[i] = min(end - q_len, max(p.packed_slots - q_len, int64_t{0})) * p.packed_row;
    if (i == p.batch - 1) p.packed_offsets[p.batch] = p.packed_slots * p.packed_row;
    packed += shared[kThreads - 1];
    __syncthreads();
  }
}

/// Which rows of one sequence see nothing; seen from the keys when `transposed`.
struct SequenceRows {
  int64_t len, other_len;
  bool bottom_right, has_left, has_right;
  int64_t left, right;

  __device__ SequenceRows(const RowFacts& f, int64_t b, bool transposed) {
    const int64_t q_len = f.q_len != nullptr ? f.q_len[b] : f.declared_q_len;
    const int64_t kv_len = f.kv_len != nullptr ? f.kv_len[b] : f.declared_kv_len;
    len = transposed ? kv_len : q_len, other_len = transposed ? q_len : kv_len;
    bottom_right = f.bottom_right;
    has_left = transposed ? f.has_right : f.has_left, left = transposed ? f.right : f.left;
    has_right = transposed ? f.has_left : f.has_right, right = transposed ? f.left : f.right;
  }
  __device__ int64_t diagonal(int64_t row) const { return row + (bottom_right ? other_len - len : 0); }
  /// Band::keys of the row.
  __device__ KeyRange keys(int64_t row) const {
    const int64_t key = diagonal(row);
    return {has_left ? max(key - left, int64_t{0}) : 0,
            has_right ? min(key + right + 1, other_len) : other_len};
  }
  __device__ bool sees_nothing(int64_t row) const {
    const KeyRange seen = keys(row);
    return row >= len || seen.begin >= seen.end;
  }
};

/// Which rows a block has: (sequence, head, tile of rows), tiles fastest.
struct RowBlock {
  int64_t batch, head, first_row;
  __device__ RowBlock(int64_t heads, int64_t len) {
    const int64_t tiles = (len + kRowsPerBlock - 1) / kRowsPerBlock;
    first_row = blockIdx.x % tiles * kRowsPerBlock;
    head = blockIdx.x / tiles % heads;
    batch = blockIdx.x / tiles / heads;
  }
};
int64_t blocks_of(int64_t batch, int64_t heads, int64_t len) {
  return batch * heads * ((len + kRowsPerBlock - 1) / kRowsPerBlock);
}

__device__ int64_t row_start(const RowTensor& t, int64_t b, int64_t head, int64_t row) {
  const int64_t first = t.offsets != nullptr ? t.offsets[b] : b * t.batch_stride;
  return first + head * t.head_stride + row * t.len_stride;
}

__device__ float load(const std::byte* data, DataType dtype, int64_t element) {
  if (dtype == DataType::kF32) return reinterpret_cast<const float*>(data)[element];
  if (dtype == DataType::kF16) return __half2float(reinterpret_cast<const __half*>(data)[element]);
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(data)[element]);
}

__device__ void store(std::byte* data, DataType dtype, int64_t element, float value) {
  if (dtype == DataType::kF32)
    reinterpret_cast<float*>(data)[element] = value;
  else if (dtype == DataType::kF16)
    reinterpret_cast<__half*>(data)[element] = __float2half_rn(value);
  else
    reinterpret_cast<__nv_bfloat16*>(data)[element] = __float2bfloat16_rn(value);
}

__global__ void __launch_bounds__(kThreads) copy_stats_kernel(const __grid_constant__ StatsParams p) {
  const RowBlock block(p.to.heads, p.to.len);
  const int64_t row = block.first_row + threadIdx.x;
  const SequenceRows sequence(p.facts, block.batch, /*transposed=*/false);
  if (row >= (p.to.offsets != nullptr ? sequence.len : p.to.len)) return;
  float value = kInf;
  if (!sequence.sees_nothing(row)) {
    const int64_t from = row_start(p.from, block.batch, block.head, row);
    value = reinterpret_cast<const float*>(p.from.data)[from] * p.factor;
    if (value == -kInf) value = kInf;
  }
  store(p.to.data, p.to.dtype, row_start(p.to, block.batch, block.head, row), value);
}

/// A warp looks at one row: whether its bias is -inf for all of its keys.
__device__ bool is_masked(const Matrix& bias, const RowBlock& block, const SequenceRows& sequence,
                          int64_t row) {
  const KeyRange seen = sequence.keys(row);
  const int64_t start = block.batch * bias.stride[0] + block.head * bias.stride[1] + row * bias.stride[2];
  bool is_kept = false;
  for (int64_t key = seen.begin + threadIdx.x % kWarp; key < seen.end; key += kWarp)
    is_kept |= load(bias.data, bias.dtype, start + key * bias.stride[3]) != -kInf;
  return !__any_sync(0xffffffffu, is_kept);
}

__device__ void settle(const SettledTensor& t, const SettleParams& p, const RowBlock& block) {
  const SequenceRows sequence(p.facts, block.batch, t.transposed);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t first = block.first_row + (threadIdx.x - lane), row = first + lane;
  const bool is_written = row < (t.rows.offsets != nullptr ? sequence.len : t.rows.len);
  bool is_empty = is_written && sequence.sees_nothing(row);
  if (p.bias.data != nullptr && !t.transposed) {
    const bool is_nan =
        is_written && !is_empty &&
        isnan(load(t.rows.data, t.rows.dtype, row_start(t.rows, block.batch, block.head, row)));
    for (unsigned rest = __ballot_sync(0xffffffffu, is_nan); rest != 0; rest &= rest - 1) {
      const int at = __ffs(static_cast<int>(rest)) - 1;
      const bool masked = is_masked(p.bias, block, sequence, first + at);
      if (at == lane) is_empty = masked;
    }
  }
  if (is_written && !is_empty && t.factor != 1.0f) {
    float* value = reinterpret_cast<float*>(t.rows.data) + row_start(t.rows, block.batch, block.head, row);
    *value *= t.factor;
  }
  for (unsigned rest = __ballot_sync(0xffffffffu, is_empty); rest != 0; rest &= rest - 1) {
    const int64_t empty = first + __ffs(static_cast<int>(rest)) - 1;
    const bool has_sink = t.sink != nullptr && empty < sequence.len;
    const float value =
        has_sink ? reinterpret_cast<const float*>(t.sink)[block.head * t.sink_stride] * t.factor : t.value;
    const int64_t start = row_start(t.rows, block.batch, block.head, empty);
    for (int64_t c = lane; c < t.rows.dim; c += kWarp)
      store(t.rows.data, t.rows.dtype, start + c * t.rows.dim_stride, value);
  }
}

__global__ void __launch_bounds__(kThreads)
    settle_kernel(const __grid_constant__ SettleParams p, int64_t heads, int64_t len) {
  const RowBlock block(heads, len);
  for (int n = 0; n < p.num_tensors; ++n)
    if (block.head < p.tensors[n].rows.heads && block.first_row < p.tensors[n].rows.len)
      settle(p.tensors[n], p, block);
}

/// A block a head.
__global__ void __launch_bounds__(kThreads) dsink_kernel(const __grid_constant__ SinkParams p) {
  __shared__ float shared[kThreads];
  const int64_t head = blockIdx.x;
  const float sink = reinterpret_cast<const float*>(p.sink)[head * p.sink_stride];
  float sum = 0.0f;
  for (int64_t b = 0; b < p.facts.batch; ++b) {
    const int64_t len = p.facts.q_len != nullptr ? p.facts.q_len[b] : p.facts.declared_q_len;
    for (int64_t row = threadIdx.x; row < len; row += kThreads) {
      const float stats = reinterpret_cast<const float*>(p.stats.data)[row_start(p.stats, b, head, row)];
      if (stats != kInf)
        sum += expf(sink - stats) *
               reinterpret_cast<const float*>(p.row_sums.data)[row_start(p.row_sums, b, head, row)];
    }
  }
  shared[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  if (threadIdx.x > 0) return;
  float& dsink = reinterpret_cast<float*>(p.dsink)[head * p.dsink_stride];
  dsink = (p.is_first ? 0.0f : dsink) - shared[0];
}

/// The row of a matrix that a warp takes.
struct MatrixRow {
  int64_t batch, head, row;
  __device__ explicit MatrixRow(const std::array<int64_t, 4>& extent) {
    const int64_t number = int64_t{blockIdx.x} * kMatrixRows + threadIdx.x / kWarp;
    row = number % extent[2], head = number / extent[2] % extent[1], batch = number / extent[2] / extent[1];
  }
  __device__ int64_t start(const Matrix& m) const {
    return batch * m.stride[0] + head * m.stride[1] + row * m.stride[2];
  }
};

int64_t matrix_blocks(const std::array<int64_t, 4>& extent) {
  return (extent[0] * extent[1] * extent[2] + kMatrixRows - 1) / kMatrixRows;
}

__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ CopyParams p) {
  const MatrixRow row(p.extent);
  if (row.batch >= p.extent[0]) return;
  const int64_t from = row.start(p.from), to = row.start(p.to);
  for (int64_t key = threadIdx.x % kWarp; key < p.extent[3]; key += kWarp) {
    const int64_t at = to + key * p.to.stride[3];
    const float value = load(p.from.data, p.from.dtype, from + key * p.from.stride[3]);
    store(p.to.data, p.to.dtype, at, p.adds ? load(p.to.data, p.to.dtype, at) + value : value);
  }
}

__global__ void __launch_bounds__(kThreads) bias_kernel(const __grid_constant__ BiasParams p) {
  const MatrixRow row(p.extent);
  if (row.batch >= p.extent[0]) return;
  const SequenceRows sequence(p.facts, row.batch, /*transposed=*/false);
  const int64_t to = row.start(p.to), bias = row.start(p.bias), mask = row.start(p.mask);
  float slope = 0.0f;
  if (p.slopes != nullptr)
    slope = reinterpret_cast<const float*>(
        p.slopes)[row.batch * p.slopes_batch_stride + row.head * p.slopes_head_stride];
  const int64_t diagonal = sequence.diagonal(row.row);
  for (int64_t key = threadIdx.x % kWarp; key < p.extent[3]; key += kWarp) {
    float value = slope * static_cast<float>(key - diagonal);
    if (p.bias.data != nullptr) value += load(p.bias.data, p.bias.dtype, bias + key * p.bias.stride[3]);
    const bool is_kept = p.mask.data == nullptr || p.mask.data[mask + key * p.mask.stride[3]] != std::byte{0};
    store(p.to.data, p.to.dtype, to + key * p.to.stride[3], is_kept ? value : -kInf);
  }
}

template <class... Arguments>
Status launch(const char* name, void (*kernel)(Arguments...), int64_t blocks, void* stream,
              std::type_identity_t<Arguments>... arguments) {
  if (blocks == 0) return {};
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
  return device::status_of(name, cudaGetLastError());
}

}  // namespace

RowFacts row_facts(const Band& band) {
  RowFacts facts;
  facts.bottom_right = band.align == Align::kBottomRight;
  facts.has_left = band.left.has_value(), facts.left = band.left.value_or(0);
  facts.has_right = band.right.has_value(), facts.right = band.right.value_or(0);
  return facts;
}

Status prepare_lengths(const PrepareParams& params, void* stream) {
  return launch("cudnn prepare_lengths", prepare_kernel, 1, stream, params);
}

Status copy_stats(const StatsParams& params, void* stream) {
  const RowTensor& to = params.to;
  return launch("cudnn copy_stats", copy_stats_kernel, blocks_of(params.facts.batch, to.heads, to.len),
                stream, params);
}

Status settle_rows(const SettleParams& params, void* stream) {
  int64_t heads = 0, len = 0;
  for (int n = 0; n < params.num_tensors; ++n) {
    heads = std::max(heads, params.tensors[n].rows.heads);
    len = std::max(len, params.tensors[n].rows.len);
  }
  if (params.num_tensors == 0) return {};
  return launch("cudnn settle_rows", settle_kernel, blocks_of(params.facts.batch, heads, len), stream, params,
                heads, len);
}

Status copy_matrix(const CopyParams& params, void* stream) {
  return launch("cudnn copy_matrix", copy_kernel, matrix_blocks(params.extent), stream, params);
}

Status make_bias(const BiasParams& params, void* stream) {
  return launch("cudnn make_bias", bias_kernel, matrix_blocks(params.extent), stream, params);
}

Status sum_dsink(const SinkParams& params, void* stream) {
  return launch("cudnn sum_dsink", dsink_kernel, params.stats.heads, stream, params);
}

}  // namespace attngraph::cudnn
