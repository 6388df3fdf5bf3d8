#include <array>

#include "attngraph/context.hpp"
#include "support/catch.hpp"

using namespace attngraph;

namespace {

/// Two packed sequences of up to 4 rows in 6 token slots; k and v in three pages of 2 rows.
struct Data {
  alignas(16) std::array<int32_t, 2> q_lens = {2, 4};
  alignas(16) std::array<int32_t, 3> cu_kv = {0, 3, 4};
  alignas(16) std::array<int64_t, 3> offsets = {0, 2, 6};
  alignas(16) std::array<int32_t, 4> pages = {0, 1, 2, 77};  // the second sequence uses one page
};

Status run(Data data) {
  Graph graph;
  const Uid offsets = graph.vector("offsets", DataType::kI64, 3);
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kF32, thd({2, 1, 4, 4}), Ragged{offsets, 4});
  node.k = graph.tensor("k", DataType::kF32, bhsd({3, 1, 2, 4}));
  node.v = graph.tensor("v", DataType::kF32, bhsd({3, 1, 2, 4}));
  node.seq_len_q = graph.vector("q_lens", DataType::kI32, 2);
  node.cu_seq_len_kv = graph.vector("cu_kv", DataType::kI32, 3);
  node.page_table_k = graph.tensor("pages", DataType::kI32, dense({2, 2}));
  node.page_table_v = node.page_table_k;
  node.attributes.max_total_q = 6;
  const SdpaForward made = graph.sdpa_forward(node);

  Context context;
  PlanOptions options;
  options.validate_bindings = true;
  const auto plan = context.plan(graph, options);
  REQUIRE(plan.ok());
  alignas(16) std::array<float, 24> q{}, k{}, v{}, o{};
  struct alignas(256) Block {
    std::byte bytes[256];
  };
  std::vector<Block> workspace(static_cast<size_t>(plan->workspace_bytes() / 256 + 1));
  return execute(*plan,
                 {{offsets, data.offsets.data()},
                  {*node.q, q.data()},
                  {*node.k, k.data()},
                  {*node.v, v.data()},
                  {*node.seq_len_q, data.q_lens.data()},
                  {*node.cu_seq_len_kv, data.cu_kv.data()},
                  {*node.page_table_k, data.pages.data()},
                  {*made.o, o.data()}},
                 {workspace.data(), plan->workspace_bytes()});
}

}  // namespace

TEST_CASE("right lengths, offsets and pages pass their check", "[exec]") { CHECK(run({}).ok()); }

TEST_CASE("the first wrong entry of bound data is named", "[exec]") {
  struct Row {
    void (*spoil)(Data&);
    const char* words;
  };
  const Row row = GENERATE(values<Row>({
      {[](Data& d) { d.q_lens[1] = -1; }, "q_lens (uid 5): entry 1 is -1; must not be negative"},
      {[](Data& d) { d.q_lens[0] = 5; }, "q_lens (uid 5): entry 0 is 5; the longest declared is 4"},
      {[](Data& d) { d.cu_kv[0] = -2; }, "cu_kv (uid 6): entry 0 is -2; must not be negative"},
      {[](Data& d) { d.cu_kv[2] = 1; }, "cu_kv (uid 6): entry 2 is 1 after 3; must not decrease"},
      {[](Data& d) { d.cu_kv[2] = 9; }, "cu_kv (uid 6): entry 2 is 9 after 3; the longest declared is 4"},
      {[](Data& d) { d.offsets[0] = -3; }, "offsets (uid 1): entry 0 is -3; must not be negative"},
      {[](Data& d) { d.offsets[2] = 1; }, "offsets (uid 1): entry 2 is 1 after 2; must not decrease"},
      {[](Data& d) { d.offsets[1] = 4; },
       "offsets (uid 1): entry 1 is 4 for a sequence of 4 rows; 2 rows lie within the 6 token slots of q"},
      {[](Data& d) { d.pages[1] = 3; }, "pages (uid 7): entry [0, 1] is 3; the container has pages 0 to 2"},
      {[](Data& d) { d.pages[2] = -1; }, "pages (uid 7): entry [1, 0] is -1; the container has pages 0 to 2"},
  }));
  Data data;
  row.spoil(data);
  const Status refused = run(data);
  CHECK(refused.code() == Code::kBadBinding);
  CHECK(refused.message() == row.words);
}
