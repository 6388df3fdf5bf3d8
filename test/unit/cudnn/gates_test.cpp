#include "engine/cudnn/gates.hpp"

#include <algorithm>
#include <set>

#include "engine/cudnn/engine.hpp"
#include "plan/engine.hpp"
#include "plan/planner.hpp"
#include "support/catch.hpp"
#include "support/problems.hpp"
#include "unit/cudnn/lowered.hpp"

using namespace attngraph;
using namespace attngraph::cudnn;
using namespace attngraph::test;

namespace {

using enum Role;

/// A change of a problem that one gate refuses, and what the user reads.
struct Row {
  void (*change)(Problem& p, Target& t);
  const char* words;
};

Problem forward() { return forward_problem({2, 4, 2, 64, 128, 64, 64}, DataType::kBf16); }
Problem backward() { return backward_problem(forward(), {kDq, kDk, kDv}); }

void make_packed(Problem& p) {
  add_ints(p, kSeqLenQ, p.batch), add_ints(p, kSeqLenKv, p.batch);
  make_ragged(p, Side::kQ, 100), make_ragged(p, Side::kKv, 200);
}

const std::vector<Row> kForwardRows = {
    {[](Problem&, Target& t) { t.sm_version = 75; }, "target is sm_75; needs sm_80 or newer"},
    {[](Problem&, Target& t) { t.cudnn_version = 91800; }, "cudnn_version is 9.18.0; needs 9.19.0 or newer"},
    {[](Problem&, Target& t) { t.cudnn_version = 0; }, "cudnn_version is none; needs 9.19.0 or newer"},
    {[](Problem& p, Target&) { p.io = DataType::kF32; }, "io dtype is f32; needs f16 or bf16"},
    {[](Problem& p, Target&) { p.kv_len = 0; }, "kv_len is 0; needs at least 1"},
    {[](Problem& p, Target&) { p.batch = 65536; }, "batch is 65536; needs at most 65535"},
    {[](Problem& p, Target&) { p.v_dim = 60; }, "v_dim is 60; needs a multiple of 8"},
    {[](Problem& p, Target&) { p.qk_dim = 264; }, "qk_dim is 264; needs at most 256"},
    {[](Problem& p, Target&) { p.scale = -0.5; }, "scale is -0.5; needs above 0"},
    {[](Problem& p, Target&) { p.scale = 1e-50; }, "scale is 1e-50; needs above 0 as a float32"},
    {[](Problem& p, Target&) { p[kK].stride[3] = 2; }, "stride of dim of k is 2; needs 1"},
    {[](Problem& p, Target&) { p[kV].stride[0] = 0; }, "stride of v is 0; needs a positive multiple of 8"},
    {[](Problem& p, Target&) { p[kO].stride[2] = 68; }, "stride of o is 68; needs a positive multiple of 8"},
    {[](Problem& p, Target&) { p[kQ].alignment = 8; }, "alignment of q is 8; needs a multiple of 16 bytes"},
    {[](Problem& p, Target&) {
       make_packed(p);
       p[kV].multiplier = 1;
     },
     "offset multiplier of v is 1; needs a multiple of 8"},
    {[](Problem& p, Target& t) {
       add_ints(p, kSeqLenKv, p.batch);
       t.sm_version = 80;
     },
     "target is sm_80; needs sm_9x or sm_10x with lengths"},
    {[](Problem& p, Target&) {
       add_ints(p, kSeqLenKv, p.batch);
       p.q_len = 1;
     },
     "q_len is 1; needs above 1 with lengths, grouped heads and stats"},
    {[](Problem& p, Target&) {
       p = forward_problem({2, 4, 4, 1, 1, 64, 64}, p.io);
       add_matrix(p, kMask, DataType::kBool, {2, 1, 1, 1});
     },
     "kv_len is 1; needs above 1 with one row and a bias"},
    {[](Problem& p, Target&) {
       add_matrix(p, kBias, DataType::kF32, {2, 4, 64, 128});
     },
     "dtype of bias is f32; needs f16: cuDNN takes scores in units of log2"},
    {[](Problem& p, Target&) {
       add_matrix(p, kBias, DataType::kBf16, {2, 4, 64, 128});
     },
     "dtype of bias is bf16; needs f16"},
    {[](Problem& p, Target&) { p.dropout_p = 0.5; }, "dropout_p is 0.5; needs 0: cuDNN draws another mask"},
    {[](Problem& p, Target&) { add_ints(p, kPageTableK, 2); },
     "page_table_k is given; needs absent: a page outside"},
};

const std::vector<Row> kBackwardRows = {
    {[](Problem& p, Target&) {
       add_matrix(p, kBias, DataType::kF16, {2, 4, 1, 128});
       p[kDbias] = p[kBias];
     },
     "bias is one for all rows; needs one a row and key with dbias"},
    {[](Problem& p, Target&) {
       add_matrix(p, kBias, DataType::kF16, {2, 4, 64, 1});
       p[kDbias] = p[kBias];
     },
     "bias is one for all keys; needs one a row and key with dbias"},
    {[](Problem& p, Target&) {
       add_matrix(p, kBias, DataType::kF16, {2, 4, 64, 128});
       p[kDbias] = p[kBias], p.softcap = 30;
     },
     "softcap is 30; needs 0 with dbias"},
    {[](Problem& p, Target&) {
       add_matrix(p, kBias, DataType::kF16, {2, 4, 1, 128});
       p[kDbias] = p[kBias], p.q_len = 1;
     },
     "q_len is 1; needs above 1 with dbias"},
    {[](Problem& p, Target&) {
       add_matrix(p, kBias, DataType::kF16, {2, 4, 64, 1});
       p[kDbias] = p[kBias], p.kv_len = 1;
     },
     "kv_len is 1; needs above 1 with dbias"},
    {[](Problem& p, Target& t) {
       add_ints(p, kSeqLenKv, p.batch);
       p[kDbias].present = true, t.sm_version = 100;
     },
     "target is sm_100; needs sm_9x with dbias and lengths"},
    {[](Problem& p, Target&) { p[kDalibiSlopes].present = true; }, "dalibi_slopes is given; needs absent"},
    {[](Problem& p, Target&) { p.deterministic = true; }, "deterministic is true; needs false"},
    {[](Problem& p, Target&) { p.qk_dim = 256, p.v_dim = 88; },
     "qk_dim is 256; needs at most 192 with a v_dim"},
    {[](Problem& p, Target& t) { t.sm_version = 100, p.qk_dim = 192; },
     "qk_dim is 192; needs at most 256; 128 for"},
};

/// Indices of the gates that refuse.
std::set<size_t> hits(const Problem& p, const Target& t) {
  std::set<size_t> found;
  for (size_t i = 0; i < gates().size(); ++i)
    if (gates()[i].find({p, t})) found.insert(i);
  return found;
}

std::string words_of(const std::vector<Reason>& reasons) {
  std::string words;
  for (const Reason& reason : reasons) words += describe(reason) + "\n";
  return words;
}

}  // namespace

