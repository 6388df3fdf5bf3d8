#pragma once

#include <vector>

#include "engine/cuda/families.hpp"
#include "engine/cuda/recipe.hpp"
#include "support/problems.hpp"

/// What tests of recipes share.
namespace attngraph::test {

inline constexpr Target kH200 = Target::h200(), kA100 = Target::a100();

inline cuda::Recipe recipe_of(const Problem& p, const Target& target = kH200) {
  return cuda::make_recipe(p, target, {p.batch, p.kv_heads});
}

inline std::vector<cuda::Family> families(const cuda::Recipe& recipe) {
  std::vector<cuda::Family> all;
  for (const cuda::Step& step : recipe.steps) all.push_back(step.kernel.family);
  return all;
}

inline Problem with(Problem p, void (*change)(Problem&)) {
  change(p);
  return p;
}

inline void add_mask(Problem& p) {
  add_matrix(p, Role::kMask, DataType::kBool, {p.batch, 1, p.q_len, p.kv_len});
}
inline void add_bias(Problem& p, DataType dtype) {
  add_matrix(p, Role::kBias, dtype, {1, p.q_heads, p.q_len, p.kv_len});
}

inline const Sizes kPrefill{16, 8, 2, 512, 512, 128, 128};  ///< enough tiles for a device without splits
inline const std::vector<Role> kAllOfQkv = {Role::kDq, Role::kDk, Role::kDv};

}  // namespace attngraph::test
