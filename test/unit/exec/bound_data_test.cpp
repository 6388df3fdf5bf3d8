#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "attngraph/context.hpp"
#include "device/device.hpp"
#include "support/catch.hpp"

using namespace attngraph;

namespace {

/// Two packed sequences of up to 4 rows in 6 token slots; k and v in three pages of 2 rows.
struct Data {
  alignas(16) std::array<int32_t, 2> q_lens = {2, 4};
  alignas(16) std::array<int32_t, 3> cu_kv = {0, 3, 4};
  alignas(16) std::array<int64_t, 3> offsets = {0, 2, 6};
  alignas(16) std::array<int32_t, 4> pages = {0, 1, 2, 77};  // the second sequence uses one page
  alignas(16) std::array<float, 24> q{}, k{}, v{}, o{};
  alignas(256) std::array<std::byte, 1 << 18> workspace{};
};

/// On the engine's memory.
Status run(const std::string& engine, Data data) {
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

  ContextOptions one_thread;  // whose workspace is small
  one_thread.num_threads = 1;
  Context context(one_thread);
  PlanOptions options;
  options.validate_bindings = true;
  options.engine = engine;
  const auto plan = context.plan(graph, options);
  REQUIRE(plan.ok());
  REQUIRE(plan->workspace_bytes() <= static_cast<int64_t>(sizeof data.workspace));
  auto* base = reinterpret_cast<std::byte*>(&data);
  device::Memory memory;
  if (context.target_of(engine)->memory == MemoryKind::kCuda) {
    memory = device::Memory::allocate(sizeof data).value();
    REQUIRE(memory.copy_in(base).ok());
    base = memory.data();
  }
  return execute(*plan,
                 {{offsets, base + offsetof(Data, offsets)},
                  {*node.q, base + offsetof(Data, q)},
                  {*node.k, base + offsetof(Data, k)},
                  {*node.v, base + offsetof(Data, v)},
                  {*node.seq_len_q, base + offsetof(Data, q_lens)},
                  {*node.cu_seq_len_kv, base + offsetof(Data, cu_kv)},
                  {*node.page_table_k, base + offsetof(Data, pages)},
                  {*made.o, base + offsetof(Data, o)}},
                 {base + offsetof(Data, workspace), plan->workspace_bytes()});
}

/// Of this build, on this machine, that take pages.
std::vector<std::string> engines() {
  const Context context;
  std::vector<std::string> names = context.engines();
  std::erase_if(names,
                [&](const std::string& name) { return name == "cudnn" || !context.target_of(name).ok(); });
  return names;
}

}  // namespace

TEST_CASE("right lengths, offsets and pages pass their check", "[exec]") {
  for (const std::string& engine : engines()) CHECK(run(engine, {}).message() == "");
}

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
      {[](Data& d) { d.offsets[1] = 1; },
       "offsets (uid 1): entry 1 is 1 behind a sequence of 2 rows from 0; those of o must share no token "
       "slot"},
      {[](Data& d) { d.pages[1] = 3; }, "pages (uid 7): entry [0, 1] is 3; the container has pages 0 to 2"},
      {[](Data& d) { d.pages[2] = -1; }, "pages (uid 7): entry [1, 0] is -1; the container has pages 0 to 2"},
  }));
  Data data;
  row.spoil(data);
  for (const std::string& engine : engines()) {
    INFO(engine);
    const Status refused = run(engine, data);
    CHECK(refused.code() == Code::kBadBinding);
    CHECK(refused.message() == row.words);
  }
}
