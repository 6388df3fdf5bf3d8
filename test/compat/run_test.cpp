#include <cmath>
#include <limits>
#include <string>

#include "attngraph/json.hpp"
#include "compat/attention.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

/// Contract section 8, float32: forward 2e-5, backward 1e-4 of the tensor's own magnitude. Here the oracle's
/// central differences of step 1e-2 are off by step^2 / 6 times a third derivative, of the order of 1e-4.
constexpr double kForward = 2e-5, kStatsTolerance = 1e-4, kGradient = 2e-3;

void check_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t at = 0; at < got.size(); ++at) {
    INFO("element " << at << ": " << got[at] << " for " << want[at]);
    if (std::isinf(want[at])) {
      CHECK(got[at] == want[at]);
    } else {
      CHECK(std::abs(got[at] - want[at]) <= tolerance * (1 + std::abs(double{want[at]})));
    }
  }
}

struct Row {
  const char* why;
  Attention a;
};
std::vector<Row> rows() {
  std::vector<Row> made;
  const auto row = [&](const char* why) -> Attention& {
    made.push_back({why, {}});
    return made.back().a;
  };
  row("a scale that is not set is 1");
  row("a scale").scale = 0.25F;
  row("right bound 0: keys up to the row's").right = 0;
  row("left bound 1: no key before the row's own").left = 1;
  Attention& window = row("a window of 3 keys, the row's own included");
  window.left = 3, window.right = 0;
  Attention& ahead = row("a band that reaches ahead");
  ahead.left = 2, ahead.right = 2;
  Attention& bottom = row("the band's diagonal ends in the corner");
  bottom.bottom_right = true, bottom.left = 2, bottom.right = 0;
  Attention& lengths = row("lengths");
  lengths.q_lengths = {5, 3}, lengths.kv_lengths = {7, 4};
  Attention& corner = row("the corner is that of each sequence's lengths");
  corner.q_lengths = {5, 3}, corner.kv_lengths = {7, 4}, corner.bottom_right = true, corner.right = 0;
  Attention& grouped = row("two query heads to a kv head");
  grouped.heads = 4, grouped.kv_heads = 2, grouped.scale = 0.5F;
  Attention& alibi = row("slopes from the number of heads");
  alibi.alibi = true, alibi.right = 0;
  row("a softcap by score modifiers").softcap = 0.8F;
  Attention& biased = row("a bias, not scaled");
  biased.scale = 0.3F;
  for (int i = 0; i < 3 * 5 * 7; ++i) biased.bias.push_back(0.1F * static_cast<float>(i % 11) - 0.5F);
  Attention& sink = row("a sink in the denominator");
  sink.sink = {0.5F, -1.0F, 2.0F}, sink.right = 0;
  uint32_t seed = 1;
  for (Row& each : made) each.a.draw(seed++);
  return made;
}

}  // namespace

TEST_CASE("forward graphs give what cuDNN documents", "[compat]") {
  for (Row& row : rows()) {
    INFO(row.why);
    fe::graph::Graph graph = forward(row.a);
    const fe::error_t built = graph.build(nullptr, {fe::HeurMode_t::A});
    INFO(built.get_message());
    REQUIRE(built.is_good());
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Output got{std::vector<float>(row.a.q.size(), nan), std::vector<float>(row.a.q.size() / 4, nan)};
    Pack pack = pack_of(row.a);
    pack[kO] = got.o.data(), pack[kStats] = got.stats.data();
    Scratch workspace(graph);
    const fe::error_t ran = graph.execute(nullptr, pack, workspace.data());
    INFO(ran.get_message());
    REQUIRE(ran.is_good());
    const Output want = documented(row.a);
    check_near(got.o, want.o, kForward);
    check_near(got.stats, want.stats, kStatsTolerance);
  }
}

