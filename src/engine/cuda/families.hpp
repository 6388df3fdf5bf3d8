#pragma once

#include <cstdint>
#include <string>

#include "attngraph/types.hpp"
#include "engine/cuda/hopper_tiles.hpp"
#include "problem/problem.hpp"

/// Which problems the families of kernels take, and what they ask about a problem.
namespace attngraph::cuda {

/// Why the family of kernels on tensor cores does not take the problem; empty: it does.
std::string why_not_tensor_cores(const Problem& problem, const Target& target);

/// Why the tiled float32 kernels do not take it.
std::string why_not_float(const Problem& problem, const Target& target);

/// Why the kernels of sm_90a do not take the problem; empty: they do.
std::string why_not_hopper(const Problem& problem, const Target& target);
/// Whether they add up the problem's dbias: it has rows and keys of its own.
bool adds_dbias_on_hopper(const Problem& problem, const Target& target);

/// Why the decode kernel of sm_90a does not; it takes few query rows.
std::string why_not_hopper_decode(const Problem& problem, const Target& target);

/// Keys and values lie on pages.
bool is_paged(const Problem& problem);
/// Scores depend on more memory than the rows of q and k.
bool reads_matrices(const Problem& problem);
/// Scores are more than products times a scale that keeps their order; the plain softmax takes its maximum
/// before the scale.
bool bends_scores(const Problem& problem);
/// A backward of sm_90a masks scores, its instance with extras, and not products before such a scale.
bool masks_scores(const Problem& problem);
/// Which kernels of sm_90a a problem asks for.
Scores hopper_scores(const Problem& problem);
/// Rows of a bias or a mask can be copied 16 bytes at a time, the last ones of a row included.
bool is_in_chunks(const Operand& matrix);
/// Pages, matrices or bent scores: a kernel with extras takes it.
bool has_extras(const Problem& problem);
/// dq, dk and dv are all asked for.
bool wants_all(const Problem& problem);
/// Backward on tensor cores by five products instead of seven, for a sum of dq whose order changes from run
/// to run.
bool runs_in_one_pass(const Problem& problem);

/// The first of kTileDims that holds both head dims; 0: none does.
int tile_dim(const Problem& problem);
/// Which of kHopperDims names an sm_90a kernel of the problem; 0: none does.
int hopper_tile_dim(const Problem& problem);
/// Rows of a piece of `keys` neighbouring keys that never crosses the end of a page.
int64_t rows_on_a_page(const Problem& problem, int64_t keys);

}  // namespace attngraph::cuda
