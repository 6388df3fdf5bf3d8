#include "attngraph/context.hpp"
#include "attngraph/training.hpp"
#include "support/catch.hpp"
#include "unit/cuda/recipes.hpp"

using namespace attngraph;
using namespace attngraph::cuda;
using namespace attngraph::test;

TEST_CASE("backward on sm_90a adds dq in turn when deterministic or of few keys, else in any order",
          "[cuda]") {
  struct Row {
    int64_t kv_len;
    bool deterministic, in_turn;
  };
  const Row row = GENERATE(values<Row>({{1024, false, true},
                                        {1025, false, false},
                                        {1025, true, true},
                                        {4096, false, false},
                                        {4096, true, true}}));
  Problem p =
      backward_problem(forward_problem({4, 16, 16, 4096, row.kv_len, 128, 128}, DataType::kF16), kAllOfQkv);
  p.deterministic = row.deterministic;
  p.band = GENERATE(Band{}, Band::causal());
  CHECK(recipe_of(p).dq_in_turn == row.in_turn);
}

TEST_CASE("a backward on sm_90a in any order takes tiles of as many heads alternately as run at once",
          "[cuda]") {
  struct Row {
    int64_t batch, q_heads, kv_heads, q_len, kv_len;
    int32_t together;
  };
  const Row row = GENERATE(values<Row>({{4, 16, 16, 4096, 4096, 4},  // 32 tiles on 132 multiprocessors
                                        {4, 16, 16, 512, 4096, 4},
                                        {2, 32, 8, 8192, 8192, 2},       // 64
                                        {1, 16, 16, 16'384, 16'384, 1},  // 128
                                        {1, 4, 4, 32'768, 32'768, 1},    // 256
                                        {4, 6, 2, 2048, 2048, 8}}));     // 16
  INFO(row.q_len << " by " << row.kv_len);
  const Sizes sizes{row.batch, row.q_heads, row.kv_heads, row.q_len, row.kv_len, 128, 128};
  Problem p = backward_problem(forward_problem(sizes, DataType::kBf16), kAllOfQkv);
  p.band = GENERATE(Band{}, Band::causal());
  CHECK(recipe_of(p).steps[1].heads_together == row.together);
}