TEST_CASE("backward graphs give the slopes of what cuDNN documents", "[compat]") {
  for (Row& row : rows()) {
    INFO(row.why);
    fe::graph::Graph graph = backward(row.a);
    const fe::error_t built = graph.build(nullptr, {fe::HeurMode_t::A});
    INFO(built.get_message());
    REQUIRE(built.is_good());
    Output made = documented(row.a);
    std::vector<float> dq(row.a.q.size()), dk(row.a.k.size()), dv(row.a.v.size()), dbias(row.a.bias.size()),
        dsink(row.a.sink.size());
    Pack pack = pack_of(row.a);
    pack[kO] = made.o.data(), pack[kStats] = made.stats.data(), pack[kDo] = row.a.o_gradient.data();
    pack[kDq] = dq.data(), pack[kDk] = dk.data(), pack[kDv] = dv.data();
    if (!dbias.empty()) pack[kDbias] = dbias.data();
    if (!dsink.empty()) pack[kDsink] = dsink.data();
    Scratch workspace(graph);
    const fe::error_t ran = graph.execute(nullptr, pack, workspace.data());
    INFO(ran.get_message());
    REQUIRE(ran.is_good());
    const auto check = [&](const char* name, const std::vector<float>& got,
                           std::vector<float> Attention::*of) {
      INFO(name);
      std::vector<float> want;
      for (size_t at = 0; at < got.size(); ++at) want.push_back(static_cast<float>(slope(row.a, of, at)));
      check_near(got, want, kGradient);
    };
    check("dq", dq, &Attention::q), check("dk", dk, &Attention::k), check("dv", dv, &Attention::v);
    check("dbias", dbias, &Attention::bias), check("dsink", dsink, &Attention::sink);
  }
}

