#include <functional>
#include <string>

#include "attngraph/json.hpp"
#include "compat/attention.hpp"
#include "support/catch.hpp"

using namespace attngraph::test;
using fe::error_code_t;
using fe::graph::Graph;
using fe::graph::Pointwise_attributes;
using fe::graph::SDPA_attributes;
using fe::graph::SDPA_backward_attributes;
using fe::graph::Tensor_attributes;

namespace {

const Attention kPlain;

/// A forward whose options were changed.
Graph changed(const std::function<void(Graph&, SDPA_attributes&)>& change) {
  Graph graph = host_graph();
  SDPA_attributes options;
  options.set_name("attention");
  change(graph, options);
  const auto [o, stats] = graph.sdpa(add(graph, kQ, dims_q(kPlain)), add(graph, kK, dims_kv(kPlain)),
                                     add(graph, kV, dims_kv(kPlain)), options);
  mark_output(o, kO, dims_q(kPlain));
  if (stats != nullptr) stats->set_output(true);
  return graph;
}

Tensor_t vector(Graph& graph, int64_t uid, fe::DataType_t type = fe::DataType_t::INT32) {
  return add(graph, uid, {2, 1, 1, 1}, type);
}
Tensor_t scores(Graph& graph, fe::DataType_t type = fe::DataType_t::FLOAT) {
  return add(graph, 30, {2, 3, 5, 7}, type);
}
Pointwise_attributes op(const char* name, fe::PointwiseMode_t mode) {
  return Pointwise_attributes().set_name(name).set_mode(mode);
}

struct Row {
  error_code_t code;
  std::string words;
  std::function<void(Graph&, SDPA_attributes&)> change;
};

}  // namespace

