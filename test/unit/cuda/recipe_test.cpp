#include "engine/cuda/recipe.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "attngraph/context.hpp"
#include "attngraph/training.hpp"
#include "engine/cuda/engine.hpp"
#include "engine/cuda/splits.hpp"
#include "support/catch.hpp"
#include "unit/cuda/recipes.hpp"

using namespace attngraph;
using namespace attngraph::cuda;
using namespace attngraph::test;

namespace {

int64_t workspace_bytes(const Problem& p, const SliceShape& shape) {
  WorkspaceLayout layout;
  REQUIRE(make_cuda_engine()->plan(p, kH200, shape, layout).ok());
  REQUIRE(layout.place().ok());
  return layout.bytes();
}

}  // namespace

TEST_CASE("rows that 16-byte copies move run on tensor cores, all others on the general kernels", "[cuda]") {
  struct Row {
    const char* why;
    void (*change)(Problem&);
    const char* reason;  ///< a part of it; empty: tensor cores
  };
  const Row row = GENERATE(values<Row>({
      {"as it is", [](Problem&) {}, ""},
      {"float32", [](Problem& p) { p.io = DataType::kF32; }, "f32"},
      {"odd head dim", [](Problem& p) { p.qk_dim = 71; }, "no multiples of 8"},
      {"odd head stride", [](Problem& p) { p[Role::kK].stride[1] = 516; },
       "k has a stride or multiplier of 516"},
      {"columns apart", [](Problem& p) { p[Role::kO].stride[3] = 2; }, "o has dim stride 2"},
      {"loose pointer", [](Problem& p) { p[Role::kV].alignment = 8; }, "v is aligned to 8 bytes"},
      {"broadcast heads", [](Problem& p) { p[Role::kV].stride[1] = 0; }, ""},
  }));
  INFO(row.why);
  const Problem p = with(forward_problem(kPrefill, DataType::kBf16), row.change);
  const std::string why = why_not_tensor_cores(p, kA100);
  if (*row.reason == '\0') {
    CHECK(why == "");
    CHECK(families(recipe_of(p, kA100)) == std::vector{Family::kTensorForward});
  } else {
    CHECK(why.find(row.reason) != std::string::npos);
    CHECK(families(recipe_of(p)) == std::vector{Family::kGeneralForward});
  }
}

TEST_CASE("float32 rows of any layout run on tiles, what those do not take on the general kernels",
          "[cuda]") {
  struct Row {
    const char* why;
    Pass pass;
    void (*change)(Problem&);
    const char* reason;  ///< empty: tiles
  };
  const Row row = GENERATE(values<Row>({
      {"as it is", Pass::kForward, [](Problem&) {}, ""},
      {"odd head dim", Pass::kForward, [](Problem& p) { p.v_dim = 71; }, ""},
      {"columns apart", Pass::kForward, [](Problem& p) { p[Role::kK].stride[3] = 2; }, ""},
      {"loose pointer", Pass::kForward, [](Problem& p) { p[Role::kV].alignment = 4; }, ""},
      {"o of another type", Pass::kForward, [](Problem& p) { p[Role::kO].dtype = DataType::kF16; }, ""},
      {"a softcap", Pass::kForward, [](Problem& p) { p.softcap = 5; }, ""},
      {"q of two bytes", Pass::kForward, [](Problem& p) { p.io = DataType::kF16; }, "q's type is f16"},
      {"v of another type", Pass::kForward, [](Problem& p) { p[Role::kV].dtype = DataType::kBf16; },
       "v is not of q's type"},
      {"no dim", Pass::kForward, [](Problem& p) { p.qk_dim = 0; }, "a head dim is 0"},
      {"wide heads", Pass::kForward, [](Problem& p) { p.qk_dim = 136; }, "head dims 136 and 128 exceed 128"},
      {"as it is", Pass::kBackward, [](Problem&) {}, ""},
      {"dq of another type", Pass::kBackward, [](Problem& p) { p[Role::kDq].dtype = DataType::kF16; }, ""},
      {"do of another type", Pass::kBackward, [](Problem& p) { p[Role::kDo].dtype = DataType::kBf16; },
       "do is not of q's type"},
      {"a softcap", Pass::kBackward, [](Problem& p) { p.softcap = 5; },
       "its scores have more than a scale and a band"},
      {"dk and dv alone", Pass::kBackward, [](Problem& p) { p[Role::kDq].present = false; },
       "not all of dq, dk and dv are asked for"},
      {"deterministic", Pass::kBackward, [](Problem& p) { p.deterministic = true; },
       "it must be deterministic, and dq is added up in any order"},
  }));
  INFO(row.why);
  const bool forward = row.pass == Pass::kForward, on_tiles = *row.reason == '\0';
  Problem p = forward_problem(kPrefill, DataType::kF32);
  if (!forward) p = backward_problem(p, kAllOfQkv);
  row.change(p);
  CHECK(why_not_float(p, kA100) == row.reason);
  using enum Family;
  const std::vector<Family> launched = families(recipe_of(p));
  if (forward) {
    CHECK(launched == std::vector{on_tiles ? kFloatForward : kGeneralForward});
  } else {
    CHECK((std::count(launched.begin(), launched.end(), kFloatBackward) == 1) == on_tiles);
    CHECK((std::count(launched.begin(), launched.end(), kStoreDq) == 1) == on_tiles);
  }
}

