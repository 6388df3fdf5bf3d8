#include "plan/splitting.hpp"

#include <limits>

#include "plan/slices.hpp"
#include "support/catch.hpp"
#include "support/stub_engine.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

int64_t saturating_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product)) return std::numeric_limits<int64_t>::max();
  return product;
}

/// FlashAttention-2's backward indexes its padded dq accumulator in 32 bits, as measured.
int64_t dq_accumulator_elems(const Problem& p, const SliceShape& shape) {
  const int64_t rows = (p.q_len + 127) / 128 * 128;
  return saturating_product({shape.batch, shape.kv_heads * p.group(), rows, std::max<int64_t>(p.qk_dim, 32)});
}
int64_t grid_rows(const Problem& p, const SliceShape& shape) {
  return saturating_product({shape.batch, shape.kv_heads * p.group()});
}

StubBehaviour limited_stub() {
  StubBehaviour behaviour;
  behaviour.limits = {
      {"batch * q_heads * round_up(q_len, 128) * max(qk_dim, 32)", dq_accumulator_elems, int64_t{1} << 31,
       "32-bit indices", "FlashAttention-2 csrc/flash_attn/flash_api.cpp"},
      {"batch * q_heads", grid_rows, 65535, "the grid's y extent", "CUDA C++ Programming Guide, table 21"}};
  return behaviour;
}

std::vector<Slice> slices_of(const Plan& plan) {
  const PlanCore& core = *plan.state().core;
  const Problem& p = core.program.nodes[0].problem;
  const SliceShape& shape = core.nodes[0].shape;
  const SliceCounts counts = count_slices(shape, p.batch, p.kv_heads);
  std::vector<Slice> slices;
  for (int64_t i = 0; i < counts.total(); ++i)
    slices.push_back(slice_at(i, counts, shape, p.batch, p.kv_heads));
  return slices;
}

struct Extents {
  int64_t batch, heads, len, dim;
};

Plan planned(const Extents& e, const StubBehaviour& behaviour, const PlanOptions& options = {}) {
  return plan_program(forward_program(e.batch, e.heads, e.len, e.dim), options, stub_engines({behaviour}))
      .value();
}

}  // namespace

TEST_CASE("what stays inside an index range is one launch", "[splitting]") {
  const Extents e = GENERATE(
      values<Extents>({{512, 4, 8192, 128}, {799, 8, 10496, 32}, {400, 4, 10368, 128}, {400, 8, 10496, 16}}));
  CHECK(slices_of(planned(e, limited_stub())).size() == 1);
}

TEST_CASE("what leaves an index range is split into the fewest parts that are inside", "[splitting]") {
  const Extents e = GENERATE(values<Extents>({{800, 8, 10496, 16},
                                              {800, 8, 10496, 32},
                                              {400, 8, 10496, 64},
                                              {400, 4, 10496, 128},
                                              {800, 4, 5248, 128},
                                              {200, 4, 20992, 128},
                                              {3200, 8, 10496, 16}}));
  const Plan plan = planned(e, limited_stub());
  const Problem& p = plan.state().core->program.nodes[0].problem;
  const std::vector<Slice> slices = slices_of(plan);
  const int64_t whole = dq_accumulator_elems(p, {e.batch, e.heads}), bound = int64_t{1} << 31;
  CHECK(slices.size() > 1);
  CHECK(static_cast<int64_t>(slices.size()) == (whole + bound - 1) / bound);
  for (const Slice& slice : slices) {
    const SliceShape shape{slice.batch_end - slice.batch_begin, slice.kv_head_end - slice.kv_head_begin};
    CHECK(dq_accumulator_elems(p, shape) <= bound);
    CHECK(grid_rows(p, shape) <= 65535);
  }
}

TEST_CASE("a grid limit of 65535 is inclusive", "[splitting]") {
  CHECK(slices_of(planned({13107, 5, 1, 8}, limited_stub())).size() == 1);
  CHECK(slices_of(planned({16384, 4, 1, 8}, limited_stub())).size() == 2);
}

TEST_CASE("heads are split when one sequence is too large, and one head too large is refused",
          "[splitting]") {
  const std::vector<Slice> slices = slices_of(planned({2, 4, 1 << 22, 256}, limited_stub()));
  CHECK(slices.size() == 4);  // two heads are exactly 2^31
  const auto refused =
      plan_program(forward_program(1, 1, 1 << 24, 256), {}, stub_engines({limited_stub()})).status();
  CHECK(refused.code() == Code::kUnsupported);
  CHECK(refused.message().find(
            "4294967296 for one sequence and kv head; needs at most 2147483648: 32-bit indices") !=
        std::string::npos);
}

TEST_CASE("a budget is met by the fewest slices, exactly or not at all", "[splitting]") {
  // 1024 bytes per sequence and kv head, 12 sequences of 4 heads.
  struct Row {
    int64_t budget, slices, bytes;
  };
  const Row row = GENERATE(values<Row>({{49152, 1, 49152},
                                        {49151, 2, 24576},
                                        {24576, 2, 24576},
                                        {24575, 3, 16384},
                                        {4096, 12, 4096},
                                        {4095, 24, 2048},
                                        {1024, 48, 1024}}));
  PlanOptions options;
  options.max_workspace_bytes = row.budget;
  const Plan plan = planned({12, 4, 4, 8}, {}, options);
  CHECK(plan.workspace_bytes() == row.bytes);
  CHECK(static_cast<int64_t>(slices_of(plan).size()) == row.slices);
  options.max_workspace_bytes = 1023;
  const auto refused = plan_program(forward_program(12, 4, 4, 8), options, stub_engines({{}})).status();
  CHECK(refused.message() == "max_workspace_bytes: is 1023; the smallest attainable is 1024");
}

TEST_CASE("each of several nodes is split as far as the budget asks", "[splitting]") {
  ProgramNode small = forward_node(2, 1, 4, 8), large = forward_node(16, 1, 4, 8);
  for (int& slot : large.slots.data)
    if (slot != kNoSlot) slot += 4;
  PlanOptions options;
  options.max_workspace_bytes = 4096;
  const Plan plan =
      plan_program({{small, large}, std::vector<bool>(8, false)}, options, stub_engines({{}})).value();
  CHECK(plan.state().core->nodes[0].shape.batch == 2);
  CHECK(plan.state().core->nodes[1].shape.batch == 4);
  CHECK(plan.workspace_bytes() == 4096);
}

TEST_CASE("explain shows how the workspace falls with the number of slices", "[splitting]") {
  const std::string words = planned({4, 2, 4, 8}, {}).explain();
  CHECK(words.find("workspace by number of slices") != std::string::npos);
  for (const char* row : {"1                8192\n", "2                4096\n", "4                2048\n",
                          "8                1024\n"})
    CHECK(words.find(row) != std::string::npos);
}
