#include "attngraph/training.hpp"

#include <set>

#include "graph/fields.hpp"
#include "support/catch.hpp"

using namespace attngraph;

namespace {

using Values = std::vector<int64_t>;

constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kQLen = 3, kKvLen = 5, kDim = 8, kVDim = 6;

/// A dense forward with every input that has a gradient.
Graph dense_forward() {
  Graph graph;
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kBf16, bshd({kBatch, kHeads, kQLen, kDim}));
  node.k = graph.tensor("k", DataType::kBf16, bhsd({kBatch, kKvHeads, kKvLen, kDim}));
  node.v = graph.tensor("v", DataType::kBf16, sbhd({kBatch, kKvHeads, kKvLen, kVDim}));
  node.bias = graph.tensor("bias", DataType::kF32, dense({1, kHeads, kQLen, kKvLen}));
  node.sink = graph.vector("sink", DataType::kF32, kHeads);
  node.alibi_slopes = graph.vector("slopes", DataType::kF32, kHeads);
  node.attributes.softcap = 20.0;
  node.attributes.band = Band::causal(Align::kBottomRight);
  graph.sdpa_forward(node);
  return graph;
}

/// A packed forward whose q counts tokens by `multiplier` elements per unit of its offsets.
Graph ragged_forward(const Layout& q, int64_t multiplier) {
  Graph graph;
  SdpaForward node;
  const Uid q_offsets = graph.vector("q_offsets", DataType::kI32, kBatch + 1);
  const Uid kv_offsets = graph.vector("kv_offsets", DataType::kI64, kBatch + 1);
  node.q = graph.tensor("q", DataType::kF16, q, Ragged{q_offsets, multiplier});
  const Layout k = interleaved({kBatch, kKvHeads, kKvLen, kDim}, 2, 0);
  node.k = graph.tensor("k", DataType::kF16, k, Ragged{kv_offsets, k.strides[2]});
  node.v = graph.tensor("v", DataType::kF16, k, Ragged{kv_offsets, k.strides[2]});
  node.seq_len_q = graph.vector("q_lens", DataType::kI32, kBatch);
  node.seq_len_kv = graph.vector("kv_lens", DataType::kI32, kBatch);
  node.attributes.max_total_q = 7;
  graph.sdpa_forward(node);
  return graph;
}

SdpaForward& forward_of(Graph& graph) { return std::get<SdpaForward>(graph.nodes.at(0)); }
const SdpaForward& forward_of(const TrainingPair& pair) {
  return std::get<SdpaForward>(pair.forward.nodes.at(0));
}
const SdpaBackward& backward_of(const TrainingPair& pair) {
  return std::get<SdpaBackward>(pair.backward.nodes.at(0));
}
const Tensor& at(const Graph& graph, const Port& port) { return *graph.find(port.value()); }

TrainingPair pair_of(const Graph& graph, const Gradients& wanted) {
  const Result<TrainingPair> pair = training_pair(graph, wanted);
  INFO(pair.status().message());
  REQUIRE(pair.ok());
  return *pair;
}

Gradients only_q() {
  Gradients wanted;
  wanted.q = true;
  return wanted;
}

std::string refusal_of(const Graph& graph, const Gradients& wanted) {
  const Result<TrainingPair> pair = training_pair(graph, wanted);
  REQUIRE_FALSE(pair.ok());
  CHECK(pair.status().code() == Code::kInvalidGraph);
  return pair.status().message();
}

/// The layout of another tensor, under another name.
void check_same_layout(const Tensor& x, const Tensor& y) {
  CHECK(x.dtype == y.dtype);
  CHECK(x.dims == y.dims);
  CHECK(x.strides == y.strides);
  CHECK(x.ragged == y.ragged);
  CHECK(x.alignment == y.alignment);
}

}  // namespace

