#include "engine/cudnn/bias.hpp"

#include <algorithm>

#include "base/element.hpp"
#include "engine/cudnn/lower.hpp"

namespace attngraph::cudnn {
namespace {

using enum Role;

/// cuDNN 9.19 answers a misaligned address for rows that do not begin at multiples of 16 bytes, and adds
/// other values of a bias for all rows or all keys: of one for both, and in backward of each (measured on an
/// H200).
bool is_read_by_cudnn(const Problem& p, const Operand& bias) {
  const int64_t piece = 16 / element_bytes(bias.dtype);
  if (dim_stride(bias) > 1 || bias.alignment % 16 != 0) return false;
  for (size_t axis = 0; axis < 3; ++axis)
    if (bias.stride[axis] % piece != 0) return false;
  const bool has_rows = len_stride(bias) != 0, has_keys = dim_stride(bias) != 0;
  if (p.pass == Pass::kForward) return has_rows || has_keys;
  return (has_rows || p.q_len == 1) && (has_keys || p.kv_len == 1) && (has_rows || has_keys);
}

DataType type_of_own(const Problem& p) {
  if (puts_slopes_in_bias(p)) return DataType::kF32;
  return p.has(kBias) ? p[kBias].dtype : p.io;  // a mask is 0 and -inf, which every type has
}

}  // namespace

bool makes_bias(const Problem& p) {
  return p.has(kMask) || puts_slopes_in_bias(p) || (p.has(kBias) && !is_read_by_cudnn(p, p[kBias]));
}

std::array<int64_t, 4> own_bias_extent(const Problem& p) {
  const bool has_rows = p.pass == Pass::kBackward || p.kv_len == 1;  // cuDNN reads no single value
  std::array<int64_t, 4> extent = {1, 1, has_rows ? p.q_len : 1, p.kv_len};
  for (const Role role : {kBias, kMask})
    for (size_t axis = 0; axis < 3; ++axis)
      if (p.has(role) && p[role].stride[axis] != 0)
        extent[axis] = std::max(extent[axis], p[role].extent[axis]);
  if (!puts_slopes_in_bias(p)) return extent;
  // Distances go by the lengths of each sequence.
  const bool by_sequence = batch_stride(p[kAlibiSlopes]) != 0 || has_lengths(p);
  return {by_sequence ? p.batch : extent[0], p.q_heads, p.q_len, p.kv_len};
}

Operand own_bias(const Problem& p) {
  Operand own;
  own.present = true;
  own.dtype = type_of_own(p);
  own.extent = own_bias_extent(p);
  constexpr int64_t kPiece = 8;  // rows begin at multiples of 16 bytes, of the smallest element
  own.stride = packed_strides(
      {own.extent[0], own.extent[1], own.extent[2], (p.kv_len + kPiece - 1) / kPiece * kPiece});
  for (size_t axis = 0; axis < 4; ++axis)
    if (own.extent[axis] == 1) own.stride[axis] = 0;
  return own;
}

std::array<int64_t, 4> packed_strides(const std::array<int64_t, 4>& extent) {
  return {extent[1] * extent[2] * extent[3], extent[2] * extent[3], extent[3], 1};
}

}  // namespace attngraph::cudnn
