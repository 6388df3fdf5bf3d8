#include <string>

#include "attngraph/context.hpp"
#include "engine/cuda/splits.hpp"
#include "support/catch.hpp"
#include "unit/cuda/recipes.hpp"

using namespace attngraph;
using namespace attngraph::cuda;
using namespace attngraph::test;

namespace {

struct Case {
  const char* why;
  void (*change)(Problem&);
  const char* reason;  ///< why not on sm_90a's own kernels, a part of it; empty: on those
};

void add_window_and_sink(Problem& p) {
  p.band = {Align::kBottomRight, 64, 0};
  add_head_vector(p, Role::kSink);
}
void broadcast_v(Problem& p) { p[Role::kV].stride[1] = 0; }
void lay_on_pages(Problem& p, int64_t k_page, int64_t v_page) {
  for (const Role table : {Role::kPageTableK, Role::kPageTableV}) p[table].present = true;
  p[Role::kK].extent[2] = k_page, p[Role::kV].extent[2] = v_page;
}

}  // namespace

TEST_CASE("what the sm_90a kernels do not take, the tensor kernels of sm_80 do", "[cuda]") {
  const Case row = GENERATE(values<Case>({
      {"as it is", [](Problem&) {}, ""},
      {"window and sink", add_window_and_sink, ""},
      {"offsets in tokens", [](Problem& p) { make_ragged(p, Side::kKv, 4096); }, ""},
      {"offsets in elements",
       [](Problem& p) {
         make_ragged(p, Side::kKv, 4096);
         p[Role::kK].multiplier = 8;
       },
       "k has offsets in 8 elements"},
      {"slots beyond 32 bits", [](Problem& p) { make_ragged(p, Side::kKv, int64_t{1} << 31); },
       "k has 2147483648 slots"},
      {"broadcast heads", broadcast_v, "v has a stride of 0"},
      {"softcap and a scale that turns the order",
       [](Problem& p) {
         p.softcap = 30.0;
         p.scale = -0.1;
       },
       ""},
      {"a softcap that leaves few digits", [](Problem& p) { p.softcap = 257.0; },
       "softcap of 257 exceeds 256"},
      {"dropout", [](Problem& p) { p.dropout_p = 0.1; }, ""},
      {"a mask and a bias of two bytes",
       [](Problem& p) {
         add_mask(p);
         add_bias(p, DataType::kF16);
       },
       ""},
      {"a mask and a bias of four bytes",
       [](Problem& p) {
         add_mask(p);
         add_bias(p, DataType::kF32);
       },
       "a mask stands beside a bias of f32"},
      {"a mask of wide heads",
       [](Problem& p) {
         p = forward_problem({16, 8, 2, 512, 512, 192, 128}, p.io);
         add_mask(p);
       },
       "head dims 192 and 128 leave no room for a bias, a mask or dropout"},
      {"wide heads",
       [](Problem& p) {
         p = forward_problem({16, 8, 2, 512, 512, 136, 136}, p.io);
       },
       ""},
      {"pages of 48 keys", [](Problem& p) { lay_on_pages(p, 48, 48); }, ""},
      {"pages of 20 keys", [](Problem& p) { lay_on_pages(p, 64, 20); },
       "pages share 4 rows with a tile of 128"},
      {"pages of v alone", [](Problem& p) { p[Role::kPageTableV].present = true; },
       "one of k and v alone lies on pages"},
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

TEST_CASE("a plan for sm_90 says why its own kernels do not take the problem", "[cuda]") {
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kBf16, bshd({8, 8, 512, 128}));
  node.k = graph.tensor("k", DataType::kBf16, bshd({400, 2, 20, 128}));
  node.v = graph.tensor("v", DataType::kBf16, bshd({400, 2, 20, 128}));
  node.page_table_k = node.page_table_v = graph.tensor("pages", DataType::kI32, dense({8, 50}));
  graph.sdpa_forward(node);
  Context context;
  const auto on = [&](const Target& target) { return context.plan(graph, target)->explain(); };
  CHECK(on(Target::h200())
            .find("engine cuda: tensor forward 128 extras; of sm_90a none: pages share 4 rows "
                  "with a tile of 128\n") != std::string::npos);
  CHECK(on(Target::a100()).find("engine cuda: tensor forward 128 extras\n") != std::string::npos);
}

TEST_CASE("a forward on sm_90a takes tiles by sequence where lengths are given", "[cuda]") {
  struct Row {
    const char* why;
    int64_t kv_len, slots;  ///< slots 0: dense
    int32_t heads, sequences;
  };
  // Half of L2 holds 120 kv heads of 512 keys of head dim 128, one of 32,768.
  const Row row = GENERATE(values<Row>({
      {"whole sequences", 512, 0, 8, 32},
      {"one, by kv heads", 32'768, 0, 4, 1},
      {"packed ones by their average", 32'768, 64 * 512, 8, 32},
  }));
  INFO(row.why);
  Problem p = forward_problem({64, 8, 2, 512, row.kv_len, 128, 128}, DataType::kBf16);
  CHECK(recipe_of(p).steps[0].sequences_together == 0);
  if (row.slots > 0) make_ragged(p, Side::kKv, row.slots);
  add_ints(p, Role::kSeqLenKv, p.batch);
  const Step step = recipe_of(p).steps[0];
  CHECK(step.kernel.family == Family::kHopperForward);
  CHECK(step.heads_together == row.heads);
  CHECK(step.sequences_together == row.sequences);
  p = forward_problem({4096, 1, 1, 128, 128, 128, 128}, DataType::kBf16);
  add_ints(p, Role::kSeqLenKv, p.batch);
  CHECK(recipe_of(p).steps[0].sequences_together == 0);  // 32 tiles a section
}

TEST_CASE(
    "rows of a bias and a mask move in chunks of 16 bytes where all of them begin at one and end with one",
    "[cuda]") {
  struct Row {
    const char* why;
    DataType dtype;
    int64_t kv_len;
    void (*change)(Operand&);
    bool in_chunks;
  };
  const Row row = GENERATE(values<Row>({
      {"a mask", DataType::kBool, 512, [](Operand&) {}, true},
      {"a mask of 8 keys more", DataType::kBool, 520, [](Operand&) {}, false},
      {"a bias of two bytes", DataType::kBf16, 520, [](Operand&) {}, true},
      {"a bias of four bytes", DataType::kF32, 516, [](Operand&) {}, true},
      {"rows of no chunks", DataType::kF32, 514, [](Operand&) {}, false},
      {"broadcast rows", DataType::kBf16, 512,
       [](Operand& t) {
         t.extent[2] = 1;
         t.stride[2] = 0;
       },
       true},
      {"broadcast keys", DataType::kBf16, 512,
       [](Operand& t) {
         t.extent[3] = 1;
         t.stride[3] = 0;
       },
       false},
      {"keys apart", DataType::kBf16, 512, [](Operand& t) { t.stride[3] = 2; }, false},
      {"a loose pointer", DataType::kBf16, 512, [](Operand& t) { t.alignment = 8; }, false},
      {"heads between chunks", DataType::kBf16, 512, [](Operand& t) { t.stride[1] += 4; }, false},
  }));
  INFO(row.why);
  Problem p = forward_problem({16, 8, 2, 512, row.kv_len, 128, 128}, DataType::kBf16);
  const Role role = row.dtype == DataType::kBool ? Role::kMask : Role::kBias;
  role == Role::kMask ? add_mask(p) : add_bias(p, row.dtype);
  row.change(p[role]);
  CHECK(is_in_chunks(p[role]) == row.in_chunks);
  const Recipe recipe = recipe_of(p);
  CHECK((role == Role::kMask ? recipe.mask_in_chunks : recipe.bias_in_chunks) == row.in_chunks);
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
  CHECK(recipe_of(p).steps[0].kernel == InstanceKey{Family::kHopperForward, p.io, row.tile});
  CHECK(recipe_of(backward_problem(p, kAllOfQkv)).steps[1].kernel.size == row.tile);
}

TEST_CASE("a forward on sm_90a takes a tile of keys in pieces that divide it and the pages of k and of v",
          "[cuda]") {
  struct Row {
    int64_t dim;
    int32_t tile_keys;
    int64_t k_page, v_page;
    int32_t rows;
  };
  const Row row = GENERATE(values<Row>({{128, 128, 16, 16, 16},
                                        {128, 128, 64, 64, 64},
                                        {128, 128, 128, 128, 128},
                                        {128, 128, 4096, 4096, 128},
                                        {128, 128, 64, 32, 32},
                                        {128, 128, 24, 24, 8},
                                        {64, 128, 128, 128, 128},
                                        {256, 80, 64, 64, 16}}));
  Problem p = forward_problem({16, 8, 2, 4096, 4096, row.dim, row.dim}, DataType::kBf16);
  CHECK(recipe_of(p).key_box_rows == row.tile_keys);
  lay_on_pages(p, row.k_page, row.v_page);
  INFO(p);
  CHECK(families(recipe_of(p)) == std::vector{Family::kHopperForward});
  CHECK(recipe_of(p).key_box_rows == row.rows);
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
      {"few heads: half of the multiprocessors will do", 8, 1023, 8, 1},
      {"few heads, keys for all multiprocessors", 8, 1024, 2, 8},
      {"fewer, each more parts", 6, 1024, 2, 11},
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

  const Case row = GENERATE(values<Case>({
      {"as it is", [](Problem&) {}, ""},
      {"window and sink", add_window_and_sink, ""},
      {"packed keys", [](Problem& p) { make_ragged(p, Side::kKv, 4096); }, ""},
      {"softcap", [](Problem& p) { p.softcap = 30.0; }, "more than a scale and a band"},
      {"many rows", [](Problem& p) { p.q_len = 5; }, "20 query rows of a group exceed 16"},
      {"wide heads",
       [](Problem& p) {
         p = forward_problem({1, 32, 8, 1, 4096, 136, 136}, p.io);
       },
       "exceed 128"},
      {"broadcast heads", broadcast_v, "v has a stride of 0"},
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

TEST_CASE("a forward on sm_90a without a band takes one kv head after the other unless heads are wide",
          "[cuda]") {
  Problem p = forward_problem({4, 8, 2, 4096, 4096, 128, 128}, DataType::kBf16);
  CHECK(recipe_of(p).steps[0].heads_together == 4);
  p.band = Band::causal();
  CHECK(recipe_of(p).steps[0].heads_together == 32);
  p.band = Band{Align::kTopLeft, 100, {}};
  CHECK(recipe_of(p).steps[0].heads_together == 32);
  p = forward_problem({4, 8, 8, 4096, 4096, 192, 128}, DataType::kBf16);
  CHECK(recipe_of(p).steps[0].heads_together > 1);
}

TEST_CASE("behind a causal band the heads of a forward on sm_90a are taken in equal sections", "[cuda]") {
  // 32 heads with 4 MiB of keys and values each: two thirds of 60 MiB of L2 hold ten heads, half of it seven.
  Problem p = forward_problem({4, 8, 8, 4096, 4096, 256, 256}, DataType::kBf16);
  CHECK(recipe_of(p).steps[0].heads_together == 7);
  p.band = Band::causal();
  CHECK(recipe_of(p).steps[0].heads_together == 8);  // four of 8, not three of 10 and one of 2
  p = forward_problem({int64_t{1} << 30, 4, 4, 128, 1 << 20, 64, 64}, DataType::kBf16);
  p.band = Band::causal();
  CHECK(recipe_of(p).steps[0].heads_together == 1);  // of 2^32, which no launch has, but an explanation
}