TEST_CASE("every subset of gradients gives a valid pair that shares its tensors", "[training]") {
  const Graph graph = dense_forward();
  for (unsigned subset = 1; subset < 64; ++subset) {
    INFO("subset " << subset);
    Gradients wanted;
    wanted.q = subset & 1, wanted.k = subset & 2, wanted.v = subset & 4;
    wanted.bias = subset & 8, wanted.sink = subset & 16, wanted.alibi_slopes = subset & 32;
    const TrainingPair pair = pair_of(graph, wanted);
    CHECK(pair.forward.validate().message().empty());
    CHECK(pair.backward.validate().message().empty());

    const SdpaForward& forward = forward_of(pair);
    const SdpaBackward& backward = backward_of(pair);
    CHECK(forward.stats.has_value());
    CHECK(backward.attributes == forward.attributes);
    const PortTable made = ports_by_role(forward), read = ports_by_role(backward);
    for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kO, Role::kStats, Role::kBias, Role::kSink,
                            Role::kAlibiSlopes}) {
      const size_t i = static_cast<size_t>(role);
      CHECK(made[i] == read[i]);
      CHECK(at(pair.forward, made[i]) == at(pair.backward, read[i]));
    }
    const std::pair<bool, std::pair<Port, Port>> gradients[] = {
        {wanted.q, {backward.dq, backward.q}},
        {wanted.k, {backward.dk, backward.k}},
        {wanted.v, {backward.dv, backward.v}},
        {wanted.bias, {backward.dbias, backward.bias}},
        {wanted.sink, {backward.dsink, backward.sink}},
        {wanted.alibi_slopes, {backward.dalibi_slopes, backward.alibi_slopes}}};
    for (const auto& [is_wanted, ports_of] : gradients) {
      CHECK(ports_of.first.has_value() == is_wanted);
      if (!is_wanted) continue;
      check_same_layout(at(pair.backward, ports_of.first), at(pair.backward, ports_of.second));
      CHECK(pair.forward.find(*ports_of.first) == nullptr);
    }
    check_same_layout(at(pair.backward, backward.dout), at(pair.backward, backward.o));
    CHECK(pair.forward.find(*backward.dout) == nullptr);
  }
}

TEST_CASE("new tensors are called by their roles", "[training]") {
  const TrainingPair pair = pair_of(dense_forward(), {true, true, true, true, true, true});
  const SdpaBackward& backward = backward_of(pair);
  const std::pair<Port, const char*> names[] = {
      {backward.stats, "stats"}, {backward.dout, "do"},
      {backward.dq, "dq"},       {backward.dk, "dk"},
      {backward.dv, "dv"},       {backward.dbias, "dbias"},
      {backward.dsink, "dsink"}, {backward.dalibi_slopes, "dalibi_slopes"}};
  for (const auto& [port, name] : names) CHECK(at(pair.backward, port).name == name);
}

TEST_CASE("a dense forward gets padded stats and an o in the memory order of q", "[training]") {
  const TrainingPair pair = pair_of(dense_forward(), only_q());
  const Tensor& stats = at(pair.forward, forward_of(pair).stats);
  CHECK(stats.dtype == DataType::kF32);
  CHECK(stats.dims == Values{2, 4, 3, 1});
  CHECK(stats.strides == Values{12, 3, 1, 1});
  CHECK_FALSE(stats.ragged);
  const Tensor& o = at(pair.forward, forward_of(pair).o);
  CHECK(o.dtype == DataType::kBf16);
  CHECK(o.dims == Values{2, 4, 3, 6});
  CHECK(o.strides == Values{72, 6, 24, 1});
}

TEST_CASE("stats that the forward has are kept", "[training]") {
  Graph graph = dense_forward();
  forward_of(graph).stats = graph.tensor("lse", DataType::kF32, dense({kBatch, kHeads, kQLen}));
  const TrainingPair pair = pair_of(graph, only_q());
  CHECK(pair.forward == graph);
  CHECK(at(pair.backward, backward_of(pair).stats).name == "lse");
}

