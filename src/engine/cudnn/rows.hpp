#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "attngraph/band.hpp"
#include "attngraph/status.hpp"
#include "attngraph/types.hpp"
#include "graph/role.hpp"
#include "problem/layout.hpp"

/// The engine's own kernels: what cuDNN reads before it runs, and the rows that it leaves unwritten.
namespace attngraph::cudnn {

/// Lengths of one side as they are bound.
struct BoundLengths {
  const std::byte* data = nullptr;  ///< null: every sequence has `declared` rows
  DataType dtype = DataType::kI32;
  int64_t stride = 0;
  bool cumulative = false;
  int64_t declared = 0;
};

/// Where the sequences of one tensor begin as it is bound, and where cuDNN's element offsets go.
struct BoundOffsets {
  const std::byte* data = nullptr;  ///< of a ragged tensor; null: sequences are batch_stride apart
  DataType dtype = DataType::kI32;
  int64_t stride = 0;
  Side side = Side::kQ;
  RaggedRows rows;
  int64_t slots = 0, batch_stride = 0;
  int64_t* elements = nullptr;  ///< batch + 1
};
inline constexpr int kMostOffsets = 10;  ///< q, k, v, o, do, stats and three gradients

/// Lengths and offsets of a slice of sequences: clamped, cut to footprints, and in cuDNN's units.
struct PrepareParams {
  int64_t batch_begin = 0, batch = 0;
  BoundLengths q, kv;
  BoundOffsets offsets[kMostOffsets];
  int num_offsets = 0;
  int32_t *q_len = nullptr, *kv_len = nullptr;
  int64_t* packed_offsets = nullptr;  ///< batch + 1; null: nothing is packed
  int64_t packed_row = 0;             ///< elements a token slot
  int64_t packed_slots = 0;
};
Status prepare_lengths(const PrepareParams& params, void* stream);

/// A tensor of rows of a slice.
struct RowTensor {
  std::byte* data = nullptr;  ///< of the slice's first head, and first sequence when dense
  DataType dtype = DataType::kF32;
  int64_t batch_stride = 0, head_stride = 0, len_stride = 0, dim_stride = 0;
  const int64_t* offsets = nullptr;  ///< elements, one a sequence; null: dense
  int64_t heads = 0, len = 0, dim = 0;
};

/// What tells which rows of a slice see nothing.
struct RowFacts {
  const int32_t *q_len = nullptr, *kv_len = nullptr;  ///< null: every sequence has the declared length
  int64_t declared_q_len = 0, declared_kv_len = 0;
  int64_t batch = 0;
  bool bottom_right = false, has_left = false, has_right = false;
  int64_t left = 0, right = 0;
};
RowFacts row_facts(const Band& band);

/// Copies stats to base e, +inf for a row that sees nothing or lies beyond its length.
struct StatsParams {
  RowFacts facts;
  RowTensor from, to;
  float factor = 1.0f;  ///< to base e
};
Status copy_stats(const StatsParams& params, void* stream);

/// A float array over batch, heads, rows and keys, such as a bias.
struct Matrix {
  std::byte* data = nullptr;  ///< of the slice's first sequence and head
  DataType dtype = DataType::kF32;
  std::array<int64_t, 4> stride = {};
};

/// Writes what a row, or with `transposed` a key, that sees nothing must hold.
struct SettledTensor {
  RowTensor rows;
  bool transposed = false;
  float value = 0.0f;               ///< 0 or -inf
  const std::byte* sink = nullptr;  ///< float32 a head; the value instead, of rows inside the length
  int64_t sink_stride = 0;
  float factor = 1.0f;  ///< of every other row; 1: left as it is
};
inline constexpr int kMaxSettled = 3;
struct SettleParams {
  RowFacts facts;
  Matrix bias;  ///< may be -inf for all keys of a row; looked at for rows of o and stats that hold NaN
  SettledTensor tensors[kMaxSettled];
  int num_tensors = 0;
};
Status settle_rows(const SettleParams& params, void* stream);

/// dsink = -sum of exp(sink - stats) * row_sums over the rows of a slice, added to what is there unless
/// `is_first`.
struct SinkParams {
  RowFacts facts;
  RowTensor stats, row_sums;        ///< base e
  const std::byte* sink = nullptr;  ///< float32 a head, as dsink
  std::byte* dsink = nullptr;
  int64_t sink_stride = 0, dsink_stride = 0;
  bool is_first = true;
};
Status sum_dsink(const SinkParams& params, void* stream);

/// Makes a bias of a bias, a mask and slopes: their sum, -inf where the mask is false.
struct BiasParams {
  RowFacts facts;
  Matrix to, bias, mask;              ///< a mask is bool; data null: none
  const std::byte* slopes = nullptr;  ///< float32 a head; null: none
  int64_t slopes_batch_stride = 0, slopes_head_stride = 0;
  std::array<int64_t, 4> extent = {};  ///< of `to`
};
Status make_bias(const BiasParams& params, void* stream);

/// Copies a matrix, or adds it to what is there.
struct CopyParams {
  Matrix from, to;
  std::array<int64_t, 4> extent = {};
  bool adds = false;
};
Status copy_matrix(const CopyParams& params, void* stream);

}  // namespace attngraph::cudnn
