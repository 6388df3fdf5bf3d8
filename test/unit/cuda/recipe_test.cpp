#include "engine/cuda/recipe.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "attngraph/context.hpp"
#include "attngraph/training.hpp"
#include "engine/cuda/engine.hpp"
#include "engine/cuda/families.hpp"
#include "engine/cuda/splits.hpp"
#include "support/catch.hpp"
#include "support/problems.hpp"

using namespace attngraph;
using namespace attngraph::cuda;
using namespace attngraph::test;

namespace {

constexpr Target kH200 = Target::h200(), kA100 = Target::a100();

Recipe recipe_of(const Problem& p, const Target& target = kH200) {
  return make_recipe(p, target, {p.batch, p.kv_heads});
}

std::vector<Family> families(const Recipe& recipe) {
  std::vector<Family> all;
  for (const Step& step : recipe.steps) all.push_back(step.kernel.family);
  return all;
}

Problem with(Problem p, void (*change)(Problem&)) {
  change(p);
  return p;
}

const Sizes kPrefill{16, 8, 2, 512, 512, 128, 128};  // enough tiles for a device without splits
const std::vector<Role> kAllOfQkv = {Role::kDq, Role::kDk, Role::kDv};

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

TEST_CASE("what the sm_90a kernels do not take, the tensor kernels of sm_80 do", "[cuda]") {
  struct Row {
    const char* why;
    void (*change)(Problem&);
    const char* reason;  ///< a part of it; empty: the sm_90a kernels
  };
  const Row row = GENERATE(values<Row>({
      {"as it is", [](Problem&) {}, ""},
      {"window and sink",
       [](Problem& p) {
         p.band = {Align::kBottomRight, 64, 0};
         add_head_vector(p, Role::kSink);
       },
       ""},
      {"offsets in tokens", [](Problem& p) { make_ragged(p, Side::kKv, 4096); }, ""},
      {"offsets in elements",
       [](Problem& p) {
         make_ragged(p, Side::kKv, 4096);
         p[Role::kK].multiplier = 8;
       },
       "k has offsets in 8 elements"},
      {"slots beyond 32 bits", [](Problem& p) { make_ragged(p, Side::kKv, int64_t{1} << 31); },
       "k has 2147483648 slots"},
      {"broadcast heads", [](Problem& p) { p[Role::kV].stride[1] = 0; }, "v has a stride of 0"},
      {"softcap and a scale that turns the order",
       [](Problem& p) {
         p.softcap = 30.0;
         p.scale = -0.1;
       },
       ""},
      {"dropout", [](Problem& p) { p.dropout_p = 0.1; }, "a bias, a mask, pages or dropout"},
      {"wide heads",
       [](Problem& p) {
         p = forward_problem({16, 8, 2, 512, 512, 136, 136}, p.io);
       },
       ""},
      {"few queries",
       [](Problem& p) {
         p = forward_problem({64, 8, 2, 63, 512, 128, 128}, p.io);
       },
       "do not fill a tile"},
      {"few tiles",
       [](Problem& p) {
         p = forward_problem({1, 8, 2, 512, 512, 128, 128}, p.io);
       },
       "leave most multiprocessors idle"},
  }));
  INFO(row.why);
  const Problem p = with(forward_problem(kPrefill, DataType::kBf16), row.change);
  const std::string why = why_not_hopper(p, kH200);
  INFO(why);
  CHECK((*row.reason == '\0' ? why.empty() : why.find(row.reason) != std::string::npos));
  CHECK((recipe_of(p).steps[0].kernel.family == Family::kHopperForward) == why.empty());
  CHECK(why_not_hopper(p, kA100) == "target is sm_80");
}

TEST_CASE("backward on sm_90a adds dq in any order, deterministic in turn from the last keys on", "[cuda]") {
  using enum Family;
  Problem p = backward_problem(forward_problem(kPrefill, DataType::kF16), kAllOfQkv);
  CHECK(families(recipe_of(p)) == std::vector{kDeltaRows, kHopperBackward, kStoreDq});
  CHECK_FALSE(recipe_of(p).dq_in_turn);
  CHECK_FALSE(recipe_of(p).steps[1].from_last);
  p.deterministic = true;
  CHECK(families(recipe_of(p)) == std::vector{kDeltaRows, kHopperBackward, kStoreDq});
  CHECK(recipe_of(p).dq_in_turn);
  CHECK(recipe_of(p).steps[1].from_last);
  p.deterministic = false, p.band = Band::causal();
  CHECK(recipe_of(p).dq_in_turn);  // of 512 keys: it is faster
  p = backward_problem(forward_problem({4, 16, 16, 4096, 4096, 128, 128}, DataType::kF16), kAllOfQkv);
  p.band = Band::causal();
  CHECK_FALSE(recipe_of(p).dq_in_turn);
}

TEST_CASE("backward on sm_90a has kernels for bent scores and for any scale", "[cuda]") {
  struct Row {
    const char* why;
    void (*change)(Problem&);
    bool extras;
  };
  const Row row = GENERATE(values<Row>({
      {"none", [](Problem&) {}, false},
      {"sink", [](Problem& p) { add_head_vector(p, Role::kSink); }, false},
      {"softcap", [](Problem& p) { p.softcap = 30.0; }, true},
      {"slopes", [](Problem& p) { add_head_vector(p, Role::kAlibiSlopes); }, true},
      {"negative scale", [](Problem& p) { p.scale = -0.5; }, true},
      {"no scale", [](Problem& p) { p.scale = 0.0; }, true},
      {"a scale below every float32", [](Problem& p) { p.scale = 1e-50; }, true},
  }));
  INFO(row.why);
  const Problem p = backward_problem(with(forward_problem(kPrefill, DataType::kBf16), row.change), kAllOfQkv);
  CHECK(why_not_hopper(p, kH200).empty());
  CHECK(recipe_of(p).steps[1].kernel == InstanceKey{Family::kHopperBackward, p.io, 128, row.extras});
}

TEST_CASE("backward on sm_90a leaves to others what it does not take", "[cuda]") {
  Problem p = backward_problem(forward_problem(kPrefill, DataType::kF16), kAllOfQkv);
  p.band = {Align::kTopLeft, -3, 2};
  CHECK(why_not_hopper(p, kH200) == "its band keeps no key");
  p = backward_problem(forward_problem(kPrefill, DataType::kF16), kAllOfQkv);
  p = forward_problem(kPrefill, DataType::kF16);
  add_head_vector(p, Role::kAlibiSlopes);
  p = backward_problem(p, {Role::kDq, Role::kDk, Role::kDv, Role::kDalibiSlopes});
  CHECK(why_not_hopper(p, kH200) == "its slopes have a gradient");
  for (const auto& [qk_dim, v_dim, words] : std::vector<std::tuple<int64_t, int64_t, const char*>>{
           {64, 64, "head dims 64 and 64 leave no registers for"},
           {192, 128, "head dims 192 and 128 leave no registers for"}}) {
    p = backward_problem(forward_problem({16, 8, 2, 512, 512, qk_dim, v_dim}, DataType::kF16), kAllOfQkv);
    CHECK(why_not_hopper(p, kH200).empty());
    p.softcap = 30.0;
    CHECK(why_not_hopper(p, kH200).rfind(words, 0) == 0);
  }
  p = backward_problem(forward_problem(kPrefill, DataType::kF16), {Role::kDk, Role::kDv});
  CHECK(why_not_hopper(p, kH200).find("not all of dq, dk and dv") != std::string::npos);
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
  CHECK(recipe.dq_columns == 0);  // nothing is added up in memory: it is deterministic
  for (const Step& step : recipe.steps) {
    if (step.kernel.family == kDeltaRows) continue;
    CHECK(step.kernel.size == qk_dim);
    CHECK(step.grid == (step.kernel.family == kHopperDq ? Grid::kQHeads : Grid::kKvHeads));
    CHECK(step.row_tiles == (step.kernel.family == kHopperDq ? 4 : 6));
    CHECK(step.from_last == (step.kernel.family == kHopperDq));  // rows that see the most keys first
    CHECK(find_instance(step.kernel)->awaits_previous == (step.kernel.family == kHopperDq));
  }
}

TEST_CASE("an sm_90a kernel's tiles are as wide as both head dims need", "[cuda]") {
  struct Row {
    int64_t qk_dim, v_dim;
    int tile;
  };
  const Row row = GENERATE(values<Row>(
      {{64, 64, 64}, {64, 72, 128}, {192, 128, 192}, {136, 8, 192}, {192, 136, 256}, {200, 64, 256}}));
  const Problem p = forward_problem({16, 8, 2, 512, 512, row.qk_dim, row.v_dim}, DataType::kBf16);
  INFO(p);
  CHECK(recipe_of(p).steps[0].kernel == InstanceKey{Family::kHopperForward, p.io, row.tile, false, 128});
  CHECK(recipe_of(backward_problem(p, kAllOfQkv)).steps[1].kernel.size == row.tile);
}

TEST_CASE("at head dim 64 taller tiles serve a forward on sm_90a whose rows fill them and see all keys",
          "[cuda]") {
  struct Row {
    int64_t q_len, dim;
    bool causal;
    int rows;
  };
  const Row row = GENERATE(values<Row>({{4096, 64, false, 192},
                                        {4096, 64, true, 128},
                                        {512, 64, false, 128},  // 576 rows would be computed
                                        {576, 64, false, 192},
                                        {4096, 128, false, 128}}));
  Problem p = forward_problem({16, 8, 2, row.q_len, 512, row.dim, row.dim}, DataType::kBf16);
  if (row.causal) p.band.right = 0;
  INFO(p);
  CHECK(recipe_of(p).steps[0].kernel.rows == row.rows);
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

TEST_CASE("decode on sm_90a cuts a head's keys among the blocks of a cluster, and more than that seldom",
          "[cuda]") {
  struct Row {
    const char* why;
    int64_t blocks, key_tiles;
    int32_t cluster, clusters;
  };
  const Row row = GENERATE(values<Row>({
      {"more heads than multiprocessors", 512, 128, 1, 1},
      {"a block for each, and keys for two", 128, 512, 2, 1},
      {"a block for each", 128, 255, 1, 1},
      {"half as many heads", 64, 64, 2, 1},
      {"few heads: half of the multiprocessors will do", 8, 2048, 8, 1},
      {"few heads, few keys", 8, 5, 4, 1},
      {"one head", 1, 2048, 8, 9},
      {"one head, few keys", 1, 8, 8, 1},
      {"no head", 0, 64, 1, 1},
      {"no key", 8, 0, 1, 1},
  }));
  INFO(row.why);
  const DecodeParts parts = decode_parts(row.blocks, 132, row.key_tiles);
  CHECK(parts.cluster == row.cluster);
  CHECK(parts.clusters == row.clusters);
}

TEST_CASE("few query rows with plain scores decode on sm_90a's own kernel", "[cuda]") {
  using enum Family;
  const Sizes sizes{1, 32, 8, 1, 4096, 128, 128};
  const Recipe recipe = recipe_of(forward_problem(sizes, DataType::kBf16));
  CHECK(families(recipe) == std::vector{kHopperDecode});
  CHECK(recipe.steps[0].splits == 8);
  CHECK(recipe.steps[0].cluster == 8);
  CHECK(recipe.splits == 1);
  CHECK(families(recipe_of(forward_problem({1, 16, 1, 1, 4096, 128, 128}, DataType::kF16))) ==
        std::vector{kHopperDecode, kMergeSplits});

  struct Row {
    const char* why;
    void (*change)(Problem&);
    const char* reason;  ///< a part of it; empty: the sm_90a kernel
  };
  const Row row = GENERATE(values<Row>({
      {"as it is", [](Problem&) {}, ""},
      {"window and sink",
       [](Problem& p) {
         p.band = {Align::kBottomRight, 64, 0};
         add_head_vector(p, Role::kSink);
       },
       ""},
      {"packed keys", [](Problem& p) { make_ragged(p, Side::kKv, 4096); }, ""},
      {"softcap", [](Problem& p) { p.softcap = 30.0; }, "more than a scale and a band"},
      {"many rows", [](Problem& p) { p.q_len = 5; }, "20 query rows of a group exceed 16"},
      {"wide heads",
       [](Problem& p) {
         p = forward_problem({1, 32, 8, 1, 4096, 136, 136}, p.io);
       },
       "exceed 128"},
      {"broadcast heads", [](Problem& p) { p[Role::kV].stride[1] = 0; }, "v has a stride of 0"},
      {"pages of 48 keys",
       [](Problem& p) {
         p[Role::kPageTableK].present = true;
         p[Role::kK].extent[2] = 48;
       },
       ""},
      {"pages of 20 keys",
       [](Problem& p) {
         p[Role::kPageTableV].present = true;
         p[Role::kV].extent[2] = 20;
       },
       "pages share 4 rows with a tile of 64"},
  }));
  INFO(row.why);
  const Problem p = with(forward_problem(sizes, DataType::kBf16), row.change);
  const std::string why = why_not_hopper_decode(p, kH200);
  INFO(why);
  CHECK((*row.reason == '\0' ? why.empty() : why.find(row.reason) != std::string::npos));
  CHECK(why_not_hopper_decode(p, kA100) == "target is sm_80");
}

TEST_CASE("backward launches only what the wanted gradients need", "[cuda]") {
  const auto launched = [](std::vector<Role> gradients) {
    Problem p = forward_problem(kPrefill, DataType::kBf16);
    add_matrix(p, Role::kBias, DataType::kF32, {1, 8, 512, 512});
    add_head_vector(p, Role::kSink);
    return families(recipe_of(backward_problem(p, gradients)));
  };
  using enum Family;
  CHECK(launched(kAllOfQkv) == std::vector{kDeltaRows, kTensorDq, kTensorDkdv});
  CHECK(launched({Role::kDv}) == std::vector{kDeltaRows, kTensorDkdv});
  CHECK(launched({Role::kDq}) == std::vector{kDeltaRows, kTensorDq});
  CHECK(launched({Role::kDbias}) == std::vector{kDeltaRows, kGeneralDbias});
  CHECK(launched({Role::kDsink}) == std::vector{kDeltaRows, kHeadSums, kStoreSums});
}

TEST_CASE("behind a causal band the heads of a forward on sm_90a are taken in equal sections", "[cuda]") {
  // 32 heads with 4 MiB of keys and values each: two thirds of 60 MiB of L2 hold ten heads, half of it seven.
  Problem p = forward_problem({4, 8, 8, 4096, 4096, 256, 256}, DataType::kBf16);
  CHECK(recipe_of(p).heads_together == 7);
  p.band = Band::causal();
  CHECK(recipe_of(p).heads_together == 8);  // four of 8, not three of 10 and one of 2
  p = forward_problem({int64_t{1} << 30, 4, 4, 128, 1 << 20, 64, 64}, DataType::kBf16);
  p.band = Band::causal();
  CHECK(recipe_of(p).heads_together == 1);  // of 2^32, which no launch has, but an explanation
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
  Problem wide = p;
  wide.qk_dim = 264;
  CHECK(first(wide, kH200) == "qk_dim is 264; needs at most 256");
  wide = p;
  wide.v_dim = 257;
  CHECK(first(wide, kH200) == "v_dim is 257; needs at most 256");
  Problem long_rows = p;
  long_rows.q_len = (int64_t{1} << 28) + 1;
  CHECK(first(long_rows, kH200) == "q_len is 268435457; needs at most 268435456");
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
  node.q = graph.tensor("q", DataType::kBf16, bshd({8, 8, 1024, 128}));
  node.k = graph.tensor("k", DataType::kBf16, bshd({8, 2, 1024, 128}));
  node.v = graph.tensor("v", DataType::kBf16, bshd({8, 2, 1024, 128}));
  graph.sdpa_forward(node);
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  Context context;
  const auto plan = context.plan(training_pair(graph, wanted).value().backward, target);
  REQUIRE(plan.status().message() == "");
  CHECK(plan->explain().find(launches) != std::string::npos);
  CHECK(plan->workspace_bytes() == (2 + 128) * 8 * 8 * 1024 * 4);  // a row's delta, log-sum-exp and dq sums
}