TEST_CASE("strides that an output left out are spelled out", "[training]") {
  Graph graph = dense_forward();
  graph.find(*forward_of(graph).o)->strides.clear();
  const TrainingPair pair = pair_of(graph, only_q());
  CHECK(at(pair.backward, backward_of(pair).o).strides == Values{72, 18, 6, 1});
  CHECK(at(pair.backward, backward_of(pair).dout).strides == Values{72, 18, 6, 1});
  CHECK(pair.backward.validate().message().empty());
}

TEST_CASE("offsets of tokens serve o and token-major stats", "[training]") {
  const Layout q = interleaved({kBatch, kHeads, kQLen, kDim}, 3, 0);
  const TrainingPair pair = pair_of(ragged_forward(q, q.strides[2]), only_q());
  const Tensor& o = at(pair.forward, forward_of(pair).o);
  CHECK(o.ragged == Ragged{1, 32});
  CHECK(o.strides[1] == 8);
  CHECK(o.strides[2] == 32);
  const Tensor& stats = at(pair.forward, forward_of(pair).stats);
  CHECK(stats.ragged == Ragged{1, 4});
  CHECK(stats.strides == Values{12, 1, 4, 1});
  CHECK(pair.backward.validate().message().empty());
  // dk is a view like k: of an interleaved buffer.
  Gradients wanted;
  wanted.k = true;
  const TrainingPair with_dk = pair_of(ragged_forward(q, q.strides[2]), wanted);
  const Tensor& dk = at(with_dk.backward, backward_of(with_dk).dk);
  CHECK(dk.ragged == Ragged{2, 32});
  CHECK(dk.strides == Values{160, 8, 32, 1});
}

TEST_CASE("offsets of elements serve o by wider tokens, and stats are padded", "[training]") {
  // q tokens are 96 elements apart and offsets count single elements: 32 elements of o would need
  // a multiplier of 1/3.
  const Layout q = interleaved({kBatch, kHeads, kQLen, kDim}, 3, 0);
  const TrainingPair pair = pair_of(ragged_forward(q, 1), only_q());
  const Tensor& o = at(pair.forward, forward_of(pair).o);
  CHECK(o.ragged == Ragged{1, 1});
  CHECK(o.strides[2] == 96);
  const Tensor& stats = at(pair.forward, forward_of(pair).stats);
  CHECK_FALSE(stats.ragged);
  CHECK(stats.strides == Values{12, 3, 1, 1});
  CHECK(pair.backward.validate().message().empty());
}

TEST_CASE("offsets of heads have a whole multiplier for token-major stats", "[training]") {
  const Layout q = thd({kBatch, kHeads, kQLen, kDim});  // 32 elements a token, 8 an offset unit
  const TrainingPair pair = pair_of(ragged_forward(q, kDim), only_q());
  CHECK(at(pair.forward, forward_of(pair).stats).ragged == Ragged{1, 1});
  CHECK(at(pair.forward, forward_of(pair).o).ragged == Ragged{1, 8});
}

TEST_CASE("heads outside tokens lie a capacity apart", "[training]") {
  const int64_t slots = 7;
  const Layout q{{kBatch, kHeads, kQLen, kDim}, {0, slots * kDim, kDim, 1}, 0};
  const Graph graph = ragged_forward(q, kDim);
  const SdpaForward& node = std::get<SdpaForward>(graph.nodes[0]);
  const Tensor& o = at(graph, node.o);
  CHECK(o.strides[1] == slots * kDim);
  CHECK(o.strides[2] == kDim);
  CHECK(o.ragged == Ragged{1, 8});
}

