#include "engine/cudnn/lower.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "engine/cudnn/engine.hpp"
#include "engine/cudnn/gates.hpp"
#include "plan/splitting.hpp"
#include "support/catch.hpp"
#include "support/problems.hpp"
#include "unit/cudnn/lowered.hpp"

using namespace attngraph;
using namespace attngraph::cudnn;
using namespace attngraph::test;

namespace {

using enum Role;

std::string golden(const std::string& name) {
  std::ifstream file(std::string(ATTNGRAPH_TEST_GOLDEN) + "/cudnn/" + name + ".txt");
  std::ostringstream content;
  content << file.rdbuf();
  return std::move(content).str();
}

const OpTensor* find(const OpGraph& graph, const std::string& name) {
  const auto at = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                               [&](const OpTensor& t) { return t.name == name; });
  return at == graph.tensors.end() ? nullptr : &*at;
}

Problem packed_backward(int64_t kv_heads) {
  Problem p = forward_problem({2, 8, kv_heads, 64, 64, 32, 32}, DataType::kBf16);
  add_ints(p, kSeqLenQ, 2), add_ints(p, kSeqLenKv, 2);
  make_ragged(p, Side::kQ, 100), make_ragged(p, Side::kKv, 120);
  return backward_problem(p, {kDq, kDk, kDv});
}

}  // namespace

TEST_CASE("a lowered problem is the list of operations in its golden file", "[cudnn]") {
  for (const Lowered& row : lowered_problems()) {
    INFO(row.name);
    CHECK(refusals({row.problem, h200_with_cudnn()}).empty());
    CHECK(describe(lower(row.problem)) == golden(row.name));
  }
}

TEST_CASE("operations read only what was made before them", "[cudnn]") {
  for (const Lowered& row : lowered_problems()) {
    INFO(row.name);
    const OpGraph graph = lower(row.problem);
    std::vector<bool> made(graph.tensors.size());
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      const OpTensor& t = graph.tensors[i];
      made[i] = t.place == Place::kOperand || t.place == Place::kOffsets || t.place == Place::kScalar ||
                (t.place == Place::kScratch && t.scratch <= Scratch::kStats);
      CHECK(t.offsets < static_cast<int>(i));
    }
    for (const Op& op : graph.ops) {
      for (const int input : {op.x, op.b, op.t, op.m_len, op.n_len, op.k_len})
        CHECK((input < 0 || made[static_cast<size_t>(input)]));
      made[static_cast<size_t>(op.y)] = true;
    }
  }
}

TEST_CASE("row sums and stats of packed sequences do not depend on the layout of the user's stats",
          "[cudnn]") {
  Problem p = packed_backward(8);
  const OpGraph token_major = lower(p);
  p[kStats].stride = {0, 100, 1, 0};  // heads, then tokens
  p[kStats].multiplier = 1;
  CHECK(lower(p) == token_major);
  for (const char* name : {"own_stats", "row_sums"}) {
    const OpTensor* t = find(token_major, name);
    REQUIRE(t != nullptr);
    CHECK(t->stride == std::array<int64_t, 4>{8 * 64, 1, 8, 1});
    CHECK(scratch_bytes(p, *t).value() == 4 * 100 * 8);
  }
}

TEST_CASE("intermediates at the offsets of packed tensors span the capacity, gaps included", "[cudnn]") {
  const Problem p = packed_backward(2);
  const OpGraph graph = lower(p);
  CHECK(scratch_bytes(p, *find(graph, "dq_sums")).value() == 4 * 100 * 8 * 32);
  CHECK(scratch_bytes(p, *find(graph, "dk_by_q_head")).value() == 2 * 120 * 8 * 32);
  CHECK(scratch_bytes(p, *find(graph, "dv_by_q_head")).value() == 2 * 120 * 8 * 32);
}

TEST_CASE("backward's arrays are dense where cuDNN takes no packed ones", "[cudnn]") {
  struct Row {
    const char* why;
    void (*change)(Problem&);
  };
  const Row row = GENERATE(values<Row>({
      {"a head dim that is no multiple of 16", [](Problem& p) { p.qk_dim = p[kQ].extent[3] = 24; }},
      {"dq by other offsets than q", [](Problem& p) { p[kDq].offsets_owner = kDq; }},
      {"dq at other strides than q", [](Problem& p) { p[kDq].stride[2] *= 2; }},
      {"heads outside tokens, grouped", [](Problem& p) { p[kK].stride[2] = p[kDk].stride[2] = 32; }},
      {"dense q", [](Problem& p) { p[kQ].ragged = p[kDq].ragged = false; }},
  }));
  INFO(row.why);
  Problem p = packed_backward(2);
  CHECK(packed_slots(p) == 100);
  row.change(p);
  CHECK(packed_slots(p) == 0);
  const OpGraph graph = lower(p);
  CHECK(find(graph, "dq_sums")->offsets == -1);
  CHECK(find(graph, "dk_by_q_head")->place == Place::kVirtual);
  CHECK(find(graph, "row_sums")->stride == std::array<int64_t, 4>{8 * 64, 64, 1, 1});
}

TEST_CASE("with lengths, every tensor of rows begins where the engine's own offsets say", "[cudnn]") {
  Problem p = forward_problem({2, 4, 4, 64, 64, 32, 32}, DataType::kBf16);
  add_ints(p, kSeqLenKv, 2);
  const OpGraph graph = lower(p);
  for (const OpTensor& t : graph.tensors)
    if (t.place == Place::kOperand) {
      INFO(t.name);
      REQUIRE(t.offsets >= 0);
      CHECK(graph.tensors[static_cast<size_t>(t.offsets)].role == t.role);
    }
}