TEST_CASE("every gate refuses in words that name the subject, its value and what it needs", "[cudnn]") {
  std::set<size_t> reached;
  for (const auto& [rows, problem] :
       {std::pair{&kForwardRows, forward()}, std::pair{&kBackwardRows, backward()}}) {
    REQUIRE(refusals({problem, h200_with_cudnn()}).empty());
    for (const Row& row : *rows) {
      Problem p = problem;
      Target t = h200_with_cudnn();
      row.change(p, t);
      INFO(row.words);
      const std::string words = words_of(refusals({p, t}));
      INFO(words);
      CHECK(words.find(row.words) != std::string::npos);
      for (const size_t gate : hits(p, t)) reached.insert(gate);
    }
  }
  CHECK(reached.size() == gates().size());
}

TEST_CASE("a mask, slopes of any kind and a bias of any layout are taken, without dbias", "[cudnn]") {
  const auto change = GENERATE(values<void (*)(Problem&)>({
      [](Problem& p) {
        add_matrix(p, kMask, DataType::kBool, {1, 1, 64, 128});
      },
      [](Problem& p) {
        add_head_vector(p, kAlibiSlopes);
        p.band = Band::causal(Align::kBottomRight);
      },
      [](Problem& p) {
        add_matrix(p, kBias, DataType::kF16, {1, 4, 64, 128});
        p[kBias].stride[2] = 132;
      },
      [](Problem& p) {
        add_matrix(p, kBias, DataType::kF16, {2, 4, 1, 1});
      },
      [](Problem& p) {
        add_matrix(p, kBias, DataType::kF16, {2, 4, 1, 128});
      },
  }));
  for (Problem p : {forward(), backward()}) {
    change(p);
    CHECK(words_of(refusals({p, h200_with_cudnn()})) == "");
  }
}