TEST_CASE("a broadcast input has a packed gradient", "[training]") {
  Graph graph = dense_forward();
  graph.find(*forward_of(graph).bias)->strides = {0, 0, 1, 3};  // one head for all, keys outside rows
  graph.find(*forward_of(graph).k)->strides = {0, 0, 8, 1};
  const TrainingPair pair = pair_of(graph, {false, true, false, true, false, false});
  CHECK(at(pair.backward, backward_of(pair).dbias).strides == Values{60, 15, 1, 3});
  CHECK(at(pair.backward, backward_of(pair).dk).strides == Values{80, 40, 8, 1});
  CHECK(at(pair.backward, backward_of(pair).bias).strides == Values{0, 0, 1, 3});
  CHECK(pair.backward.validate().message().empty());
}

TEST_CASE("tensors that backward does not name are left out of it, their uids stay taken", "[training]") {
  Graph graph = dense_forward();
  graph.tensors.push_back({100, "stray", DataType::kF32, {1}, {1}, std::nullopt});
  const TrainingPair pair = pair_of(graph, only_q());
  CHECK(pair.backward.find(100) == nullptr);
  std::set<Uid> in_forward, in_both;
  for (const Tensor& tensor : pair.forward.tensors) in_forward.insert(tensor.uid);
  CHECK(in_forward.count(*backward_of(pair).dq) == 0);
  CHECK(*backward_of(pair).dq > 100);
}

TEST_CASE("a graph without a training pair is refused with a reason", "[training]") {
  const Graph graph = dense_forward();
  CHECK(refusal_of(Graph{}, only_q()) == "training pair: graph of 0 nodes; must be one sdpa_forward");
  Graph two = graph;
  two.nodes.push_back(two.nodes[0]);
  CHECK(refusal_of(two, only_q()) == "training pair: graph of 2 nodes; must be one sdpa_forward");
  CHECK(refusal_of(graph, {}) == "training pair: no gradient wanted; must be at least one");

  Graph plain = graph;
  forward_of(plain).sink.reset();
  CHECK(refusal_of(plain, {false, false, false, false, true, false}) ==
        "training pair: dsink wanted of a forward without sink; must be an input's gradient");

  Graph paged = graph;
  forward_of(paged).page_table_k = paged.tensor("table", DataType::kI32, dense({2, 2}));
  CHECK(refusal_of(paged, only_q()) ==
        "training pair: page_table_k given; must be absent, gradients of pages are not defined");

  Graph invalid = graph;
  forward_of(invalid).attributes.dropout_p = 2.0;
  CHECK(refusal_of(invalid, only_q()).find("dropout_p") != std::string::npos);
}

TEST_CASE("a backward that names no gradient gets dq, dk and dv", "[graph]") {
  TrainingPair pair = pair_of(dense_forward(), only_q());
  SdpaBackward node = backward_of(pair);
  node.dq.reset();
  Graph graph = pair.backward;
  graph.nodes.clear();
  const SdpaBackward& added = graph.sdpa_backward(node);
  check_same_layout(at(graph, added.dq), at(graph, added.q));
  check_same_layout(at(graph, added.dk), at(graph, added.k));
  check_same_layout(at(graph, added.dv), at(graph, added.v));
  CHECK_FALSE(added.dbias.has_value());
  CHECK(graph.validate().message().empty());

  node.dsink = graph.vector("dsink", DataType::kF32, kHeads);
  CHECK_FALSE(graph.sdpa_backward(node).dq.has_value());
}

TEST_CASE("a forward whose shapes are unknown or too large gets no strides", "[graph]") {
  Graph graph;
  CHECK_FALSE(graph.sdpa_forward({}, true).o.has_value());

  SdpaForward node;
  const int64_t huge = int64_t{1} << 40;
  node.q = graph.tensor("q", DataType::kF32, Layout{{huge, huge, huge, huge}, {1, 1, 1, 1}, 0});
  node.v = node.q;
  const Port o = graph.sdpa_forward(node, true).o;
  CHECK(at(graph, o).strides.empty());
  CHECK_FALSE(graph.validate().ok());
}