TEST_CASE("a band at the bottom right of more rows than keys goes by lengths, which cuDNN asks for there",
          "[cudnn]") {
  Problem p = forward_problem({2, 4, 4, 65, 64, 32, 32}, DataType::kBf16);
  p.band = Band::causal(Align::kBottomRight);
  const OpGraph graph = lower(p);
  CHECK(find(graph, "q_len") != nullptr);
  CHECK(find(graph, "q")->offsets >= 0);
  p.q_len = 64;
  CHECK(find(lower(p), "q_len") == nullptr);
}

TEST_CASE("the left side of a band grows by the row's own key, and sides beyond all keys are none",
          "[cudnn]") {
  Problem p = forward_problem({1, 1, 1, 64, 64, 32, 32}, DataType::kBf16);
  p.band = {Align::kTopLeft, 3, 0};
  CHECK(find(lower(p), "left")->value == 4);
  p.band = {Align::kTopLeft, int64_t{1} << 60, int64_t{1} << 60};
  CHECK(lower(p).ops.size() == 10);
  p.band = {Align::kTopLeft, -(int64_t{1} << 60), -(int64_t{1} << 60)};
  CHECK(find(lower(p), "left")->value == -127);
  CHECK(find(lower(p), "right")->value == -128);
}

TEST_CASE("an axis along which a bias or slopes are broadcast by a stride of 0 has the extent 1", "[cudnn]") {
  Problem p = forward_problem({2, 4, 4, 64, 64, 32, 32}, DataType::kBf16);
  add_matrix(p, kBias, DataType::kF32, {2, 4, 64, 64});
  p[kBias].stride[1] = 0;
  add_head_vector(p, kAlibiSlopes);
  p[kAlibiSlopes].stride[1] = 0;
  const OpGraph graph = lower(p);
  CHECK(find(graph, "bias")->extent == std::array<int64_t, 4>{2, 1, 64, 64});
  CHECK(find(graph, "bias")->stride == std::array<int64_t, 4>{4 * 64 * 64, 64 * 64, 64, 1});
  CHECK(find(graph, "alibi_slopes")->extent == std::array<int64_t, 4>{1, 1, 1, 1});
}

TEST_CASE("a slice keeps strides and has fewer sequences and heads", "[cudnn]") {
  Problem p = forward_problem({4, 6, 3, 64, 64, 32, 32}, DataType::kBf16);
  add_head_vector(p, kSink);
  const Problem slice = slice_of(p, {2, 1});
  CHECK(slice.q_heads == 2);
  CHECK(slice[kQ].extent == std::array<int64_t, 4>{2, 2, 64, 32});
  CHECK(slice[kK].extent == std::array<int64_t, 4>{2, 1, 64, 32});
  CHECK(slice[kSink].extent == std::array<int64_t, 4>{1, 2, 1, 1});
  CHECK(slice[kK].stride == p[kK].stride);
}

TEST_CASE("a band leaves rows or keys alone where Band::keys is empty for one", "[cudnn]") {
  for (const Align align : {Align::kTopLeft, Align::kBottomRight})
    for (int64_t q_len = 1; q_len <= 6; ++q_len)
      for (int64_t kv_len = 1; kv_len <= 6; ++kv_len)
        for (int64_t left = -4; left <= 8; ++left)
          for (int64_t right = -4; right <= 8; ++right) {
            Problem p = forward_problem({1, 1, 1, q_len, kv_len, 8, 8}, DataType::kBf16);
            p.band.align = align;
            if (left < 8) p.band.left = left;
            if (right < 8) p.band.right = right;
            bool leaves_row = false;
            std::vector<bool> seen(static_cast<size_t>(kv_len));
            for (int64_t row = 0; row < q_len; ++row) {
              const KeyRange keys = p.band.keys(row, q_len, kv_len);
              leaves_row |= keys.begin == keys.end;
              for (int64_t key = keys.begin; key < keys.end; ++key) seen[static_cast<size_t>(key)] = true;
            }
            const bool leaves_key = std::find(seen.begin(), seen.end(), false) != seen.end();
            INFO(p);
            if (band_leaves_rows(p) != leaves_row || band_leaves_keys(p) != leaves_key) FAIL();
          }
}

TEST_CASE("a scratch tensor beyond int64 is refused with its name", "[cudnn]") {
  OpTensor huge;
  huge.name = "row_sums";
  huge.extent = {2, 2, 2, std::numeric_limits<int64_t>::max() / 8};
  huge.stride = {huge.extent[3] * 4, huge.extent[3] * 2, huge.extent[3], 1};
  const auto bytes = scratch_bytes(packed_backward(8), huge);
  REQUIRE(!bytes.ok());
  CHECK(bytes.status().message().find("exceeds int64") != std::string::npos);
}

TEST_CASE("a backward is cut into slices whose tensors have fewer than 2^31 elements", "[cudnn]") {
  const auto engine = make_cudnn_engine("");
  const Problem forward = forward_problem({400, 4, 4, 10496, 128, 128, 128}, DataType::kBf16);
  Problem p = backward_problem(forward, {kDq, kDk, kDv});  // q has 2,149,580,800
  CHECK(exceeded_limit(*engine, forward, {400, 4}) == nullptr);
  REQUIRE(exceeded_limit(*engine, p, {400, 4}) != nullptr);
  CHECK(exceeded_limit(*engine, p, {399, 4}) == nullptr);
  make_ragged(p, Side::kQ, 400 * 10496);  // a packed tensor is as large for every slice of the batch
  CHECK(exceeded_limit(*engine, p, {1, 4}) != nullptr);
}
