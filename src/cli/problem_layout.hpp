#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/random.hpp"
#include "cli/random_problem.hpp"

namespace attngraph::cli {

/// Streams of random words of one problem, beside stream 0 of its choices.
inline constexpr uint64_t kGapStream = 1000, kPageStream = 2000;

/// Extents of a paged container.
int64_t num_page_columns(const RandomProblem& problem);
int64_t num_pages(const RandomProblem& problem);

/// A tensor's part of an interleaved buffer [batch, len, token_elems].
struct SharedBuffer {
  Role owner = Role::kQ;  ///< the part that the storage is bound as; its offset is 0
  int64_t offset = 0;     ///< elements before the part in each token
  int64_t token_elems = 0;
};
std::optional<SharedBuffer> shared_buffer(const RandomProblem& problem, Role role);

/// The tensor whose offsets a ragged one goes by: parts of a buffer have theirs in common.
Role offsets_owner(const RandomProblem& problem, Role role);

/// The token slots at which the sequences of a ragged tensor begin, and one past the last sequence.
std::vector<int64_t> token_starts(const RandomProblem& problem, Role role);

/// Token slots of a side's ragged tensors, gaps included.
int64_t capacity_of(const RandomProblem& problem, Side side);

}  // namespace attngraph::cli