TEST_CASE("a backward on sm_90a in turn has about half as many tiles of a head at once as a tile has steps",
          "[cuda]") {
  struct Row {
    int64_t q_heads, kv_heads, q_len, dim;
    int32_t together;
  };
  const Row row = GENERATE(values<Row>({{16, 16, 4096, 128, 4},  // 64 steps: 33 of 132 multiprocessors
                                        {16, 16, 4096, 64, 8},   // 32 steps of 128 rows
                                        {16, 4, 1024, 128, 4},   // as 4,096
                                        {16, 16, 512, 128, 32},  // 8
                                        {16, 16, 64, 128, 64},   // of all heads
                                        {16, 16, 32'768, 64, 1}}));
  INFO(row.q_len << " rows, dim " << row.dim);
  const Sizes sizes{4, row.q_heads, row.kv_heads, row.q_len, 4096, row.dim, row.dim};
  Problem p = backward_problem(forward_problem(sizes, DataType::kBf16), kAllOfQkv);
  p.deterministic = true;
  CHECK(recipe_of(p).steps[1].heads_together == row.together);
  p.band = Band::causal();
  CHECK(recipe_of(p).steps[1].heads_together == 1);
}

TEST_CASE("sm_90a has kernels for bent scores, for any scale and for scores that read a bias or a mask",
          "[cuda]") {
  struct Row {
    const char* why;
    void (*change)(Problem&);
    bool extras, reads;
  };
  const Row row = GENERATE(values<Row>({
      {"none", [](Problem&) {}, false, false},
      {"sink", [](Problem& p) { add_head_vector(p, Role::kSink); }, false, false},
      {"softcap", [](Problem& p) { p.softcap = 30.0; }, true, false},
      {"slopes", [](Problem& p) { add_head_vector(p, Role::kAlibiSlopes); }, true, false},
      {"negative scale", [](Problem& p) { p.scale = -0.5; }, true, false},
      {"no scale", [](Problem& p) { p.scale = 0.0; }, true, false},
      {"a scale below every float32", [](Problem& p) { p.scale = 1e-50; }, true, false},
      {"mask", add_mask, true, true},
      {"bias", [](Problem& p) { add_bias(p, DataType::kF32); }, true, true},
      {"dropout", [](Problem& p) { p.dropout_p = 0.1; }, true, true},
      {"mask and softcap",
       [](Problem& p) {
         add_mask(p);
         p.softcap = 30.0;
       },
       true, true},
  }));
  INFO(row.why);
  const Problem forward = with(forward_problem(kPrefill, DataType::kBf16), row.change);
  const Problem p = backward_problem(forward, kAllOfQkv);
  for (const Problem& pass : {forward, p}) CHECK(why_not_hopper(pass, kH200).empty());
  CHECK(recipe_of(forward).steps[0].kernel ==
        InstanceKey{Family::kHopperForward, p.io, 128, row.extras, row.reads});
  CHECK(recipe_of(p).steps[1].kernel ==
        InstanceKey{Family::kHopperBackward, p.io, 128, row.extras, row.reads});
  if (row.reads) return;
  const int dim = GENERATE(192, 256);
  const Problem wide = backward_problem(
      with(forward_problem({16, 8, 2, 512, 512, dim, 128}, DataType::kBf16), row.change), kAllOfQkv);
  CHECK(recipe_of(wide).steps[1].kernel == InstanceKey{Family::kHopperDkdv, p.io, dim, row.extras});
  CHECK(recipe_of(wide).steps[2].kernel == InstanceKey{Family::kHopperDq, p.io, dim, row.extras});
}

TEST_CASE("a mask or softcap at head dim 64 does not widen the tiles of sm_90a", "[cuda]") {
  Problem p = forward_problem({16, 8, 2, 512, 512, 64, 64}, DataType::kF16);
  add_mask(p);
  CHECK(recipe_of(p).steps[0].kernel == InstanceKey{Family::kHopperForward, p.io, 64, true, true});
  const Recipe masked = recipe_of(backward_problem(p, kAllOfQkv));
  CHECK(masked.steps[1].kernel == InstanceKey{Family::kHopperBackward, p.io, 64, true, true});
  CHECK(masked.dq_columns == 64);
  p[Role::kMask].present = false, p.softcap = 30.0;
  CHECK(recipe_of(backward_problem(p, kAllOfQkv)).steps[1].kernel ==
        InstanceKey{Family::kHopperBackward, p.io, 64, true});
}

TEST_CASE("backward on sm_90a leaves to others what it does not take", "[cuda]") {
  Problem forward = forward_problem(kPrefill, DataType::kF16);
  CHECK(why_not_hopper(backward_problem(forward, kAllOfQkv), kH200).empty());
  CHECK(why_not_hopper(backward_problem(forward, {Role::kDk, Role::kDv}), kH200) ==
        "not all of dq, dk and dv are asked for");
  add_head_vector(forward, Role::kAlibiSlopes);
  CHECK(why_not_hopper(backward_problem(forward, {Role::kDq, Role::kDk, Role::kDv, Role::kDalibiSlopes}),
                       kH200) == "its slopes have a gradient");
  forward.band = {Align::kTopLeft, -3, 2};
  CHECK(why_not_hopper(backward_problem(forward, kAllOfQkv), kH200) == "its band keeps no key");
}

TEST_CASE("a backward on sm_90a adds dbias up itself unless that sums over rows or keys", "[cuda]") {
  using enum Family;
  struct Row {
    int64_t rows, keys;
    Family family;
  };
  const Row row =
      GENERATE(values<Row>({{512, 512, kHopperDbias}, {1, 512, kGeneralDbias}, {512, 1, kGeneralDbias}}));
  Problem p = forward_problem(kPrefill, DataType::kBf16);
  add_matrix(p, Role::kBias, DataType::kBf16, {1, p.q_heads, row.rows, row.keys});
  p = backward_problem(p, {Role::kDq, Role::kDk, Role::kDv, Role::kDbias});
  CHECK(families(recipe_of(p)) == std::vector{kDeltaRows, kHopperBackward, kStoreDq, row.family});
  CHECK(recipe_of(p, kA100).steps.back().kernel.family == kGeneralDbias);
}

TEST_CASE("backward of wide heads on sm_90a is a launch for dq and one for dk and dv, of those asked for",
          "[cuda]") {
  using enum Family;
  struct Row {
    std::vector<Role> gradients;
    std::vector<Family> families;
  };
  // dq last: its blocks may start beside the last ones of the other launch.
  const Row row = GENERATE(values<Row>({{kAllOfQkv, {kDeltaRows, kHopperDkdv, kHopperDq}},
                                        {{Role::kDq}, {kDeltaRows, kHopperDq}},
                                        {{Role::kDv}, {kDeltaRows, kHopperDkdv}},
                                        {{Role::kDq, Role::kDk}, {kDeltaRows, kHopperDkdv, kHopperDq}}}));
  const int64_t qk_dim = GENERATE(192, 256);
  Problem p =
      backward_problem(forward_problem({16, 8, 2, 512, 384, qk_dim, 128}, DataType::kBf16), row.gradients);
  p.band = Band::causal();
  const Recipe recipe = recipe_of(p);
  CHECK(families(recipe) == row.families);
  CHECK(recipe.multiprocessors == 132);
  CHECK(recipe.dq_columns == 0);  // nothing is added up in memory: it is deterministic
  for (const Step& step : recipe.steps) {
    if (step.kernel.family == kDeltaRows) continue;
    CHECK(step.kernel.size == qk_dim);
    CHECK(step.grid == (step.kernel.family == kHopperDq ? Grid::kMultiprocessors : Grid::kKvMultiprocessors));
    CHECK(step.row_tiles == (step.kernel.family == kHopperDq ? 4 : 6));
    CHECK(step.from_last);  // the tiles with the most products come first
    CHECK(find_instance(step.kernel)->awaits_previous == (step.kernel.family == kHopperDq));
  }
}

TEST_CASE("a wide backward on sm_90a takes kv heads together behind a causal band alone", "[cuda]") {
  // 32 kv heads, each with 4 MiB of keys and values and two heads of 4 MiB of queries and their gradients.
  Problem p = backward_problem(forward_problem({4, 16, 8, 4096, 4096, 256, 256}, DataType::kBf16), kAllOfQkv);
  CHECK(recipe_of(p).steps[1].heads_together == 1);
  CHECK(recipe_of(p).steps[2].heads_together == 2);  // of a group
  p.band = Band::causal();                           // two thirds of 60 MiB hold 5 and 10
  CHECK(recipe_of(p).steps[1].heads_together == 4);
  CHECK(recipe_of(p).steps[2].heads_together == 8 * 2);
  p.batch = 5, p.kv_heads = 4;
  CHECK(recipe_of(p).steps[1].heads_together == 2);
  CHECK(recipe_of(p).steps[2].heads_together == 7 * 4);  // two of 7 and one of 6, not of 8, 8 and 4
}

TEST_CASE("half of the workspace of a backward on sm_90a is enough for two chunks", "[cuda]") {
  struct Row {
    int64_t batch, q_heads, kv_heads, len;
  };
  const Row row = GENERATE(values<Row>({{4, 16, 16, 4096}, {2, 32, 8, 8192}}));
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kBf16, bshd({row.batch, row.q_heads, row.len, 128}));
  node.k = graph.tensor("k", DataType::kBf16, bshd({row.batch, row.kv_heads, row.len, 128}));
  node.v = graph.tensor("v", DataType::kBf16, bshd({row.batch, row.kv_heads, row.len, 128}));
  graph.sdpa_forward(node);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  const Graph backward = training_pair(graph, wanted).value().backward;
  Context context;
  const int64_t whole = context.plan(backward, kH200)->workspace_bytes();
  // delta, log-sum-exp and sums of dq in float32 of each row
  CHECK(whole == row.batch * row.q_heads * row.len * (2 + 128) * 4);
  PlanOptions options;
  options.max_workspace_bytes = whole / 2;
  const auto plan = context.plan(backward, kH200, options);
  REQUIRE(plan.status().message() == "");
  CHECK(plan->workspace_bytes() == whole / 2);
  CHECK(plan->explain().find("2 slices of at most " + std::to_string(row.batch / 2)) != std::string::npos);
}
