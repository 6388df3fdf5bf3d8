#include "attngraph/graph.hpp"

#include <limits>
#include <tuple>

#include "graph/fields.hpp"
#include "support/catch.hpp"

using namespace attngraph;

TEST_CASE("tensors get ascending uids and can be found by them", "[graph]") {
  Graph graph;
  const Uid q = graph.tensor("q", DataType::kBf16, bshd({2, 4, 3, 8}));
  const Uid offsets = graph.vector("offsets", DataType::kI32, 3);
  const Uid k = graph.tensor("k", DataType::kF16, thd({2, 2, 5, 8}), Ragged{offsets, 16});
  CHECK(std::tuple(q, offsets, k) == std::tuple(1, 2, 3));

  CHECK(graph.find(q)->strides == std::vector<int64_t>{96, 8, 32, 1});
  CHECK(graph.find(offsets)->dims == std::vector<int64_t>{3});
  CHECK(graph.find(offsets)->strides == std::vector<int64_t>{1});
  CHECK(graph.find(k)->name == "k");
  CHECK(graph.find(k)->dtype == DataType::kF16);
  CHECK(graph.find(k)->ragged == Ragged{2, 16});
  CHECK(graph.find(4) == nullptr);
}

TEST_CASE("a fresh uid is above every uid that is named", "[graph]") {
  Graph graph;
  CHECK(graph.fresh_uid() == 1);
  graph.tensors.resize(1);
  graph.tensors[0].uid = -7;
  CHECK(graph.fresh_uid() == 1);
  graph.tensors[0].ragged = Ragged{40, 1};
  CHECK(graph.fresh_uid() == 41);
  SdpaBackward node;
  node.dbias = 50;
  graph.nodes.emplace_back(node);
  CHECK(graph.fresh_uid() == 51);
}

TEST_CASE("a fresh uid is the smallest free one when the last int64 is taken", "[graph]") {
  Graph graph;
  graph.tensors.resize(3);
  graph.tensors[0].uid = std::numeric_limits<Uid>::max();
  graph.tensors[1].uid = 1;
  graph.tensors[2].uid = std::numeric_limits<Uid>::min();
  CHECK(graph.fresh_uid() == 2);
}

TEST_CASE("graphs differ when any one member differs", "[graph]") {
  Graph graph;
  graph.tensors.resize(1);
  graph.nodes.emplace_back(SdpaForward{});
  const Graph same = graph;
  CHECK(graph == same);
  const auto differs = [&](auto&& change) {
    Graph other = graph;
    change(other);
    return other != graph;
  };
  const auto forward = [](Graph& other) -> SdpaForward& { return std::get<SdpaForward>(other.nodes[0]); };

  CHECK(differs([](Graph& other) { other.name = "x"; }));
  CHECK(differs([](Graph& other) { other.tensors[0].uid = 3; }));
  CHECK(differs([](Graph& other) { other.tensors[0].name = "x"; }));
  CHECK(differs([](Graph& other) { other.tensors[0].dtype = DataType::kBool; }));
  CHECK(differs([](Graph& other) { other.tensors[0].dims = {1}; }));
  CHECK(differs([](Graph& other) { other.tensors[0].strides = {1}; }));
  CHECK(differs([](Graph& other) { other.tensors[0].ragged = Ragged{}; }));
  CHECK(differs([](Graph& other) { other.tensors[0].alignment = 32; }));
  CHECK(differs([](Graph& other) { other.tensors[0].is_virtual = true; }));
  CHECK(differs([](Graph& other) { other.nodes[0] = SdpaBackward{}; }));
  CHECK(differs([&](Graph& other) { forward(other).name = "x"; }));
  CHECK(differs([&](Graph& other) { forward(other).attributes.scale = 1.0; }));
  CHECK(differs([&](Graph& other) { forward(other).attributes.softcap = 1.0; }));
  CHECK(differs([&](Graph& other) { forward(other).attributes.band = Band::causal(); }));
  CHECK(differs([&](Graph& other) { forward(other).attributes.dropout_p = 0.5; }));
  CHECK(differs([&](Graph& other) { forward(other).attributes.stats_base = StatsBase::k2; }));
  CHECK(differs([&](Graph& other) { forward(other).attributes.max_total_q = 0; }));
  CHECK(differs([&](Graph& other) { forward(other).attributes.max_total_kv = 0; }));
  CHECK(differs([&](Graph& other) { forward(other).attributes.max_seq_len_kv = 0; }));
  CHECK(differs([&](Graph& other) { forward(other).attributes.deterministic = true; }));
}

TEMPLATE_TEST_CASE("nodes differ when any one port differs", "[graph]", SdpaForward, SdpaBackward,
                   MergePartials) {
  const TestType node;
  for (size_t i = 0; i < kNumRoles; ++i) {
    TestType other;
    bool has_role = false;
    ports(other, [&](Role role, Port& port, bool) {
      if (static_cast<size_t>(role) == i) port = 0, has_role = true;
    });
    CHECK((other == node) == !has_role);
  }
}

TEST_CASE("a merge makes outputs like its first part", "[graph]") {
  Graph graph;
  MergePartials node;
  node.o_a = graph.tensor("o_a", DataType::kF16, sbhd({2, 4, 3, 6}));
  node.stats_a = graph.tensor("stats_a", DataType::kF32, stats_head_major(2, 4, 3, 8), Ragged{40, 1});
  const MergePartials made = graph.merge_partials(node, true);
  CHECK(graph.find(*made.o)->strides == graph.find(*node.o_a)->strides);
  CHECK(graph.find(*made.stats)->strides == graph.find(*node.stats_a)->strides);
  CHECK(graph.find(*made.stats)->ragged == Ragged{40, 1});

  graph.find(*node.o_a)->strides = {0, 6, 24, 1};
  node.stats.reset();
  CHECK(graph.find(*graph.merge_partials(node).o)->strides == std::vector<int64_t>{72, 6, 24, 1});
  CHECK_FALSE(std::get<MergePartials>(graph.nodes.back()).stats);
}

TEST_CASE("attribute names lead to the members that they name", "[graph]") {
  SdpaAttributes attributes;
  attributes.softcap = 2.0;
  attributes.dropout_p = 0.25;
  attributes.max_total_q = 3;
  attributes.max_total_kv = 4;
  attributes.max_seq_len_kv = 5;
  int seen = 0;
  for_each_field(fields(attributes), [&](const auto& field) {
    const std::string_view name = field.name;
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(field.value)>, double>) {
      CHECK(field.value == (name == "softcap" ? 2.0 : 0.25));
      CHECK((name == "softcap" || name == "dropout_p"));
    }
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(field.value)>, std::optional<int64_t>>)
      CHECK(field.value == (name == "max_total_q" ? 3 : name == "max_total_kv" ? 4 : 5));
    ++seen;
  });
  CHECK(seen == 9);
}
