#include "engine/cpu/pool.hpp"
#include "engine/registry.hpp"
#include "support/catch.hpp"
#include "support/problems.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

struct Class {
  int64_t qk_dim, v_dim, q_len, kv_len;
  Band band;
  const char *forward, *backward;  ///< the engine tried first
};

Band window() {
  Band band = Band::causal();
  band.left = 1023;
  return band;
}

}  // namespace

TEST_CASE("cudnn is tried first on a device, but for the classes in which cuda was measured faster",
          "[cudnn]") {
  const auto c = GENERATE(values<Class>({
      {64, 64, 4096, 4096, {}, "cuda", "cuda"},
      {64, 64, 4096, 4096, Band::causal(), "cudnn", "cuda"},
      {64, 64, 8192, 8192, window(), "cudnn", "cuda"},
      {64, 64, 4095, 4096, {}, "cudnn", "cudnn"},
      {72, 64, 4096, 4096, {}, "cudnn", "cudnn"},
      {128, 128, 1024, 1024, Band::causal(), "cudnn", "cudnn"},
      {128, 128, 4096, 4096, {}, "cudnn", "cuda"},
      {128, 128, 4096, 4096, Band::causal(), "cuda", "cuda"},
      {128, 128, 16384, 16384, {}, "cuda", "cuda"},
      {128, 128, 8192, 8192, window(), "cudnn", "cudnn"},
      {192, 128, 4096, 4096, {}, "cudnn", "cudnn"},
      {192, 128, 4096, 4096, Band::causal(), "cuda", "cuda"},
      {256, 256, 4096, 4096, {}, "cuda", "cuda"},
      {256, 256, 4096, 4096, Band::causal(), "cuda", "cuda"},
      {256, 256, 4096, 4096, Band::causal(Align::kBottomRight), "cudnn", "cudnn"},
      {256, 256, 4096, 4096, window(), "cudnn", "cudnn"},
      {128, 128, 1, 8192, {}, "cuda", "cudnn"},
      {128, 128, 1, 8193, {}, "cudnn", "cudnn"},
  }));
  Pool pool(1);
  const EngineSet set = make_engines(pool);
  const auto first = [&](const Problem& p, const Target& target = Target::h200()) {
    return std::string(set.ordered(p, target).front()->name());
  };
  Problem p = forward_problem({4, 8, 8, c.q_len, c.kv_len, c.qk_dim, c.v_dim}, DataType::kBf16);
  p.band = c.band;
  CAPTURE(c.qk_dim, c.q_len, c.kv_len, c.band.left.has_value());
  CHECK(first(p) == c.forward);
  CHECK(first(p, Target::b200()) == "cudnn");
  const Problem backward = backward_problem(p, {Role::kDq, Role::kDk, Role::kDv});
  CHECK(first(backward) == c.backward);
  CHECK(first(backward, Target::b200()) == "cudnn");
}

TEST_CASE("as many rows of short sequences as were measured try cuda first where it was as fast", "[cudnn]") {
  Pool pool(1);
  const EngineSet set = make_engines(pool);
  struct Row {
    int64_t batch, tokens;
    Band band;
    const char *forward, *backward;
  };
  const auto row = GENERATE(values<Row>({
      {16, 1024, Band::causal(), "cuda", "cuda"},
      {16, 1024, {}, "cudnn", "cuda"},
      {16, 1023, Band::causal(), "cudnn", "cuda"},
      {32, 512, Band::causal(), "cudnn", "cuda"},
      {32, 512, {}, "cudnn", "cuda"},
      {32, 511, {}, "cudnn", "cudnn"},
      {15, 512, {}, "cudnn", "cudnn"},
  }));
  CAPTURE(row.batch, row.tokens);
  Problem p = forward_problem({row.batch, 16, 16, row.tokens, row.tokens, 128, 128}, DataType::kBf16);
  p.band = row.band;
  CHECK(std::string(set.ordered(p, Target::h200()).front()->name()) == row.forward);
  p = backward_problem(p, {Role::kDq, Role::kDk, Role::kDv});
  CHECK(std::string(set.ordered(p, Target::h200()).front()->name()) == row.backward);
}