TEST_CASE("pointers go by tensor, by uid and by place alike", "[compat]") {
  Attention a;
  a.draw(7);
  fe::graph::Graph graph = host_graph();
  const Tensor_t q = graph.tensor_like(add(graph, 70, dims_q(a)), "q");
  const Tensor_t k = graph.tensor_like(add(graph, 71, dims_kv(a))), v = graph.tensor_like(k);
  CHECK(q->get_name() == "q");
  CHECK_FALSE(q->has_uid());  // a uid is not copied
  k->set_uid(2);
  const auto [o, stats] = graph.sdpa(q, k, v, fe::graph::SDPA_attributes());
  CHECK(stats == nullptr);  // not asked for
  o->set_output(true).set_dim(dims_q(a)).set_stride(q->get_stride());
  REQUIRE(graph.build({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_good());
  CHECK(q->get_uid() == 1);  // the free ones, in the order of the ports
  CHECK(v->get_uid() == 3);
  CHECK(o->get_uid() == 4);
  CHECK(graph.get_variant_pack_uids_sorted() == std::vector<int64_t>{1, 2, 3, 4});

  const std::vector<float> want = documented(a).o;
  Scratch workspace(graph);
  std::vector<float> got(want.size());
  std::unordered_map<Tensor_t, void*> by_tensor = {
      {q, a.q.data()}, {k, a.k.data()}, {v, a.v.data()}, {o, got.data()}, {nullptr, nullptr}};
  REQUIRE(graph.execute(nullptr, by_tensor, workspace.data()).is_good());
  check_near(got, want, kForward);

  got.assign(got.size(), 0);
  Pack by_uid = {{1, a.q.data()}, {2, a.k.data()}, {3, a.v.data()}, {4, got.data()}, {99, nullptr}};
  REQUIRE(graph.execute(nullptr, by_uid, workspace.data()).is_good());
  check_near(got, want, kForward);

  got.assign(got.size(), 0);
  void* sorted[] = {a.q.data(), a.k.data(), a.v.data(), got.data()};
  REQUIRE(graph.execute(nullptr, sorted, 4, workspace.data()).is_good());
  check_near(got, want, kForward);
}

TEST_CASE("a scale in host memory is read at each call", "[compat]") {
  Attention a;
  a.draw(3);
  fe::graph::Graph graph = host_graph();
  Context context;
  fe::graph::Attngraph_options options;
  options.context = &context, options.target = Target::cpu(1);
  graph.set_attngraph_options(options);
  const Tensor_t scale = graph.tensor(fe::graph::Tensor_attributes()
                                          .set_uid(20)
                                          .set_dim({1, 1, 1, 1})
                                          .set_stride({1, 1, 1, 1})
                                          .set_is_pass_by_value(true)
                                          .set_data_type(fe::DataType_t::FLOAT));
  const auto [o, stats] =
      graph.sdpa(add(graph, kQ, dims_q(a)), add(graph, kK, dims_kv(a)), add(graph, kV, dims_kv(a)),
                 fe::graph::SDPA_attributes().set_attn_scale(scale));
  mark_output(o, kO, dims_q(a));
  REQUIRE(graph.build(nullptr, {fe::HeurMode_t::A}).is_good());
  Scratch workspace(graph);
  std::vector<float> got(a.q.size());
  float value = 0;
  Pack pack = pack_of(a);
  pack[kO] = got.data(), pack[20] = &value;
  for (const float each : {0.5F, 0.125F, 0.5F}) {
    value = each, a.scale = each;
    REQUIRE(graph.execute(nullptr, pack, workspace.data()).is_good());
    check_near(got, documented(a).o, kForward);
  }
  CHECK(context.cache_statistics().builds == 3);  // scale 1 while planning, then each once
  pack.erase(20);
  const fe::error_t missing = graph.execute(nullptr, pack, workspace.data());
  CHECK(missing.get_code() == fe::error_code_t::INVALID_VARIANT_PACK);
  CHECK(missing.get_message() == "Attn_scale (uid 20): is not bound; must be a float in host memory");
}

TEST_CASE("forward and backward in one graph share what lies between them", "[compat]") {
  Attention a;
  a.draw(5);
  fe::graph::Graph graph = host_graph();
  const Tensor_t q = add(graph, kQ, dims_q(a)), k = add(graph, kK, dims_kv(a)),
                 v = add(graph, kV, dims_kv(a));
  const auto [o, stats] = graph.sdpa(q, k, v, fe::graph::SDPA_attributes().set_generate_stats(true));
  o->set_dim(dims_q(a)).set_stride(q->get_stride());  // both stay virtual
  const auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, o, add(graph, kDo, dims_q(a)), stats,
                                                fe::graph::SDPA_backward_attributes());
  mark_output(dv, kDv, dims_kv(a));  // dq and dk are not asked for
  const fe::error_t built = graph.build(nullptr, {fe::HeurMode_t::A});
  INFO(built.get_message());
  REQUIRE(built.is_good());
  std::vector<float> got(a.v.size());
  Pack pack = pack_of(a);
  pack[kDo] = a.o_gradient.data(), pack[kDv] = got.data();
  Scratch workspace(graph);
  const fe::error_t ran = graph.execute(nullptr, pack, workspace.data());
  INFO(ran.get_message());
  REQUIRE(ran.is_good());
  std::vector<float> want;
  for (size_t at = 0; at < got.size(); ++at) want.push_back(static_cast<float>(slope(a, &Attention::v, at)));
  check_near(got, want, kGradient);
}

TEST_CASE("a graph goes through its bytes and runs by uid", "[compat]") {
  Attention a;
  a.draw(9), a.right = 0, a.bottom_right = true;
  fe::graph::Graph graph = forward(a), again = host_graph();
  std::vector<uint8_t> bytes;
  CHECK(graph.serialize(bytes).get_message() ==
        "serialize: there is no plan; must be called after build_plans() returned OK");
  REQUIRE(graph.build({fe::HeurMode_t::A}).is_good());
  REQUIRE(graph.serialize(bytes).is_good());
  CHECK(parse(std::string(bytes.begin(), bytes.end())).ok());
  REQUIRE(again.deserialize(nullptr, bytes).is_good());
  CHECK(again.key() == graph.key());
  Output got{std::vector<float>(a.q.size()), std::vector<float>(a.q.size() / 4)};
  Pack pack = pack_of(a);
  pack[kO] = got.o.data(), pack[kStats] = got.stats.data();
  Scratch workspace(again);
  REQUIRE(again.execute(nullptr, pack, workspace.data()).is_good());
  check_near(got.o, documented(a).o, kForward);
  bytes.pop_back();
  CHECK(again.deserialize(nullptr, bytes).is_bad());
}
