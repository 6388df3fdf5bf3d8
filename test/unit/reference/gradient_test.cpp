#include <algorithm>
#include <cmath>

#include "base/enum_names.hpp"
#include "engine/reference/reference.hpp"
#include "mixed_problem.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

constexpr double kUnwritten = 12345.0;

struct Pair {
  Role primal, gradient;
};
constexpr Pair kPairs[] = {{Role::kQ, Role::kDq},       {Role::kK, Role::kDk},
                           {Role::kV, Role::kDv},       {Role::kBias, Role::kDbias},
                           {Role::kSink, Role::kDsink}, {Role::kAlibiSlopes, Role::kDalibiSlopes}};

/// sum o * do over the elements of o that forward writes.
class Loss {
 public:
  Loss(const MixedProblem& mixed, const std::vector<double>& dout) : mixed_(mixed), dout_(dout) {}

  double with(Role role, size_t index, double step) const {
    NodeStorage storage = mixed_.inputs;
    std::vector<double> values = storage.get(role);
    values[index] += step;
    storage.set(role, values);
    storage.set(Role::kO, std::vector<double>(dout_.size(), kUnwritten));
    REQUIRE(storage.run(*engine_).ok());
    const std::vector<double> o = storage.get(Role::kO);
    double loss = 0;
    for (size_t i = 0; i < o.size(); ++i)
      if (o[i] != kUnwritten) loss += o[i] * dout_[i];
    return loss;
  }

  /// Central differences of steps h and h / 2, extrapolated: the error is of order h^4.
  double derivative(Role role, size_t index, double h) const {
    const auto central = [&](double step) {
      return (with(role, index, step) - with(role, index, -step)) / (2 * step);
    };
    return (4 * central(h / 2) - central(h)) / 3;
  }

 private:
  const MixedProblem& mixed_;
  const std::vector<double>& dout_;
  std::unique_ptr<Engine> engine_ = make_reference_engine();
};

}  // namespace

TEST_CASE("backward is the derivative of forward, all features mixed", "[reference]") {
  const auto engine = make_reference_engine();
  int compared = 0, nonzero = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const MixedProblem mixed = mixed_problem(random);
    const Problem problem = backward_problem(mixed.forward, mixed.gradients);
    INFO("seed " << seed << ": " << problem);
    NodeStorage forward = mixed.inputs, backward(problem);
    REQUIRE(forward.run(*engine).ok());
    backward.copy_from(forward);
    const std::vector<double> dout = grid_values(random, backward.count(Role::kDo));
    backward.set(Role::kDo, dout);
    REQUIRE(backward.run(*engine).ok());
    const Loss loss(mixed, dout);
    for (const auto& [primal, gradient] : kPairs) {
      if (!problem.has(gradient)) continue;
      const std::vector<double> inputs = mixed.inputs.get(primal), got = backward.get(gradient);
      // Each o is float32: a rounding error uniform up to 2^-24 for |o| < 2, times |do| <= 2, in up
      // to 120 elements. Extrapolation multiplies their sum's deviation by less than 2 / h, and four
      // deviations are allowed. A slope moves scores by up to 10 times its step.
      const double h = gradient == Role::kDalibiSlopes ? 0x1p-8 : 0x1p-5;
      const double tolerance = 4 * std::sqrt(120 / 3.0) * 2 * 0x1p-24 * 2 / h;
      for (int sample = 0; sample < 6; ++sample) {
        const size_t index = random() % inputs.size();
        const bool is_gap = std::isnan(got[index]);
        if (is_gap || std::isinf(inputs[index])) continue;
        INFO(gradient << "[" << index << "]");
        const double want = loss.derivative(primal, index, h);
        CHECK(std::abs(got[index] - want) <= tolerance);
        ++compared, nonzero += std::abs(want) > 10 * tolerance;
      }
    }
  }
  CHECK(compared > 3000);
  CHECK(nonzero > 1000);
}