TEST_CASE("what has no counterpart is refused by validate with the reason", "[compat]") {
  constexpr error_code_t kNot = error_code_t::GRAPH_NOT_SUPPORTED, kInvalid = error_code_t::INVALID_VALUE;
  const Row rows[] = {
      {kNot,
       "node 0 \"attention\", dropout_probability: is 0.125; must be 0, as the elements that cuDNN drops are "
       "not known",
       [](Graph& g, SDPA_attributes& a) {
         a.set_dropout(0.125F, vector(g, 21, fe::DataType_t::INT64), vector(g, 22, fe::DataType_t::INT64));
       }},
      {kNot, "Dropout_mask: is given; must be absent, dropout draws its own elements",
       [](Graph& g, SDPA_attributes& a) { a.set_dropout(scores(g), vector(g, 21)); }},
      {kNot, "Block_mask: is given; must be absent, blocks of keys cannot be masked",
       [](Graph& g, SDPA_attributes& a) {
         a.set_block_mask(add(g, 30, {2, 3, 1, 1}, fe::DataType_t::UINT8));
       }},
      {kNot, "Max: is given; must be absent, the greatest score of a row is not written",
       [](Graph& g, SDPA_attributes& a) {
         a.set_logit_max(add(g, 30, {2, 3, 5, 1}));
       }},
      {kNot, "Sum_exp: is given; must be absent, the sum of a row is not written",
       [](Graph& g, SDPA_attributes& a) {
         a.set_score_sum_exp(add(g, 30, {2, 3, 5, 1}));
       }},
      {kNot, "RNG_DUMP: is given; must be absent, the elements that dropout draws are not written",
       [](Graph& g, SDPA_attributes& a) { a.set_rng_dump(scores(g)); }},
      {kNot, "Bias (uid 30 \"\"): is bool; must be a float type, a bias is added to the scores",
       [](Graph& g, SDPA_attributes& a) { a.set_bias(scores(g, fe::DataType_t::BOOLEAN)); }},
      {kNot, "Bias (uid 30 \"\"): is of type DataType_t 4; must be of a type that attngraph has",
       [](Graph& g, SDPA_attributes& a) { a.set_bias(scores(g, fe::DataType_t::INT8)); }},
      {kNot, "Bias (uid 30 \"\"): is fp8_e4m3; must be f32, f16 or bf16",
       [](Graph& g, SDPA_attributes& a) { a.set_bias(scores(g, fe::DataType_t::FP8_E4M3)); }},
      {kNot, "Bias (uid 30 \"\"): is reordered; must have reordering NONE",
       [](Graph& g, SDPA_attributes& a) {
         const Tensor_t bias = scores(g);
         bias->set_reordering_type(fe::TensorReordering_t::F16x16);
         a.set_bias(bias);
       }},
      {kNot, "SINK_TOKEN (uid 1000 \"\"): is passed by value; must lie in the memory of the target",
       [](Graph& g, SDPA_attributes& a) {
         const Tensor_t sink = g.tensor(0.5F);
         sink->set_uid(1000);
         a.set_sink_token(sink);
       }},
      {kNot, "alibi_mask: is true with diagonal_alignment BOTTOM_RIGHT; must be with TOP_LEFT",
       [](Graph&, SDPA_attributes& a) { a.set_alibi_mask(true).set_causal_mask_bottom_right(true); }},
      {kNot, "Attn_scale (uid 30 \"\"): lies in the memory of the target; must be passed by value",
       [](Graph& g, SDPA_attributes& a) {
         a.set_attn_scale(add(g, 30, {1, 1, 1, 1}));
       }},
      {kNot, "Attn_scale (uid 30 \"\"): is f16; must be f32 to be passed by value",
       [](Graph& g, SDPA_attributes& a) {
         const Tensor_t scale = add(g, 30, {1, 1, 1, 1}, fe::DataType_t::HALF);
         scale->set_is_pass_by_value(true);
         a.set_attn_scale(scale);
       }},
      {kInvalid, "attn_scale: is 0.5 and a tensor; must be one of them",
       [](Graph& g, SDPA_attributes& a) { a.set_attn_scale(0.5F).set_attn_scale(g.tensor(0.25F)); }},
      {kInvalid, "padding_mask: is true with SEQ_LEN_Q absent and SEQ_LEN_KV absent",
       [](Graph&, SDPA_attributes& a) { a.set_padding_mask(true); }},
      {kInvalid, "padding_mask: is true with SEQ_LEN_Q given and SEQ_LEN_KV absent",
       [](Graph& g, SDPA_attributes& a) { a.set_padding_mask(true).set_seq_len_q(vector(g, 21)); }},
      {kInvalid, "padding_mask: is false with SEQ_LEN_Q given and SEQ_LEN_KV given",
       [](Graph& g, SDPA_attributes& a) { a.set_seq_len_q(vector(g, 21)).set_seq_len_kv(vector(g, 22)); }},
      {kInvalid, "tensor uid 1 \"\": has the uid of another tensor; must have its own",
       [](Graph& g, SDPA_attributes& a) {
         a.set_bias(add(g, kQ, {2, 3, 5, 7}));
       }},
      {kInvalid, "Bias (uid 30 \"\"): has 4 dims and 0 strides; must have both set",
       [](Graph& g, SDPA_attributes& a) {
         a.set_bias(g.tensor(
             Tensor_attributes().set_uid(30).set_dim({1, 1, 5, 7}).set_data_type(fe::DataType_t::FLOAT)));
       }},
      {kNot, "score_mod: operation 0 \"relu\" is something else; must be a softcap",
       [](Graph&, SDPA_attributes& a) {
         a.set_score_mod([](std::shared_ptr<Graph> g, Tensor_t score) {
           return g->pointwise(score, op("relu", fe::PointwiseMode_t::RELU_FWD));
         });
       }},
      {kNot, "score_mod: operation 1 \"divide\" is something else; must be a softcap",  // of x + bias
       [](Graph& g, SDPA_attributes& a) {
         const Tensor_t bias = scores(g), cap = g.tensor(2.0F);
         a.set_score_mod([=](std::shared_ptr<Graph> made, Tensor_t score) {
           const Tensor_t sum = fe::graph::attn::score_modifiers::bias(made, score, bias);
           return made->pointwise(sum, cap, op("divide", fe::PointwiseMode_t::DIV));
         });
       }},
      {kNot,
       "score_mod: operation 1 \"softcap_tanh\" is something else; must be a softcap (divided by a positive",
       [](Graph& g, SDPA_attributes& a) {
         const Tensor_t cap = g.tensor(-2.0F);
         a.set_score_mod([=](std::shared_ptr<Graph> made, Tensor_t score) {
           return fe::graph::attn::score_modifiers::Softcap().forward(made, score, cap);
         });
       }},
      {kNot, "score_mod: returns another tensor than its last operation",
       [](Graph& g, SDPA_attributes& a) {
         const Tensor_t bias = scores(g);
         a.set_score_mod([=](std::shared_ptr<Graph> made, Tensor_t score) {
           static_cast<void>(fe::graph::attn::score_modifiers::bias(made, score, bias));
           return score;
         });
       }},
      {kNot, "score_mod: adds a bias beside Bias; must be one of them",
       [](Graph& g, SDPA_attributes& a) {
         const Tensor_t bias = scores(g);
         a.set_bias(bias).set_score_mod([=](std::shared_ptr<Graph> made, Tensor_t score) {
           return fe::graph::attn::score_modifiers::bias(made, score, bias);
         });
       }},
      {kNot, "node 1 \"after\": is a pointwise operation; must be attention, or a score modifier's operation",
       [](Graph& g, SDPA_attributes&) {
         static_cast<void>(g.pointwise(scores(g), op("after", fe::PointwiseMode_t::EXP)));
       }},
  };
  for (const Row& row : rows) {
    const fe::error_t error = changed(row.change).validate();
    INFO("want " << row.words << "\ngot  " << error.get_message());
    CHECK(error == row.code);
    CHECK(error.get_message().find(row.words) != std::string::npos);
  }
}