TEST_CASE(
    "what changes the scores or the rows, or is too small, leaves cudnn first, also in decode by lengths",
    "[cudnn]") {
  Pool pool(1);
  const EngineSet set = make_engines(pool);
  Problem decode = forward_problem({64, 32, 8, 1, 8192, 128, 128}, DataType::kBf16);
  add_ints(decode, Role::kSeqLenKv, decode.batch);
  const Problem prefill = forward_problem({4, 8, 8, 4096, 4096, 256, 256}, DataType::kBf16);
  struct Row {
    const char* why;
    const Problem& problem;
    void (*change)(Problem&);
    const char* first;
  };
  const Row rows[] = {
      {"decode as it is", decode, [](Problem&) {}, "cuda"},
      {"decode with a sink", decode, [](Problem& p) { add_head_vector(p, Role::kSink); }, "cudnn"},
      {"decode of 17 rows on a head", decode, [](Problem& p) { p.q_heads = 17 * p.kv_heads; }, "cudnn"},
      {"decode of two tokens", decode, [](Problem& p) { p.q_len = 2; }, "cudnn"},
      {"prefill as it is", prefill, [](Problem&) {}, "cuda"},
      {"softcap", prefill, [](Problem& p) { p.softcap = 30; }, "cudnn"},
      {"lengths", prefill, [](Problem& p) { add_ints(p, Role::kSeqLenKv, 1); }, "cudnn"},
      {"a sink", prefill, [](Problem& p) { add_head_vector(p, Role::kSink); }, "cudnn"},
      {"three sequences", prefill, [](Problem& p) { p.batch = 3; }, "cudnn"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.why);
    Problem p = row.problem;
    row.change(p);
    CHECK(std::string(set.ordered(p, Target::h200()).front()->name()) == row.first);
  }
}

TEST_CASE("cuda is tried first where its kernels of sm_90a read a mask or a bias", "[cudnn]") {
  Pool pool(1);
  const EngineSet set = make_engines(pool);
  struct Row {
    const char* why;
    void (*change)(Problem&);
    const char* first;
  };
  const auto row = GENERATE(values<Row>({
      {"a mask", [](Problem&) {}, "cuda"},
      {"a bias, too",
       [](Problem& p) {
         add_matrix(p, Role::kBias, DataType::kBf16, {1, 8, 1, 512});
       },
       "cuda"},
      {"a bias of four bytes",
       [](Problem& p) {
         add_matrix(p, Role::kBias, DataType::kF32, {1, 8, 1, 512});
       },
       "cudnn"},
      {"a mask at 8 bytes", [](Problem& p) { p[Role::kMask].alignment = 8; }, "cudnn"},
      {"rows of q at 8 bytes", [](Problem& p) { p[Role::kQ].alignment = 8; }, "cudnn"},
      {"few heads", [](Problem& p) { p.batch = 1; }, "cudnn"},
  }));
  CAPTURE(row.why);
  Problem p = forward_problem({16, 8, 8, 512, 512, 128, 128}, DataType::kBf16);
  add_matrix(p, Role::kMask, DataType::kBool, {16, 1, 512, 512});
  row.change(p);
  const auto first = [&](const Problem& problem, const Target& target = Target::h200()) {
    return std::string(set.ordered(problem, target).front()->name());
  };
  CHECK(first(p) == row.first);
  CHECK(first(p, Target::b200()) == "cudnn");
  CHECK(first(backward_problem(p, {Role::kDq, Role::kDk, Role::kDv})) == row.first);
}

TEST_CASE("cuda is tried first where its kernels of sm_90a add up the gradient of a bias", "[cudnn]") {
  Pool pool(1);
  const EngineSet set = make_engines(pool);
  const auto first = [&](int64_t rows, int64_t keys, const Target& target = Target::h200()) {
    Problem p = forward_problem({16, 8, 8, 512, 512, 128, 128}, DataType::kBf16);
    add_matrix(p, Role::kBias, DataType::kF16, {1, 8, rows, keys});
    p = backward_problem(p, {Role::kDq, Role::kDk, Role::kDv, Role::kDbias});
    return std::string(set.ordered(p, target).front()->name());
  };
  CHECK(first(512, 512) == "cuda");
  CHECK(first(1, 512) == "cudnn");
  CHECK(first(512, 1) == "cudnn");
  CHECK(first(512, 512, Target::b200()) == "cudnn");
}

TEST_CASE("behind a mask at head dim 64 cuda is tried first, too", "[cudnn]") {
  Pool pool(1);
  const EngineSet set = make_engines(pool);
  Problem p = forward_problem({16, 8, 8, 512, 512, 64, 64}, DataType::kBf16);
  add_matrix(p, Role::kMask, DataType::kBool, {16, 1, 512, 512});
  CHECK(std::string(set.ordered(p, Target::h200()).front()->name()) == "cuda");
  p = backward_problem(p, {Role::kDq, Role::kDk, Role::kDv});
  CHECK(std::string(set.ordered(p, Target::h200()).front()->name()) == "cuda");
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
