#include "engine/cuda/families.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked.hpp"
#include "base/element.hpp"
#include "base/message.hpp"
#include "engine/cuda/float_tiles.hpp"
#include "engine/cuda/hopper_tiles.hpp"
#include "engine/cuda/tensor_map.hpp"
#include "engine/cuda/tiles.hpp"
#include "plan/engine.hpp"
#include "problem/layout.hpp"

namespace attngraph::cuda {
namespace {

/// The first reason why 16-byte copies of whole rows cannot move the tensor.
std::string why_not_aligned(const Problem& problem, Role role) {
  const Operand& t = problem[role];
  if (t.dtype != problem.io) return text(role, " is not of q's type");
  if (dim_stride(t) != 1 && dim(t) > 1) return text(role, " has dim stride ", dim_stride(t));
  constexpr int64_t kElements = 8;  // of two bytes in 16
  for (const int64_t stride : {batch_stride(t), head_stride(t), len_stride(t), t.ragged ? t.multiplier : 0})
    if (stride % kElements != 0) return text(role, " has a stride or multiplier of ", stride);
  if (t.alignment % 16 != 0) return text(role, " is aligned to ", t.alignment, " bytes");
  return {};
}

/// Why tiles of so many keys do not come from pages in pieces.
std::string why_not_pieces(const Problem& problem, int64_t keys) {
  constexpr int64_t kSwizzledRows = 8;  // a tensor copy's pattern repeats after so many
  if (const int64_t rows = rows_on_a_page(problem, keys); rows % kSwizzledRows != 0)
    return text("pages share ", rows, " rows with a tile of ", keys);
  return {};
}

/// Instructions of sm_90a are in code for it alone, which the build may have left out.
std::string why_not_sm_90a(const Target& target) {
  if (target.sm_version != 90) return text("target is sm_", target.sm_version);
#ifndef ATTNGRAPH_WITH_SM_90A
  return "the build has no code for sm_90a";
#else
  return {};
#endif
}

}  // namespace

bool is_paged(const Problem& p) { return p.has(Role::kPageTableK) || p.has(Role::kPageTableV); }
bool reads_matrices(const Problem& p) { return p.has(Role::kBias) || p.has(Role::kMask) || p.dropout_p > 0; }
bool bends_scores(const Problem& p) {
  return p.softcap > 0 || p.has(Role::kAlibiSlopes) ||
         (p.pass == Pass::kForward && !keeps_order_of_products(p));
}
bool masks_scores(const Problem& p) { return bends_scores(p) || !keeps_order_of_products(p); }
Scores hopper_scores(const Problem& p) {
  if (reads_matrices(p)) return Scores::kRead;
  const bool bends = p.pass == Pass::kForward ? bends_scores(p) : masks_scores(p);
  return bends ? Scores::kBent : Scores::kPlain;
}
bool is_in_chunks(const Operand& t) {
  constexpr int64_t kBytes = 16;
  bool whole = t.present && dim_stride(t) == 1 && t.alignment % kBytes == 0;
  for (const int64_t elems : {batch_stride(t), head_stride(t), len_stride(t), dim(t)})
    whole &= elems * element_bytes(t.dtype) % kBytes == 0;
  return whole;
}
bool has_extras(const Problem& p) { return is_paged(p) || reads_matrices(p) || bends_scores(p); }

int tile_dim(const Problem& problem) {
  const int64_t widest = std::max(problem.qk_dim, problem.v_dim);
  for (const int dim : kTileDims)
    if (widest <= dim) return dim;
  return 0;
}

bool wants_all(const Problem& problem) {
  return problem.has(Role::kDq) && problem.has(Role::kDk) && problem.has(Role::kDv);
}

bool runs_in_one_pass(const Problem& problem) {
  return !problem.deterministic && !has_extras(problem) && tile_dim(problem) <= kMaxOnePassDim &&
         wants_all(problem);
}

int hopper_tile_dim(const Problem& problem) { return hopper_dim(problem.qk_dim, problem.v_dim); }

int64_t rows_on_a_page(const Problem& problem, int64_t keys) {
  for (const auto& [table, role] :
       {std::pair{Role::kPageTableK, Role::kK}, std::pair{Role::kPageTableV, Role::kV}})
    if (problem.has(table)) keys = std::gcd(keys, len(problem[role]));
  return keys;
}

std::string why_not_tensor_cores(const Problem& problem, const Target& target) {
  if (problem.io != DataType::kF16 && problem.io != DataType::kBf16) return "f32 has no tensor-core kernel";
  if (problem.qk_dim == 0 || problem.v_dim == 0 || problem.qk_dim % 8 != 0 || problem.v_dim % 8 != 0)
    return text("head dims ", problem.qk_dim, " and ", problem.v_dim, " are no multiples of 8");
  for (const Role role :
       {Role::kQ, Role::kK, Role::kV, Role::kO, Role::kDo, Role::kDq, Role::kDk, Role::kDv}) {
    if (!problem.has(role)) continue;
    if (std::string why = why_not_aligned(problem, role); !why.empty()) return why;
  }
  const int dim = tile_dim(problem);
  const int64_t bytes =
      problem.pass == Pass::kForward
          ? std::max(forward_shared_bytes(forward_tile(dim)), decode_shared_bytes(decode_tile(dim)))
          : std::max(dq_shared_bytes(dq_tile(dim)), runs_in_one_pass(problem)
                                                        ? one_pass_shared_bytes(one_pass_tile(dim))
                                                        : dkdv_shared_bytes(dkdv_tile(dim)));
  constexpr int64_t kStatic = 8 * 1024;  // row tables beside the tiles
  if (bytes + kStatic > target.shared_memory_bytes && bytes > 96 * 1024)
    return text("its tiles take ", bytes, " bytes of shared memory");
  return {};
}

std::string why_not_float(const Problem& problem, const Target& target) {
  if (problem.io != DataType::kF32) return text("q's type is ", problem.io);
  for (const Role role : {Role::kK, Role::kV, Role::kDo})
    if (problem.has(role) && problem[role].dtype != problem.io) return text(role, " is not of q's type");
  const int dim = float_dim(problem.qk_dim, problem.v_dim);
  if (problem.qk_dim == 0 || problem.v_dim == 0) return "a head dim is 0";
  if (dim == 0) return text("head dims ", problem.qk_dim, " and ", problem.v_dim, " exceed ", kFloatDims[1]);
  const bool forward = problem.pass == Pass::kForward;
  if (!forward && has_extras(problem)) return "its scores have more than a scale and a band";
  if (!forward && !wants_all(problem)) return "not all of dq, dk and dv are asked for";
  if (!forward && problem.deterministic) return "it must be deterministic, and dq is added up in any order";
  constexpr int64_t kStatic = 4 * 1024;
  const int64_t bytes = kStatic + (forward ? float_forward_shared_bytes(float_forward_tile(dim))
                                           : float_backward_shared_bytes(float_backward_tile(dim)));
  if (bytes > target.shared_memory_bytes) return text("its tiles take ", bytes, " bytes of shared memory");
  return {};
}

std::string why_not_hopper(const Problem& problem, const Target& target) {
  if (std::string why = why_not_sm_90a(target); !why.empty()) return why;
  if (std::string why = why_not_tensor_cores(problem, target); !why.empty()) return why;
  const bool forward = problem.pass == Pass::kForward;
  if (problem.has(Role::kDalibiSlopes)) return "its slopes have a gradient";
  if (problem.softcap > kMaxQuickSoftcap)
    return text("a softcap of ", problem.softcap, " exceeds ", kMaxQuickSoftcap,
                ", where scores err by 1e-4");
  const int dim = hopper_tile_dim(problem);
  if (reads_matrices(problem) && is_wide(dim))
    return text("head dims ", problem.qk_dim, " and ", problem.v_dim,
                " leave no room for a bias, a mask or dropout");
  if (problem.has(Role::kMask) && problem.has(Role::kBias) && element_bytes(problem[Role::kBias].dtype) > 2)
    return text("a mask stands beside a bias of ", problem[Role::kBias].dtype);
  for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kDo})
    if (problem.has(role))
      if (std::string why = why_no_map(problem, role); !why.empty()) return why;
  if (const auto& [align, left, right] = problem.band; left && right && *left + *right < 0)
    return "its band keeps no key";
  const bool two_passes = !forward && is_wide(dim);
  if (!forward && !two_passes && !wants_all(problem)) return "not all of dq, dk and dv are asked for";
  constexpr int64_t rows = HopperTile::rows;
  const int64_t keys = two_passes ? HopperDkdvTile::keys : hopper_gradient_tile(dim).keys;
  if (forward && is_paged(problem)) {
    if (!problem.has(Role::kPageTableK) || !problem.has(Role::kPageTableV))
      return "one of k and v alone lies on pages";
    const int64_t tile_keys = hopper_forward_tile(dim, hopper_scores(problem)).keys;
    if (std::string why = why_not_pieces(problem, tile_keys); !why.empty()) return why;
  }
  if (problem.kv_len == 0 || problem.q_len < rows / 2)
    return text("lengths ", problem.q_len, " and ", problem.kv_len, " do not fill a tile");
  const int64_t blocks = (forward ? ceil_div(problem.q_len, rows) * problem.q_heads
                                  : ceil_div(problem.kv_len, keys) * problem.kv_heads) *
                         problem.batch;
  if (2 * blocks < target.sm_count) return text(blocks, " tiles leave most multiprocessors idle");
  return {};
}

bool adds_dbias_on_hopper(const Problem& problem, const Target& target) {
  const Operand& dbias = problem[Role::kDbias];
  return problem.has(Role::kDbias) && len(dbias) > 1 && dim(dbias) > 1 &&
         why_not_hopper(problem, target).empty();
}

std::string why_not_hopper_decode(const Problem& problem, const Target& target) {
  if (std::string why = why_not_sm_90a(target); !why.empty()) return why;
  if (std::string why = why_not_tensor_cores(problem, target); !why.empty()) return why;
  if (reads_matrices(problem) || bends_scores(problem)) return "its scores have more than a scale and a band";
  if (const int64_t rows = problem.q_len * problem.group(); rows > kDecodeRows)
    return text(rows, " query rows of a group exceed ", kDecodeRows);
  constexpr int kMaxDim = 128;
  if (tile_dim(problem) > kMaxDim)
    return text("head dims ", problem.qk_dim, " and ", problem.v_dim, " exceed ", kMaxDim);
  for (const Role role : {Role::kK, Role::kV})
    if (std::string why = why_no_map(problem, role); !why.empty()) return why;
  return why_not_pieces(problem, HopperDecodeTile::keys);
}

}  // namespace attngraph::cuda
