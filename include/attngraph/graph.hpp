#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attngraph/band.hpp"
#include "attngraph/export.hpp"
#include "attngraph/layout.hpp"
#include "attngraph/status.hpp"
#include "attngraph/types.hpp"

namespace attngraph {

/// Where the sequences of a packed tensor begin: element `offsets[b] * multiplier`.
struct Ragged {
  Uid offsets = 0;         ///< tensor of batch + 1 int32 or int64 entries
  int64_t multiplier = 1;  ///< elements per offset unit; the token stride makes offsets token counts
};

/// One tensor as it was described.
struct Tensor {
  Uid uid = 0;
  std::string name;
  DataType dtype = DataType::kF32;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;  ///< elements; empty on an output: dense, last axis fastest
  std::optional<Ragged> ragged;
  int64_t alignment = 16;   ///< bytes that the bound pointer is a multiple of
  bool is_virtual = false;  ///< lives in the workspace: made by one node, read by another, never bound
};

/// A tensor's place in a node; empty when the node does without.
using Port = std::optional<Uid>;

enum class StatsBase : uint8_t { kE, k2 };

/// What both attention nodes say beside their tensors. Contract section 3 gives the formulas.
struct SdpaAttributes {
  std::optional<double> scale;  ///< multiplies q.k; absent: 1 / sqrt(dim of q)
  double softcap = 0.0;         ///< 0: none
  Band band;
  double dropout_p = 0.0;  ///< probability that an element is dropped
  StatsBase stats_base = StatsBase::kE;
  std::optional<int64_t> max_total_q;     ///< token slots of ragged q, o, ..., gaps included; else unused
  std::optional<int64_t> max_total_kv;    ///< token slots of ragged k, v, ..., gaps included; else unused
  std::optional<int64_t> max_seq_len_kv;  ///< paged k and v: longest sequence
  bool deterministic = false;             ///< backward: bit-equal from run to run
};

/// o = softmax(scale * q k^T + ...) v, and its log-sum-exp.
///
/// Shapes: q [B, Hq, Sq, D], k [B, Hkv, Skv, D], v [B, Hkv, Skv, Dv], o [B, Hq, Sq, Dv],
///         stats [B, Hq, Sq] or [B, Hq, Sq, 1] float32, bias and mask broadcast to [B, Hq, Sq, Skv],
///         alibi_slopes [Hq], [1, Hq] or [B, Hq], sink [Hq], seq_len [B], cu_seq_len [B + 1],
///         page tables [B, columns] with k and v [pages, Hkv, page_size, dim].
/// Source: contract sections 1 to 5.
struct SdpaForward {
  std::string name;
  Port q, k, v, bias, mask, alibi_slopes, sink, seq_len_q, seq_len_kv, cu_seq_len_q, cu_seq_len_kv;
  Port page_table_k, page_table_v, dropout_seed, dropout_offset;
  Port o, stats;
  SdpaAttributes attributes;
};

/// Any non-empty subset of the gradients of SdpaForward; stats, o and do are always needed.
///
/// Shapes: as SdpaForward; a gradient has the dims of its primal, `dout` those of o.
/// Source: contract section 6.
struct SdpaBackward {
  std::string name;
  Port q, k, v, o, dout, stats, bias, mask, alibi_slopes, sink, seq_len_q, seq_len_kv;
  Port cu_seq_len_q, cu_seq_len_kv, dropout_seed, dropout_offset;
  Port dq, dk, dv, dbias, dsink, dalibi_slopes;
  SdpaAttributes attributes;
};

/// What a merge says beside its tensors.
struct MergeAttributes {
  StatsBase stats_base = StatsBase::kE;  ///< of all three stats
  std::optional<int64_t> max_total_q;    ///< token slots of ragged tensors, gaps included; else unused
};

/// Attention to two disjoint sets of keys of the same queries, as attention to their union:
/// stats = ln(e^stats_a + e^stats_b), o = e^(stats_a - stats) o_a + e^(stats_b - stats) o_b.
///
/// Shapes: o_a, o_b and o [B, Hq, Sq, Dv], stats [B, Hq, Sq] or [B, Hq, Sq, 1] float32, seq_len_q [B],
///         cu_seq_len_q [B + 1].
/// Source: contract section 9. The backward of each part runs with the merged o and stats.
struct MergePartials {
  std::string name;
  Port o_a, stats_a, o_b, stats_b, seq_len_q, cu_seq_len_q;
  Port o, stats;
  MergeAttributes attributes;
};

using Node = std::variant<SdpaForward, SdpaBackward, MergePartials>;

/// What was said: tensors by uid and nodes in execution order; exactly the content of a graph file.
///
/// Nothing is checked while a graph is built; validate() answers for the whole.
class ATTNGRAPH_API Graph {
 public:
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;

  /// Adds a tensor, packed with `ragged`, under a fresh uid and returns the uid. A graph holds no addresses:
  /// whoever binds a view adds `layout.offset` to the pointer.
  Uid tensor(std::string name, DataType dtype, const Layout& layout, std::optional<Ragged> ragged = {});
  /// Adds a dense vector [count]: lengths, offsets, seeds, slopes, sinks.
  Uid vector(std::string name, DataType dtype, int64_t count);

  /// Adds the node. An `o` left empty is made: packed in the memory order of q, ragged by q's offsets
  /// when q is; a token is wider than packed only where those have no whole multiplier otherwise.
  /// `with_stats` makes padded stats. The reference is valid until the next node is added.
  SdpaForward& sdpa_forward(SdpaForward node, bool with_stats = false);
  /// Adds the node. One that names no gradient gets dq, dk and dv, each in the layout of its primal,
  /// packed where elements of the primal overlap.
  SdpaBackward& sdpa_backward(SdpaBackward node);
  /// Adds the node. An `o` left empty is made in the layout of o_a, and `with_stats` makes stats in that of
  /// stats_a; both are packed where elements of those overlap.
  MergePartials& merge_partials(MergePartials node, bool with_stats = false);

  /// The tensor, or null.
  const Tensor* find(Uid uid) const;
  Tensor* find(Uid uid);
  /// One more than the largest uid that a tensor, port or ragged names, at least 1; the smallest
  /// free one above 0 when the largest is the last int64.
  Uid fresh_uid() const;

  /// Errors: kInvalidGraph naming the first tensor or attribute that contradicts the rest.
  Status validate() const;
};

ATTNGRAPH_API bool operator==(const Ragged& x, const Ragged& y);
ATTNGRAPH_API bool operator==(const Tensor& x, const Tensor& y);
ATTNGRAPH_API bool operator==(const SdpaAttributes& x, const SdpaAttributes& y);
ATTNGRAPH_API bool operator==(const SdpaForward& x, const SdpaForward& y);
ATTNGRAPH_API bool operator==(const SdpaBackward& x, const SdpaBackward& y);
ATTNGRAPH_API bool operator==(const MergeAttributes& x, const MergeAttributes& y);
ATTNGRAPH_API bool operator==(const MergePartials& x, const MergePartials& y);
ATTNGRAPH_API bool operator==(const Graph& x, const Graph& y);
inline bool operator!=(const Graph& x, const Graph& y) { return !(x == y); }

}  // namespace attngraph
