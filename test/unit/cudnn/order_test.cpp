#include "engine/cpu/pool.hpp"
#include "engine/registry.hpp"
#include "support/catch.hpp"
#include "support/problems.hpp"

using namespace attngraph;
using namespace attngraph::test;

TEST_CASE("cudnn is tried first on a device, but for the classes in which cuda was measured faster",
          "[cudnn]") {
  Pool pool(1);
  const EngineSet set = make_engines(pool);
  const auto first = [&](const Problem& p, const Target& target = Target::h200()) {
    return std::string(set.ordered(p, target).front()->name());
  };
  const Problem plain = forward_problem({1, 1, 1, 4096, 4096, 256, 256}, DataType::kBf16);
  CHECK(first(plain) == "cuda");
  CHECK(first(plain, Target::b200()) == "cudnn");
  const std::vector<Role> gradients = {Role::kDq, Role::kDk, Role::kDv};
  Problem backward = backward_problem(plain, gradients);
  CHECK(first(backward) == "cuda");
  backward.band = Band::causal();
  CHECK(first(backward) == "cuda");
  backward.band.left = 1024;
  CHECK(first(backward) == "cudnn");
  const auto change = GENERATE(values<void (*)(Problem&)>({
      [](Problem& p) { p.q_len = 4095; },
      [](Problem& p) { p.v_dim = 128; },
      [](Problem& p) { p.band = Band::causal(); },
      [](Problem& p) { p.softcap = 30; },
      [](Problem& p) { add_ints(p, Role::kSeqLenKv, 1); },
      [](Problem& p) { add_head_vector(p, Role::kSink); },
  }));
  Problem changed = plain;
  change(changed);
  CHECK(first(changed) == "cudnn");
}

TEST_CASE("cuda is tried first where cudnn would make a bias of slopes, and in decode behind a mask",
          "[cudnn]") {
  Pool pool(1);
  const EngineSet set = make_engines(pool);
  Problem p = forward_problem({2, 4, 4, 512, 512, 64, 64}, DataType::kBf16);
  add_head_vector(p, Role::kAlibiSlopes);
  const auto first = [&](const Problem& problem) {
    return std::string(set.ordered(problem, Target::h200()).front()->name());
  };
  CHECK(first(p) == "cudnn");
  p.band = Band::causal(Align::kBottomRight);
  CHECK(first(p) == "cuda");
  CHECK(first(backward_problem(p, {Role::kDq, Role::kDk, Role::kDv})) == "cuda");
  p = forward_problem({2, 4, 4, 512, 512, 64, 64}, DataType::kBf16);
  add_matrix(p, Role::kMask, DataType::kBool, {1, 1, 512, 512});
  CHECK(first(p) == "cudnn");
  p = forward_problem({2, 4, 4, 1, 512, 64, 64}, DataType::kBf16);
  add_matrix(p, Role::kMask, DataType::kBool, {1, 1, 1, 512});
  CHECK(first(p) == "cuda");
}