TEST_CASE("attention with fp8 scales is described, then refused", "[compat]") {
  Graph graph = host_graph();
  const Tensor_t q = add(graph, kQ, dims_q(kPlain)), one = add(graph, 30, {1, 1, 1, 1});
  const auto [o, stats, amax_s, amax_o] =
      graph.sdpa_fp8(q, q, q, one, one, one, one, one, one, SDPA_attributes().set_name("fp8"));
  CHECK(stats == nullptr);
  CHECK((o != nullptr && amax_s != nullptr && amax_o != nullptr));
  const fe::error_t error = graph.validate();
  CHECK(error == error_code_t::GRAPH_NOT_SUPPORTED);
  CHECK(error.get_message() == "node 0 \"fp8\": is attention with fp8 scales; must be in f32, f16 or bf16");
}

TEST_CASE("a gradient of a score modifier must be its own", "[compat]") {
  const auto refusal = [](bool with_forward,
                          const std::function<Tensor_t(Graph&, Tensor_t, Tensor_t)>& gradient) {
    Graph graph = host_graph();
    SDPA_backward_attributes options;
    const Tensor_t cap = graph.tensor(2.0F);
    if (with_forward)
      options.set_score_mod([=](std::shared_ptr<Graph> made, Tensor_t score) {
        return fe::graph::attn::score_modifiers::Softcap().forward(made, score, cap);
      });
    if (gradient)
      options.set_score_mod_bprop(
          [=](std::shared_ptr<Graph> made, Tensor_t score) { return gradient(*made, score, cap); });
    const Tensor_t q = add(graph, kQ, dims_q(kPlain)), k = add(graph, kK, dims_kv(kPlain));
    const auto [dq, dk, dv] =
        graph.sdpa_backward(q, k, add(graph, kV, dims_kv(kPlain)), add(graph, kO, dims_q(kPlain)),
                            add(graph, kDo, dims_q(kPlain)), add(graph, kStats, {2, 3, 5, 1}), options);
    mark_output(dq, kDq, dims_q(kPlain));
    return graph.validate().get_message();
  };
  CHECK(refusal(true, nullptr) ==
        "node 0 \"\", score_mod: is given and score_mod_bprop is not; must be both or neither");
  CHECK(refusal(false, [](Graph&, Tensor_t score, Tensor_t) { return score; }) ==
        "node 0 \"\", score_mod: is absent and score_mod_bprop is not; must be both or neither");
  CHECK(refusal(true,
                [](Graph& made, Tensor_t score, Tensor_t cap) {
                  return made.pointwise(score, cap, op("halved", fe::PointwiseMode_t::DIV));
                })
            .find("score_mod_bprop: operation 0 \"halved\" is something else; must be the gradient of "
                  "score_mod") != std::string::npos);
}

