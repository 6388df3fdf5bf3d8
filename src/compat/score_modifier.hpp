#pragma once

#include <functional>
#include <optional>

#include "attngraph/compat/frontend.hpp"

namespace attngraph::compat {

/// The value that goes with a tensor; none for one in memory.
using ValueOf = std::function<std::optional<double>(Uid)>;

/// What a score modifier does to x = scale * (q . k): softcap * tanh(x / softcap) where that is not 0, then
/// plus the bias.
struct ScoreMeaning {
  double softcap = 0;
  Port bias;
  Uid before_tanh = 0;  ///< x / softcap, which its gradient reads
};

/// Errors: kUnsupported naming the first operation that is none of these.
Result<ScoreMeaning> meaning_of(const ScoreModifier& modifier, const ValueOf& value_of);

/// Errors: kUnsupported naming the first operation that is not the gradient of `forward`.
Status check_gradient(const ScoreModifier& modifier, const ScoreMeaning& forward, const ValueOf& value_of);

}  // namespace attngraph::compat
