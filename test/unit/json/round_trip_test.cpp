#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "attngraph/json.hpp"
#include "graph/fields.hpp"
#include "support/catch.hpp"

using namespace attngraph;

namespace {

/// Random graphs that a file can hold: unique uids, no dangling ones, dims of 0 or more.
class GraphMaker {
 public:
  explicit GraphMaker(unsigned seed) : random_(seed) {}

  Graph graph() {
    Graph graph;
    graph.name = label();
    graph.tensors.resize(1 + random_() % 6);
    for (Tensor& tensor : graph.tensors) {
      do tensor.uid = integer();
      while (std::count_if(graph.tensors.begin(), graph.tensors.end(),
                           [&](const Tensor& other) { return other.uid == tensor.uid; }) > 1);
    }
    for (Tensor& tensor : graph.tensors) fill(tensor, graph);
    for (size_t i = random_() % 3; i-- > 0;) graph.nodes.push_back(node(graph));
    return graph;
  }

 private:
  bool coin() { return random_() % 2 == 0; }

  int64_t integer() {
    constexpr int64_t kCorners[] = {std::numeric_limits<int64_t>::min(),
                                    std::numeric_limits<int64_t>::max(),
                                    -1,
                                    0,
                                    1,
                                    int64_t{1} << 53,
                                    (int64_t{1} << 53) + 1};
    if (coin()) return kCorners[random_() % std::size(kCorners)];
    return static_cast<int64_t>(random_() >> random_() % 64);
  }

  double number() {
    constexpr double kCorners[] = {0.1,
                                   -1.0,
                                   1e300,
                                   5e-324,
                                   std::numeric_limits<double>::max(),
                                   0x1p63,
                                   1.0 / 3.0,
                                   1e22,
                                   123456789012345680.0};
    if (coin()) return kCorners[random_() % std::size(kCorners)];
    const uint64_t bits = random_();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return std::isfinite(value) ? value : 0.5;
  }

  std::string label() {
    static const std::string kPieces[] = {
        "q",  "\"",     "\\",   "/",        "\n",           std::string(1, '\0'),
        "\t", "\x1f",   "\x7f", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
        " ",  "\\u0041"};
    std::string text;
    for (size_t i = random_() % 5; i-- > 0;) text += kPieces[random_() % std::size(kPieces)];
    return text;
  }

  void fill(Tensor& tensor, const Graph& graph) {
    tensor.name = label();
    tensor.dtype = static_cast<DataType>(random_() % 8);
    tensor.dims.resize(random_() % 5);
    for (int64_t& dim : tensor.dims) dim = integer() & std::numeric_limits<int64_t>::max();
    tensor.strides.resize(random_() % 5);
    for (int64_t& stride : tensor.strides) stride = integer();
    if (coin()) tensor.ragged = Ragged{any_uid(graph), integer()};
    if (coin()) tensor.alignment = integer();
    tensor.is_virtual = coin();
  }

  Uid any_uid(const Graph& graph) { return graph.tensors[random_() % graph.tensors.size()].uid; }

  Node node(const Graph& graph) {
    const Node kinds[] = {SdpaForward{}, SdpaBackward{}, MergePartials{}};
    Node any = kinds[random_() % std::size(kinds)];
    std::visit(
        [&](auto& sdpa) {
          sdpa.name = label();
          ports(sdpa, [&](Role, Port& port, bool) {
            if (coin()) port = any_uid(graph);
          });
          fill(sdpa.attributes);
        },
        any);
    return any;
  }

  void fill(SdpaAttributes& a) {
    if (coin()) a.scale = number();
    if (coin()) a.softcap = number();
    if (coin()) a.band.align = Align::kBottomRight;
    if (coin()) a.band.left = integer();
    if (coin()) a.band.right = integer();
    if (coin()) a.dropout_p = number();
    if (coin()) a.stats_base = StatsBase::k2;
    if (coin()) a.max_total_q = integer();
    if (coin()) a.max_total_kv = integer();
    if (coin()) a.max_seq_len_kv = integer();
    a.deterministic = coin();
  }

  void fill(MergeAttributes& a) {
    if (coin()) a.stats_base = StatsBase::k2;
    if (coin()) a.max_total_q = integer();
  }

  std::mt19937_64 random_;
};

}  // namespace