TEST_CASE("tiles that exceed a block's shared memory are not taken", "[cuda]") {
  const Target small = Target::cuda(75, 40, 65'536, 4'194'304);
  CHECK(why_not_float(forward_problem(kPrefill, DataType::kF32), small) ==
        "its tiles take 118784 bytes of shared memory");
}

TEST_CASE("keys are cut only where the merge can move four columns at once", "[cuda]") {
  Problem p = forward_problem({1, 4, 1, 1, 8192, 64, 64}, DataType::kF32);
  CHECK(recipe_of(p).splits > 1);
  p.v_dim = 63;
  CHECK(recipe_of(p).splits == 1);
}

TEST_CASE("a feature in the scores selects the kernels that know it", "[cuda]") {
  struct Row {
    const char* why;
    void (*change)(Problem&);
    bool extras;
  };
  const Row row = GENERATE(values<Row>({
      {"none", [](Problem&) {}, false},
      {"causal window",
       [](Problem& p) {
         p.band = {Align::kBottomRight, 64, 0};
       },
       false},
      {"softcap", [](Problem& p) { p.softcap = 30.0; }, true},
      {"dropout", [](Problem& p) { p.dropout_p = 0.1; }, true},
      {"bias",
       [](Problem& p) {
         add_matrix(p, Role::kBias, DataType::kF32, {1, 8, 512, 512});
       },
       true},
      {"mask",
       [](Problem& p) {
         add_matrix(p, Role::kMask, DataType::kBool, {16, 1, 1, 512});
       },
       true},
      {"negative scale", [](Problem& p) { p.scale = -1.0; }, true},
      {"a scale that is 0 as a float32", [](Problem& p) { p.scale = 1e-50; }, true},
      {"sink", [](Problem& p) { add_head_vector(p, Role::kSink); }, false},
  }));
  INFO(row.why);
  const Problem p = with(forward_problem(kPrefill, DataType::kF16), row.change);
  CHECK(recipe_of(p).steps[0].kernel.extras == row.extras);
}

TEST_CASE("splits of the keys fill the device and leave no split without keys", "[cuda]") {
  CHECK(key_splits(/*blocks=*/512, /*slots=*/264, /*key_tiles=*/128) == 1);  // two waves are full enough
  CHECK(key_splits(8, 264, 2048) == 32);                                     // 256 of 264 blocks
  CHECK(key_splits(8, 264, 3) == 3);
  CHECK(key_splits(0, 264, 64) == 1);
  CHECK(key_splits(8, 264, 0) == 1);
  Problem decode = forward_problem({1, 32, 8, 1, 131072, 128, 128}, DataType::kBf16);
  decode.softcap = 30.0;
  const Recipe recipe = recipe_of(decode);
  CHECK(families(recipe) == std::vector{Family::kTensorDecode, Family::kMergeSplits});
  CHECK(recipe.splits == 32);
  decode.batch = 64;
  CHECK(families(recipe_of(decode)) == std::vector{Family::kTensorDecode});
}

TEST_CASE("backward launches only what the wanted gradients need", "[cuda]") {
  const auto launched = [](std::vector<Role> gradients) {
    Problem p = forward_problem(kPrefill, DataType::kBf16);
    add_matrix(p, Role::kBias, DataType::kF32, {1, 8, 512, 512});
    add_head_vector(p, Role::kSink);
    return families(recipe_of(backward_problem(p, gradients), kA100));
  };
  using enum Family;
  CHECK(launched(kAllOfQkv) == std::vector{kDeltaRows, kTensorDq, kTensorDkdv});
  CHECK(launched({Role::kDv}) == std::vector{kDeltaRows, kTensorDkdv});
  CHECK(launched({Role::kDq}) == std::vector{kDeltaRows, kTensorDq});
  CHECK(launched({Role::kDbias}) == std::vector{kDeltaRows, kGeneralDbias});
  CHECK(launched({Role::kDsink}) == std::vector{kDeltaRows, kHeadSums, kStoreSums});
}

TEST_CASE("every launch has a compiled instance and fits the shared memory of the target", "[cuda]") {
  const DataType io = GENERATE(DataType::kF32, DataType::kF16, DataType::kBf16);
  const auto [qk_dim, v_dim] = GENERATE(values<std::pair<int64_t, int64_t>>(
      {{8, 8}, {64, 64}, {72, 72}, {128, 128}, {136, 136}, {192, 128}, {200, 200}, {64, 256}, {256, 256}}));
  const bool extras = GENERATE(false, true);
  const int64_t q_len = GENERATE(1, 300);
  Problem p = forward_problem({2, 8, 2, q_len, 300, qk_dim, v_dim}, io);
  if (extras) p.softcap = 1.0;
  const Problem backward = backward_problem(p, kAllOfQkv);
  const Target one_multiprocessor = Target::cuda(90, 1, kH200.shared_memory_bytes, kH200.l2_bytes);
  for (const Target& target : {kH200, one_multiprocessor, kA100, Target::cuda(86, 84, 101'376, 6'291'456)})
    for (const Problem& pass : {p, backward})
      for (const Step& step : make_recipe(pass, target, {2, 2}).steps) {
        INFO(pass << " on sm_" << target.sm_version << ": " << name_of(step.kernel.family));
        CHECK(find_instance(step.kernel) != nullptr);
        CHECK(step.shared_bytes <= target.shared_memory_bytes);
      }
}

TEST_CASE("the instance table names each kernel once", "[cuda]") {
  std::set<const void*> functions;
  for (const KernelInstance& row : instances()) {
    CHECK(row.threads % 32 == 0);
    CHECK(find_instance(row.key) == &row);
    functions.insert(row.function);
  }
  CHECK(functions.size() == instances().size());
}

TEST_CASE("backward takes one pass, or two that are bit-equal from run to run", "[cuda]") {
  struct Row {
    const char* why;
    void (*change)(Problem&);
    bool one_pass;
  };
  const Row row = GENERATE(values<Row>({
      {"as it is", [](Problem&) {}, true},
      {"deterministic", [](Problem& p) { p.deterministic = true; }, false},
      {"a feature in the scores", [](Problem& p) { p.softcap = 30.0; }, false},
      {"wide heads", [](Problem& p) { p.qk_dim = 136; }, false},
      {"a window",
       [](Problem& p) {
         p.band = {Align::kBottomRight, 64, 0};
       },
       true},
  }));
  INFO(row.why);
  const Problem p = backward_problem(with(forward_problem(kPrefill, DataType::kBf16), row.change), kAllOfQkv);
  using enum Family;
  const std::vector<Family> launched = families(recipe_of(p, kA100));
  if (row.one_pass)
    CHECK(launched == std::vector{kDeltaRows, kTensorBackward, kStoreDq});
  else
    CHECK(std::find(launched.begin(), launched.end(), kTensorDq) != launched.end());
  WorkspaceLayout layout;
  const auto plan = make_cuda_engine()->plan(p, kA100, {p.batch, p.kv_heads}, layout);
  REQUIRE(plan.ok());
  CHECK((*plan)->deterministic() == !row.one_pass);
}

TEST_CASE("backward workspace is linear in tokens and independent of the longest sequence", "[cuda]") {
  Problem grouped =
      backward_problem(forward_problem({2, 32, 8, 8192, 8192, 128, 128}, DataType::kBf16), kAllOfQkv);
  CHECK(workspace_bytes(grouped, {2, 8}) == (2 + 128) * 2 * 32 * 8192 * 4);
  grouped.deterministic = true;  // a counter for each of two blocks of 64 rows, and one a sequence
  CHECK(workspace_bytes(grouped, {2, 8}) == ((2 + 128) * 2 * 8192 + 2 * (2 * 8192 / 64 + 1 + 2)) * 32 * 4);
  CHECK(workspace_bytes(grouped, {1, 8}) == ((2 + 128) * 8192 + 2 * (8192 / 64 + 1 + 1)) * 32 * 4);
  Problem packed = forward_problem({64, 8, 8, 8192, 8192, 128, 128}, DataType::kBf16);
  make_ragged(packed, Side::kQ, 16384);
  packed.deterministic = true;
  CHECK(workspace_bytes(backward_problem(packed, kAllOfQkv), {64, 8}) ==
        ((2 + 128) * 16384 + 2 * (16384 / 64 + 1 + 64)) * 8 * 4);
}

TEST_CASE("packed rows lie where dq has its rows, without dq where a forward wrote its own", "[cuda]") {
  Problem forward = forward_problem({4, 8, 8, 512, 512, 64, 64}, DataType::kBf16);
  make_ragged(forward, Side::kQ, 700);
  const auto place = [](const Problem& p) {
    const Params params = recipe_of(p).params;
    return std::pair(params.slot_role, params.packed_slots);
  };
  const auto by = [](Role role, int64_t slots) { return std::pair(static_cast<int32_t>(role), slots); };
  Problem p = backward_problem(forward, kAllOfQkv);
  CHECK(place(p) == by(Role::kDq, 700));
  p[Role::kDq].ragged = false;  // stats, which may come from anywhere, do not decide
  CHECK(place(p) == std::pair(-1, int64_t{4 * 512}));
  CHECK(place(backward_problem(forward, {Role::kDk})) == by(Role::kStats, 700));
  p = backward_problem(forward, {Role::kDk});
  p[Role::kStats].ragged = false;
  CHECK(place(p) == by(Role::kO, 700));
}

TEST_CASE("sums over sequences and heads keep their place through all slices", "[cuda]") {
  Problem p = forward_problem({2, 8, 2, 64, 64, 64, 64}, DataType::kBf16);
  add_matrix(p, Role::kBias, DataType::kF32, {1, 1, 64, 64});
  p = backward_problem(p, {Role::kDbias});
  CHECK_FALSE(make_recipe(p, kH200, {2, 2}).keeps_dbias);
  CHECK(make_recipe(p, kH200, {1, 2}).keeps_dbias);
  CHECK(make_recipe(p, kH200, {1, 1}).keeps_dbias);
}

TEST_CASE("what the cuda engine refuses it names with value and limit", "[cuda]") {
  const auto engine = make_cuda_engine();
  const auto first = [&](const Problem& p, const Target& target) {
    const auto reasons = engine->refusals(p, target);
    return reasons.empty() ? std::string() : describe(reasons.front());
  };
  const Problem p = forward_problem(kPrefill, DataType::kBf16);
  CHECK(first(p, kH200) == "");
  CHECK(first(p, Target::cpu(1)) == "target is host; needs a cuda device");
  CHECK(first(p, Target::cuda(75, 40, 65'536, 4'194'304)) == "target is sm_75; needs sm_80 or newer");
  Target empty = kH200;
  empty.sm_count = 0;
  CHECK(first(p, empty) == "target is 0 SMs; needs at least 1");
  Problem wide = p;
  wide.qk_dim = 264;
  CHECK(first(wide, kH200) == "qk_dim is 264; needs at most 256");
  wide = p;
  wide.v_dim = 257;
  CHECK(first(wide, kH200) == "v_dim is 257; needs at most 256");
  Problem long_rows = p;
  long_rows.q_len = (int64_t{1} << 28) + 1;
  CHECK(first(long_rows, kH200) == "q_len is 268435457; needs at most 268435456");
  for (const auto& [container, table, words] : {std::tuple{Role::kK, Role::kPageTableK, "page size of k"},
                                                {Role::kV, Role::kPageTableV, "page size of v"}}) {
    Problem paged = p;
    paged[table].present = true;
    paged[container].extent = {1, p.kv_heads, int64_t{1} << 32, 64};
    CHECK(first(paged, kH200) == words + std::string(" is 4294967296; needs at most 1073741824"));
  }
}

TEST_CASE("without query heads a recipe only writes gradients of keys and of a bias", "[cuda]") {
  Problem p = forward_problem({2, 0, 4, 1024, 1024, 128, 128}, DataType::kBf16);
  add_head_vector(p, Role::kSink);
  const auto blocks = [](const Recipe& recipe) {
    std::vector<Family> found;
    for (const Step& step : recipe.steps)
      if (step.row_tiles > 0) found.push_back(step.kernel.family);
    return found;
  };
  CHECK(blocks(recipe_of(p)).empty());
  Problem backward = backward_problem(p, {Role::kDq, Role::kDk, Role::kDv});
  backward[Role::kDsink] = backward[Role::kSink];
  CHECK(blocks(recipe_of(backward)) == std::vector{Family::kGeneralDkdv});
  add_matrix(backward, Role::kBias, DataType::kF32, {1, 1, 1024, 1024});
  backward[Role::kDbias] = backward[Role::kBias];
  CHECK(blocks(recipe_of(backward)) == std::vector{Family::kGeneralDkdv, Family::kGeneralDbias});
}

TEST_CASE("a merge of partial results is one launch of any head dim", "[cuda]") {
  Problem p;
  p.pass = Pass::kMerge;
  p.batch = 2, p.q_heads = p.kv_heads = 4, p.q_len = 100, p.v_dim = 512;
  CHECK(make_cuda_engine()->refusals(p, kH200).empty());
  const Recipe recipe = recipe_of(p);
  CHECK(families(recipe) == std::vector{Family::kMergePartials});
  CHECK(recipe.steps[0].row_tiles == 13);  // of eight rows
}

TEST_CASE("a divisor divides as the operator does", "[cuda]") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 20'000; ++trial) {
    const uint32_t n = static_cast<uint32_t>(random()) >> 1,
                   d = std::max(1u, static_cast<uint32_t>(random()) >> (1 + random() % 31));
    const Divisor by(d);
    REQUIRE(by.quotient(n) == n / d);
    REQUIRE(by.remainder(n) == n % d);
    REQUIRE(by.quotient(d - 1) == 0);
    REQUIRE(by.quotient(d) == 1);
  }
}

TEST_CASE("a transposed band holds the same pairs", "[cuda]") {
  std::mt19937 random(2);
  for (int trial = 0; trial < 2'000; ++trial) {
    const int64_t q_len = random() % 9, kv_len = random() % 9;
    Band band{random() % 2 == 0 ? Align::kTopLeft : Align::kBottomRight, {}, {}};
    if (random() % 2 == 0) band.left = static_cast<int64_t>(random() % 9) - 4;
    if (random() % 2 == 0) band.right = static_cast<int64_t>(random() % 9) - 4;
    const auto holds = [](const KeyRange& range, int64_t i) { return range.begin <= i && i < range.end; };
    for (int64_t i = 0; i < q_len; ++i)
      for (int64_t j = 0; j < kv_len; ++j)
        REQUIRE(holds(band.keys(i, q_len, kv_len), j) == holds(band.transposed().keys(j, kv_len, q_len), i));
  }
}

TEST_CASE("without a device the engine refuses a plan for this machine and says why", "[cuda]") {
  Context context;
  const Result<Target> target = context.target_of("cuda");
  if (target.ok()) {
    CHECK(target->sm_version >= 80);
    return;
  }
  Graph graph;
  SdpaForward node;
  node.q = node.k = node.v = graph.tensor("qkv", DataType::kF16, bshd({1, 2, 16, 64}));
  graph.sdpa_forward(node);
  PlanOptions options;
  options.engine = "cuda";
  for (const Status& status : {target.status(), context.plan(graph, options).status()}) {
    CHECK(status.code() == Code::kUnsupported);
    CHECK(status.message().rfind("engine cuda: no CUDA device: ", 0) == 0);
    CHECK(status.message().find("; needs a driver and a device of sm_80 or newer") != std::string::npos);
  }
  CHECK(context.plan(graph, Target::h200(), options).ok());
}

TEST_CASE("a plan for a device says which kernels it launches, on any machine", "[cuda]") {
  struct Row {
    Target target;
    const char* launches;
  };
  const auto [target, launches] = GENERATE(values<Row>({
      {Target::a100(), "engine cuda: delta, tensor dq dk dv 128, store dq"},
      {Target::h100(), "engine cuda: delta, hopper backward 128, store dq"},
      {Target::h200(), "engine cuda: delta, hopper backward 128, store dq"},
  }));
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kBf16, bshd({8, 8, 2048, 128}));
  node.k = graph.tensor("k", DataType::kBf16, bshd({8, 2, 2048, 128}));
  node.v = graph.tensor("v", DataType::kBf16, bshd({8, 2, 2048, 128}));
  graph.sdpa_forward(node);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  Context context;
  const auto plan = context.plan(training_pair(graph, wanted).value().backward, target);
  REQUIRE(plan.status().message() == "");
  CHECK(plan->explain().find(launches) != std::string::npos);
  CHECK(plan->workspace_bytes() == (2 + 128) * 8 * 8 * 2048 * 4);  // a row's delta, log-sum-exp and dq sums
}