TEST_CASE("steps that lack what they need say so", "[compat]") {
  Graph graph = changed([](Graph&, SDPA_attributes&) {});
  int64_t bytes = 0;
  CHECK(graph.get_workspace_size(bytes).get_message() ==
        "get_workspace_size: there is no plan; must be called after build_plans() returned OK");
  CHECK(graph.get_workspace_size() == -1);
  Pack pack;
  CHECK(graph.execute(nullptr, pack, nullptr).get_message() ==
        "execute: there is no plan; must be called after build_plans() returned OK");
  CHECK(graph.populate_cuda_graph(nullptr, pack, nullptr, nullptr) ==
        error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED);
  REQUIRE(graph.build({fe::HeurMode_t::A}).is_good());
  CHECK(graph.execute(nullptr, pack, nullptr) == error_code_t::INVALID_VARIANT_PACK);
  CHECK(graph.execute(nullptr, pack, nullptr, {1}, {{1}}, {{1}})
            .get_message()
            .find("override_shapes: are given for 1 tensors; must be those of the graph") == 0);
  void* pointers[1] = {};
  CHECK(graph.execute(nullptr, pointers, 1, nullptr).get_message() ==
        "pointers: are 1; must be 4, one a tensor");

  graph.select_behavior_notes({fe::BehaviorNote_t::SUPPORTS_CUDA_GRAPH_NATIVE_API});
  CHECK(graph.check_support().is_good());
  graph.select_behavior_notes({fe::BehaviorNote_t::RUNTIME_COMPILATION});
  CHECK(graph.check_support().get_message() ==
        "select_behavior_notes: has note 1; must be SUPPORTS_CUDA_GRAPH_NATIVE_API alone");
}

TEST_CASE("a graph whose JSON does not say all is not serialized", "[compat]") {
  Attention a;
  a.alibi = true, a.right = 0;
  Graph graph = forward(a);
  REQUIRE(graph.build({fe::HeurMode_t::A}).is_good());
  std::vector<uint8_t> bytes;
  const fe::error_t error = graph.serialize(bytes);
  CHECK(error == error_code_t::GRAPH_NOT_SUPPORTED);
  CHECK(error.get_message().find("serialize: the graph has alibi_mask or an attn_scale in host memory") == 0);
}

TEST_CASE("programs refuse what they cannot be made from or run with", "[compat]") {
  namespace compat = attngraph::compat;
  compat::FrontendGraph dangling;
  dangling.nodes.push_back({compat::NodeKind::kForward, "attention", {{"Q", 5}}, {}, {}});
  CHECK(compat::translate(dangling).status().message() ==
        "uid 5: is named by a node; must be that of a tensor");
  CHECK(compat::Program::make({}, {}).status().message() ==
        "context: is null; must be one that outlives the program");

  Attention a;
  Graph on_device = forward(a);
  fe::graph::Attngraph_options options;
  options.target = attngraph::Target::h200();
  on_device.set_attngraph_options(options).set_sm_count(500);
  CHECK(on_device.build({fe::HeurMode_t::A}).get_message() == "sm_count: is 500; must be 1 .. 132");

  a.alibi = true, a.right = 0;
  a.draw(1);
  Graph graph = forward(a);
  REQUIRE(graph.build({fe::HeurMode_t::A}).is_good());
  Scratch workspace(graph);
  Output output{std::vector<float>(a.q.size()), std::vector<float>(a.q.size() / 4)};
  Pack pack = pack_of(a);
  pack[kO] = output.o.data(), pack[kStats] = output.stats.data();
  CHECK(graph.execute(nullptr, pack, nullptr).get_message().find("workspace: is null; must hold ") == 0);
  const fe::error_t misaligned =
      graph.execute(nullptr, pack, static_cast<unsigned char*>(workspace.data()) + 1);
  CHECK(misaligned == error_code_t::INVALID_VARIANT_PACK);
  CHECK(misaligned.get_message().find("must be 256-byte aligned, as derived slopes are written there") !=
        std::string::npos);
}