TEST_CASE("a printed graph is parsed to itself", "[json]") {
  for (unsigned seed = 0; seed < 5000; ++seed) {
    const Graph graph = GraphMaker(seed).graph();
    const std::string text = print(graph);
    const Result<Graph> again = parse(text);
    INFO("seed " << seed << '\n' << text << '\n' << again.status().message());
    REQUIRE(again.ok());
    REQUIRE(*again == graph);
    REQUIRE(print(*again) == text);
  }
}

TEST_CASE("a graph is printed with its keys in one order and without defaults", "[json]") {
  Graph graph;
  graph.name = "a \"name\"\n";
  const Uid offsets = graph.vector("offsets", DataType::kI32, 3);
  graph.tensor("q", DataType::kBf16, thd({2, 4, 8, 16}), Ragged{offsets, 64});
  graph.tensors.back().alignment = 32;
  graph.tensors.back().is_virtual = true;
  graph.tensors.push_back({7, "", DataType::kF32, {2}, {}, std::nullopt});
  SdpaBackward backward;
  backward.q = 2;
  backward.dout = 7;
  backward.dv = 7;
  backward.attributes.scale = 1.0;
  backward.attributes.band = Band::causal(Align::kBottomRight);
  backward.attributes.stats_base = StatsBase::k2;
  backward.attributes.deterministic = true;
  MergePartials merge;
  merge.stats_b = 1;
  merge.o = 2;
  merge.attributes.stats_base = StatsBase::k2;
  graph.nodes = {SdpaForward{}, backward, merge};

  CHECK(print(graph) == R"({
  "format": "attngraph.graph",
  "version": 1,
  "name": "a \"name\"\u000a",
  "tensors": [
    {"uid": 1, "name": "offsets", "dtype": "i32", "dims": [3], "strides": [1]},
    {"uid": 2, "name": "q", "dtype": "bf16", "dims": [2, 4, 8, 16], "strides": [512, 16, 64, 1], "ragged": {"offsets": 1, "multiplier": 64}, "alignment": 32, "virtual": true},
    {"uid": 7, "dtype": "f32", "dims": [2]}
  ],
  "nodes": [
    {
      "op": "sdpa_forward",
      "inputs": {},
      "outputs": {}
    },
    {
      "op": "sdpa_backward",
      "inputs": {"q": 2, "do": 7},
      "outputs": {"dv": 7},
      "attributes": {"scale": 1.0, "band": {"align": "bottom_right", "right": 0}, "stats_base": "2", "deterministic": true}
    },
    {
      "op": "merge_partials",
      "inputs": {"stats_b": 1},
      "outputs": {"o": 2},
      "attributes": {"stats_base": "2"}
    }
  ]
})");
}

TEST_CASE("a name that is no UTF-8 is printed with replacement characters", "[json]") {
  const std::pair<std::string, std::string> rows[] = {
      {"a\xff"
       "b",
       "a\xef\xbf\xbd"
       "b"},                                                                     // no lead byte
      {"\xc3", "\xef\xbf\xbd"},                                                  // cut short
      {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},                                  // overlong
      {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                  // surrogate
      {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},  // beyond U+10FFFF
      {"\xe2\x82(", "\xef\xbf\xbd\xef\xbf\xbd("},                                // no continuation byte
  };
  for (const auto& [name, printed] : rows) {
    Graph graph;
    graph.name = name;
    const Result<Graph> again = parse(print(graph));
    REQUIRE(again.ok());
    CHECK(again->name == printed);
  }
}

TEST_CASE("an attribute that is not finite is printed as null and refused by parse", "[json]") {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double value : {inf, -inf, std::numeric_limits<double>::quiet_NaN()}) {
    Graph graph;
    graph.nodes.emplace_back(SdpaForward{});
    std::get<SdpaForward>(graph.nodes[0]).attributes.scale = value;
    const Result<Graph> again = parse(print(graph));
    REQUIRE_FALSE(again.ok());
    CHECK(again.status().message() == "nodes[0].attributes.scale: null; must be a number");
  }
}

TEST_CASE("whole numbers are accepted where numbers belong", "[json]") {
  const Result<Graph> graph = parse(R"({"format": "attngraph.graph", "version": 1, "tensors": [], "nodes": [
    {"op": "sdpa_forward", "inputs": {}, "outputs": {},
     "attributes": {"scale": 2, "softcap": 18446744073709551615, "dropout_p": 1}}]})");
  REQUIRE(graph.ok());
  const SdpaAttributes& attributes = std::get<SdpaForward>(graph->nodes[0]).attributes;
  CHECK(attributes.scale == 2.0);
  CHECK(attributes.softcap == 18446744073709551616.0);
  CHECK(attributes.dropout_p == 1.0);
}
