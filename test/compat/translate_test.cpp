#include <functional>
#include <string>

#include "attngraph/json.hpp"
#include "compat/attention.hpp"
#include "support/catch.hpp"

// A stand-in for <cudnn.h>: what the header asks of it.
struct cudnnContext {
  CUstream_st* stream;
  int status;
};
enum StandInStatus { kStandInSuccess, kStandInFailure };
static StandInStatus cudnnGetStream(cudnnContext* handle, CUstream_st** stream) {
  *stream = handle->stream;
  return handle->status == 0 ? kStandInSuccess : kStandInFailure;
}

using namespace attngraph::test;
using attngraph::Align;
using attngraph::Band;
using attngraph::DataType;
using attngraph::parse;
using attngraph::Ragged;
using attngraph::SdpaForward;
using fe::graph::Graph;
using fe::graph::SDPA_attributes;
using fe::graph::Tensor_attributes;

namespace {

attngraph::Graph meaning(const Graph& graph) {
  const auto parsed = parse(graph.print());
  INFO(graph.print());
  REQUIRE(parsed.ok());
  return *parsed;
}

SdpaForward forward_of(const std::function<void(Graph&, SDPA_attributes&)>& say, Attention a = {}) {
  Graph graph = host_graph();
  auto options = options_of<SDPA_attributes>(a, graph);
  say(graph, options);
  const auto [o, stats] =
      graph.sdpa(add(graph, kQ, dims_q(a)), add(graph, kK, dims_kv(a)), add(graph, kV, dims_kv(a)), options);
  mark_output(o, kO, dims_q(a));
  return std::get<SdpaForward>(meaning(graph).nodes.at(0));
}

}  // namespace

TEST_CASE("the setters of masks mean bands", "[compat]") {
  struct Row {
    Band band;
    std::function<void(SDPA_attributes&)> say;
  };
  constexpr Align kCorner = Align::kBottomRight;
  const Row rows[] = {
      {{}, [](SDPA_attributes&) {}},
      {Band::causal(), [](SDPA_attributes& a) { a.set_causal_mask(true); }},
      {Band::causal(kCorner), [](SDPA_attributes& a) { a.set_causal_mask_bottom_right(true); }},
      {Band::causal(kCorner),
       [](SDPA_attributes& a) { a.set_causal_mask_bottom_right(true).set_causal_mask(false); }},
      {Band::causal(), [](SDPA_attributes& a) { a.set_diagonal_band_right_bound(3).set_causal_mask(true); }},
      {{Align::kTopLeft, 127, 0},
       [](SDPA_attributes& a) { a.set_causal_mask(true).set_sliding_window_length(128); }},
      {{kCorner, 0, 2},
       [](SDPA_attributes& a) {
         a.set_diagonal_alignment(fe::DiagonalAlignment_t::BOTTOM_RIGHT)
             .set_diagonal_band_left_bound(1)
             .set_diagonal_band_right_bound(2);
       }},
      {{Align::kTopLeft, -1, std::nullopt}, [](SDPA_attributes& a) { a.set_diagonal_band_left_bound(0); }},
  };
  for (const Row& row : rows)
    CHECK(forward_of([&](Graph&, SDPA_attributes& a) { row.say(a); }).attributes.band == row.band);
}

TEST_CASE("a scale is a value, a scalar of the graph, or 1", "[compat]") {
  const auto scale = [](const std::function<void(Graph&, SDPA_attributes&)>& say) {
    return forward_of(say).attributes.scale;
  };
  CHECK(scale([](Graph&, SDPA_attributes&) {}) == 1.0);
  CHECK(scale([](Graph&, SDPA_attributes& a) { a.set_attn_scale(0.1F); }) == double{0.1F});
  CHECK(scale([](Graph& g, SDPA_attributes& a) { a.set_attn_scale(g.tensor(0.5F)); }) == 0.5);
  CHECK(scale([](Graph& g, SDPA_attributes& a) {
          a.set_attn_scale(g.tensor(0.25F, fe::graph::ScalarType::COMPILE_TIME_CONST));
        }) == 0.25);
}

TEST_CASE("dropout of probability 0 is none, and that of the contract when it is asked for", "[compat]") {
  const auto seeds = [](Graph& g, SDPA_attributes& a, float probability) {
    a.set_dropout(probability, add(g, 21, {1, 1, 1, 1}, fe::DataType_t::INT64),
                  add(g, 22, {1, 1, 1, 1}, fe::DataType_t::INT64));
  };
  const SdpaForward none = forward_of([&](Graph& g, SDPA_attributes& a) { seeds(g, a, 0); });
  CHECK(none.attributes.dropout_p == 0);
  CHECK_FALSE(none.dropout_seed);
  const SdpaForward drops = forward_of([&](Graph& g, SDPA_attributes& a) {
    fe::graph::Attngraph_options options;
    options.contract_dropout = true;
    g.set_attngraph_options(options);
    seeds(g, a, 0.5F);
  });
  CHECK(drops.attributes.dropout_p == 0.5);
  CHECK(drops.dropout_seed == 21);
  CHECK(drops.dropout_offset == 22);
}

