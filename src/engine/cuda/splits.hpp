#pragma once

#include <cstdint>

/// Into how many parts a forward's keys are cut, so that few query rows still fill the device.
namespace attngraph::cuda {

/// Parts into which a row tile's keys are cut, so that few tiles still fill the device.
///
/// Units:  `blocks` without a cut, `slots` blocks that run at once, `key_tiles` of the longest sequence.
/// Source: the smallest count that fills the last wave about as well as any, as flash-attention's
///         num_splits_heuristic.
int32_t key_splits(int64_t blocks, int64_t slots, int64_t key_tiles);

/// Blocks of a cluster among which decode cuts a head's keys, and clusters.
struct DecodeParts {
  int32_t cluster = 1, clusters = 1;
};
/// Units:  as key_splits(), on `multiprocessors`.
/// Source: an H200, 32 heads on 8, GB/s with clusters of 1, 2, 4, 8, 16: 64 sequences of 8,192 keys 4142,
///         4021, 3910; 16 of 32,768 4075, 4158, 4029; 8 of 4,096 2847, 2945, 2573, 2381; one of 131,072 with
///         clusters of 4, 8, 16 1857, 3602, 3073, with 4 and 8 clusters of 8 a head and a merge 3285 and
///         3314; later with 8 clusters of 2 and a merge 4077, of 8 without 3462, and of 16,384 keys 2278 and
///         2599 (docs/results/2026-11-30-h200-cuda-decode-ways.json). At once it runs 132 clusters of 2, 62
///         of 4 or 30 of 8.
DecodeParts decode_parts(int64_t blocks, int64_t multiprocessors, int64_t key_tiles);

}  // namespace attngraph::cuda