TEST_CASE("a single head has a limit of scores in the workspace", "[cudnn]") {
  const auto engine = make_cudnn_engine("");
  const auto words = [&](const Problem& p) {
    return words_of(engine_support(*engine, p, h200_with_cudnn()).reasons);
  };
  const std::string limit =
      "scores in the workspace, of a bias or for dbias is 1600000000 for one sequence and kv head; needs at "
      "most "
      "1073741824: each takes 2 bytes, or 4\n";
  Problem p = forward_problem({2, 2, 2, 40000, 40000, 64, 64}, DataType::kBf16);
  add_matrix(p, kMask, DataType::kBool, {1, 1, 1, 40000});
  CHECK(words(p) == "");
  CHECK(words(backward_problem(p, {kDq, kDk, kDv})) == limit);
  add_matrix(p, kMask, DataType::kBool, {1, 1, 40000, 40000});
  CHECK(words(p) == limit);
  p[kMask] = {};
  add_matrix(p, kBias, DataType::kF16, {1, 1, 40000, 40000});
  CHECK(words(p) == "");
  p = backward_problem(p, {kDq, kDk, kDv});
  CHECK(words(p) == "");
  p[kDbias] = p[kBias];
  CHECK(words(p) == limit);
}

TEST_CASE("scores beyond int64 are a limit's answer", "[cudnn]") {
  constexpr int64_t kLen = int64_t{1} << 40;
  Problem p = forward_problem({1, 8, 8, kLen, kLen, 64, 64}, DataType::kBf16);
  add_head_vector(p, kAlibiSlopes);
  p.band.align = Align::kBottomRight;
  const std::string words = words_of(engine_support(*make_cudnn_engine(""), p, h200_with_cudnn()).reasons);
  CHECK(words.find("scores in the workspace, of a bias or for dbias is 9223372036854775807 for one") == 0);
}

TEST_CASE("a refused problem has every reason", "[cudnn]") {
  Problem p = forward();
  p.dropout_p = 0.5, p.scale = 0, p.io = DataType::kF32;
  CHECK(refusals({p, h200_with_cudnn()}).size() == 3);
}

TEST_CASE("a host target has one reason, and a process without cuDNN says where it looked", "[cudnn]") {
  CHECK(words_of(refusals({forward(), Target::cpu(1)})) == "target is host; needs a cuda device\n");
  const auto reasons = refusals({forward(), Target::h200(), "cudnn: not found at libcudnn.so.9"});
  CHECK(words_of(reasons).find("cudnn_version is none (cudnn: not found at libcudnn.so.9)") == 0);
}

TEST_CASE("every gate has a source", "[cudnn]") {
  for (const Gate& gate : gates()) CHECK(std::string(gate.source).size() > 8);
}