TEST_CASE("types come from the graph where a tensor has none", "[compat]") {
  Graph graph;
  graph.set_io_data_type(fe::DataType_t::BFLOAT16).set_intermediate_data_type(fe::DataType_t::FLOAT);
  const auto plain = [&](int64_t uid) {
    return graph.tensor(
        Tensor_attributes().set_uid(uid).set_dim({1, 2, 8, 16}).set_stride({256, 128, 16, 1}));
  };
  const auto [o, stats] =
      graph.sdpa(plain(1), plain(2), plain(3), SDPA_attributes().set_generate_stats(true));
  o->set_output(true).set_uid(4).set_dim({1, 2, 8, 16}).set_stride({256, 128, 16, 1});
  stats->set_output(true).set_uid(5).set_data_type(fe::DataType_t::FLOAT);
  const attngraph::Graph made = meaning(graph);
  CHECK(made.find(1)->dtype == DataType::kBf16);
  CHECK(made.find(4)->dtype == DataType::kBf16);
  CHECK(made.find(5)->dtype == DataType::kF32);
  CHECK(made.find(5)->dims == std::vector<int64_t>{1, 2, 8, 1});  // inferred
  CHECK(made.find(5)->strides == std::vector<int64_t>{16, 8, 1, 1});
}

TEST_CASE("packed tensors have offsets in elements and a capacity", "[compat]") {
  Attention a;
  a.q_lengths = {5, 3}, a.kv_lengths = {7, 4};
  Graph graph = host_graph();
  const auto options = options_of<SDPA_attributes>(a, graph).set_max_total_seq_len_q(9);
  const Tensor_t q = add(graph, kQ, dims_q(a)), offsets = add(graph, 40, {3, 1, 1, 1}, fe::DataType_t::INT64);
  q->set_ragged_offset(offsets);
  const auto [o, stats] = graph.sdpa(q, add(graph, kK, dims_kv(a)), add(graph, kV, dims_kv(a)), options);
  mark_output(o, kO, dims_q(a));
  const attngraph::Graph made = meaning(graph);
  CHECK(made.find(kQ)->ragged == Ragged{40, 1});
  CHECK(made.find(40)->dtype == DataType::kI64);
  CHECK(made.find(40)->alignment == 8);  // an element's: views of lengths and offsets are common
  CHECK(std::get<SdpaForward>(made.nodes[0]).attributes.max_total_q == 9);
}

TEST_CASE("pages, their tables and the sink lose their unit axes", "[compat]") {
  Attention a;
  a.heads = 4, a.kv_heads = 2, a.q_lengths = {5, 3}, a.kv_lengths = {7, 4};
  Graph graph = host_graph();
  auto options = options_of<SDPA_attributes>(a, graph);
  options.set_paged_attention_k_table(add(graph, 50, {2, 1, 4, 1}, fe::DataType_t::INT32))
      .set_paged_attention_v_table(add(graph, 51, {2, 1, 4, 1}, fe::DataType_t::INT32))
      .set_sink_token(add(graph, kSink, {1, 4, 1, 1}));
  SECTION("the length is said") { options.set_paged_attention_max_seq_len_kv(7); }
  SECTION("the length is the bias's") { options.set_bias(add(graph, kBias, {1, 1, 5, 7})); }
  const auto [o, stats] = graph.sdpa(add(graph, kQ, dims_q(a)), add(graph, kK, {9, 2, 2, 4}),
                                     add(graph, kV, {9, 2, 2, 4}), options);
  mark_output(o, kO, dims_q(a));
  const attngraph::Graph made = meaning(graph);
  CHECK(made.find(50)->dims == std::vector<int64_t>{2, 4});
  CHECK(made.find(50)->strides == std::vector<int64_t>{4, 1});
  CHECK(made.find(kSink)->dims == std::vector<int64_t>{4});
  CHECK(std::get<SdpaForward>(made.nodes[0]).attributes.max_seq_len_kv == 7);
}

TEST_CASE("a key is equal for graphs that mean the same, built or not", "[compat]") {
  Attention a;
  const size_t plain = forward(a).key();
  CHECK(forward(a).key() == plain);
  Graph built = forward(a);
  REQUIRE(built.build({fe::HeurMode_t::A}).is_good());
  CHECK(built.key() == plain);
  a.scale = 0.5F;
  CHECK(forward(a).key() != plain);

  // A scale that comes with each call is another graph than the scale 1 that stands for it in JSON.
  const auto with_scale = [](int64_t uid) {
    Graph graph = host_graph();
    SDPA_attributes options;
    if (uid != 0) {
      const Tensor_t scale = add(graph, uid, {1, 1, 1, 1});
      scale->set_is_pass_by_value(true);
      options.set_attn_scale(scale);
    }
    const Attention b;
    const auto [o, stats] = graph.sdpa(add(graph, kQ, dims_q(b)), add(graph, kK, dims_kv(b)),
                                       add(graph, kV, dims_kv(b)), options);
    mark_output(o, kO, dims_q(b));
    return graph;
  };
  CHECK(with_scale(20).print() == with_scale(0).print());
  CHECK(with_scale(20).key() == with_scale(20).key());
  CHECK(with_scale(20).key() != with_scale(0).key());
  CHECK(with_scale(20).key() != with_scale(21).key());
}

TEST_CASE("the stream is the handle's", "[compat]") {
  int place = 0;
  cudnnContext context{reinterpret_cast<CUstream_st*>(&place), 0};
  void* stream = nullptr;
  CHECK(fe::detail::stream_of(&context, stream).is_good());
  CHECK(stream == &place);
  context.status = 1;
  CHECK(fe::detail::stream_of(&context, stream).get_message() == "cudnnGetStream: returns 1");
  cudnnContext* const none = nullptr;
  CHECK(fe::detail::stream_of(none, stream) == fe::error_code_t::HANDLE_ERROR);
}
