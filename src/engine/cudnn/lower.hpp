#pragma once

#include "engine/cudnn/op_graph.hpp"
#include "plan/engine.hpp"
#include "problem/problem.hpp"

namespace attngraph::cudnn {

/// The part of a problem that one cuDNN plan covers: fewer sequences and heads at the same strides.
Problem slice_of(const Problem& problem, const SliceShape& shape);

/// True when cuDNN reads lengths from the device: some side has lengths, or a band goes by the bottom right
/// of more rows than keys, which cuDNN takes with lengths alone. A side without then counts as full, and
/// every tensor of rows goes to cuDNN as a ragged one with offsets of our own, dense ones too: cuDNN 9.19
/// multiplies the storage of dense rows beyond a length by 0, and NaN there spoils what is read.
bool has_lengths(const Problem& problem);
/// True when backward reads the engine's own copy of the stats: where a row may see nothing, for which the
/// copy has +inf, and where the user's layout or base is not cuDNN's.
bool copies_stats(const Problem& problem);
/// True when the band alone may leave a query row without a key, or with `keys`, a key without a row.
bool band_leaves_rows(const Problem& problem);
bool band_leaves_keys(const Problem& problem);

/// True when a tensor and its gradient lie at the same rows of equal storage.
bool lies_alike(const Operand& primal, const Operand& gradient);

/// Token slots of backward's packed arrays; 0: they are dense, [batch, heads, len, dim]. cuDNN takes sums of
/// dq and heads of dk and dv at the rows of q, k and v alone, so gradients must lie alike, and dims must be
/// multiples of 16.
int64_t packed_slots(const Problem& problem);

/// Strides as cuDNN wants them: none is 0, and those that are never read are what a packed tensor has.
std::array<int64_t, 4> strides_of(const Operand& tensor);

/// What cuDNN is asked to run for a problem that no gate refuses.
///
/// The operations and their order are those that cuDNN 9.19 matches its attention engines against.
/// Source: cudnn-frontend 1.23, node/scaled_dot_product_flash_attention.h, lines 544-999 and 1361-1953.
OpGraph lower(const Problem& problem);

/// Bytes of a scratch tensor of the lowered graph.
///
/// Errors: kInvalidGraph when they leave int64.
Result<int64_t> scratch_bytes(const Problem& problem, const OpTensor& tensor);

}  // namespace attngraph::cudnn
