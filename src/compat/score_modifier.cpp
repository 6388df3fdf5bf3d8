#include "compat/score_modifier.hpp"

#include "base/message.hpp"

namespace attngraph::compat {
namespace {

/// Reads the operations one after the other, each on the result of the one before.
class Chain {
 public:
  explicit Chain(const ScoreModifier& modifier) : modifier_(modifier), at_(modifier.score) {}

  /// The other input of the next operation if it is of this kind, or none; a kind with one input gives that.
  std::optional<Uid> take(PointwiseOp op, size_t num_inputs = 2) {
    if (next_ == modifier_.operations.size()) return std::nullopt;
    const Pointwise& operation = modifier_.operations[next_];
    if (operation.op != op || operation.inputs.size() != num_inputs || operation.inputs[0] != at_)
      return std::nullopt;
    ++next_, at_ = operation.output;
    return operation.inputs.back();
  }

  Uid at() const { return at_; }
  bool is_at(PointwiseOp op) const {
    return next_ < modifier_.operations.size() && modifier_.operations[next_].op == op;
  }

  Status refuse(const char* attribute, const char* accepted) const {
    if (next_ < modifier_.operations.size())
      return fail(Code::kUnsupported, attribute, ": operation ", next_, " \"",
                  modifier_.operations[next_].name, "\" is something else; must be ", accepted);
    return fail(Code::kUnsupported, attribute, ": returns another tensor than its last operation; must be ",
                accepted);
  }
  bool is_done() const { return next_ == modifier_.operations.size() && at_ == modifier_.result; }

 private:
  const ScoreModifier& modifier_;
  size_t next_ = 0;
  Uid at_;
};

constexpr const char* kForward =
    "a softcap (divided by a positive scalar, tanh, multiplied by it), then a bias added, each optional";
constexpr const char* kGradient =
    "the gradient of score_mod: for a softcap multiplied by its scalar, tanh's gradient at the quotient, "
    "divided by it; else nothing";

}  // namespace

Result<ScoreMeaning> meaning_of(const ScoreModifier& modifier, const ValueOf& value_of) {
  ScoreMeaning meaning;
  Chain chain(modifier);
  if (chain.is_at(PointwiseOp::kDiv)) {
    const std::optional<Uid> divisor = chain.take(PointwiseOp::kDiv);
    const std::optional<double> softcap = divisor ? value_of(*divisor) : std::nullopt;
    meaning.before_tanh = chain.at();
    if (!softcap || !(*softcap > 0) || !chain.take(PointwiseOp::kTanh, 1))
      return chain.refuse("score_mod", kForward);
    const std::optional<Uid> factor = chain.take(PointwiseOp::kMul);
    if (!factor || value_of(*factor) != softcap) return chain.refuse("score_mod", kForward);
    meaning.softcap = *softcap;
  }
  if (chain.is_at(PointwiseOp::kAdd)) {
    meaning.bias = chain.take(PointwiseOp::kAdd);
    if (!meaning.bias || value_of(*meaning.bias)) return chain.refuse("score_mod", kForward);
  }
  if (!chain.is_done()) return chain.refuse("score_mod", kForward);
  return meaning;
}

Status check_gradient(const ScoreModifier& modifier, const ScoreMeaning& forward, const ValueOf& value_of) {
  Chain chain(modifier);
  if (forward.softcap != 0) {
    const std::optional<Uid> factor = chain.take(PointwiseOp::kMul);
    if (!factor || value_of(*factor) != forward.softcap) return chain.refuse("score_mod_bprop", kGradient);
    if (chain.take(PointwiseOp::kTanhGradient) != forward.before_tanh)
      return chain.refuse("score_mod_bprop", kGradient);
    const std::optional<Uid> divisor = chain.take(PointwiseOp::kDiv);
    if (!divisor || value_of(*divisor) != forward.softcap) return chain.refuse("score_mod_bprop", kGradient);
  }
  return chain.is_done() ? Status() : chain.refuse("score_mod_bprop", kGradient);
}

}  // namespace attngraph::compat
