#include <filesystem>
#include <fstream>
#include <iterator>

#include "attngraph/json.hpp"
#include "json/graph_reader.hpp"
#include "support/catch.hpp"

using namespace attngraph;

namespace {

/// A graph file of one tensor and one node; each part can be replaced by a faulty one.
struct File {
  std::string header = R"("format": "attngraph.graph", "version": 1)";
  std::string tensors = R"([{"uid": 1, "dtype": "f32", "dims": [2, 3], "strides": [3, 1]}])";
  std::string nodes = R"([{"op": "sdpa_forward", "inputs": {"q": 1}, "outputs": {}}])";

  std::string text() const {
    return "{" + header + R"(, "tensors": )" + tensors + R"(, "nodes": )" + nodes + "}";
  }
};

std::string message_of(const std::string& json) {
  const Result<Graph> graph = parse(json);
  REQUIRE_FALSE(graph.ok());
  CHECK(graph.status().code() == Code::kInvalidGraph);
  return graph.status().message();
}

std::string with_header(const std::string& header) {
  File file;
  file.header = header;
  return file.text();
}

std::string with_tensor(const std::string& tensor) {
  File file;
  file.tensors = "[" + tensor + "]";
  return file.text();
}

std::string with_node(const std::string& node) {
  File file;
  file.nodes = "[" + node + "]";
  return file.text();
}

std::string with_attributes(const std::string& attributes) {
  return with_node(R"({"op": "sdpa_forward", "inputs": {}, "outputs": {}, "attributes": )" + attributes +
                   "}");
}

struct Row {
  std::string json, message;
};

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    INFO(row.json);
    CHECK(message_of(row.json) == row.message);
  }
}

}  // namespace

TEST_CASE("the file without a fault is accepted", "[json]") { CHECK(parse(File().text()).ok()); }

TEST_CASE("a file that is no graph of this version is refused", "[json]") {
  check({
      {"[]", "document: an array of 0; must be an object"},
      {"7", "document: 7; must be an object"},
      {with_header(R"("format": "attngraph.plan", "version": 1)"),
       R"(format: "attngraph.plan"; must be "attngraph.graph")"},
      {with_header(R"("format": null, "version": 1)"), "format: null; must be a string"},
      {with_header(R"("format": "attngraph.graph", "version": 9)"), "version: 9; must be 1"},
      {with_header(R"("format": "attngraph.graph", "version": 1.0)"),
       "version: 1.0; must be an integer within int64"},
      {with_header(R"("format": "attngraph.graph")"),
       R"(document: no key "version"; must have format, version, tensors, nodes)"},
      {with_header(R"("version": 1)"),
       R"(document: no key "format"; must have format, version, tensors, nodes)"},
      {with_header(R"("format": "attngraph.graph", "version": 1, "edges": [])"),
       "edges: unknown key with value an array of 0; must be one of format, version, name, tensors, nodes"},
      {with_header(R"("format": "attngraph.graph", "version": 1, "name": 5)"), "name: 5; must be a string"},
  });
}

TEST_CASE("nothing may stand behind a NUL, nor a NUL behind a graph", "[json]") {
  const std::string nul(1, '\0'), garbage = nul + "\n{{{";
  CHECK(message_of(File().text() + "\n" + garbage) == "document: NUL at line 2, column 1; must be JSON text");
  CHECK(message_of("{" + nul + "}") == "document: NUL at line 1, column 2; must be JSON text");
  CHECK(message_of(nul) == "document: NUL at line 1, column 1; must be JSON text");
}

TEST_CASE("a malformed tensor is refused with its path and value", "[json]") {
  check({
      {with_tensor("3"), "tensors[0]: 3; must be an object"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2], "layout": "bshd"})"),
       R"(tensors[0].layout: unknown key with value "bshd"; must be one of uid, name, dtype, dims, strides, )"
       "ragged, alignment, virtual"},
      {with_tensor(R"({"uid": 1, "dims": [2]})"),
       R"(tensors[0]: no key "dtype"; must have uid, dtype, dims)"},
      {with_tensor(R"({"uid": 1.5, "dtype": "f32", "dims": [2]})"),
       "tensors[0].uid: 1.5; must be an integer within int64"},
      {with_tensor(R"({"uid": 9223372036854775808, "dtype": "f32", "dims": [2]})"),
       "tensors[0].uid: 9223372036854775808; must be an integer within int64"},
      {with_tensor(R"({"uid": -9223372036854775809, "dtype": "f32", "dims": [2]})"),
       "tensors[0].uid: -9223372036854775808.0; must be an integer within int64"},
      {with_tensor(R"({"uid": 1, "dtype": "f64", "dims": [2]})"),
       R"(tensors[0].dtype: "f64"; must be one of f32, f16, bf16, fp8_e4m3, fp8_e5m2, i32, i64, bool)"},
      {with_tensor(R"({"uid": 1, "dtype": 32, "dims": [2]})"),
       "tensors[0].dtype: 32; must be one of f32, f16, bf16, fp8_e4m3, fp8_e5m2, i32, i64, bool"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": "many"})"),
       R"(tensors[0].dims: "many"; must be an array)"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2, -3]})"),
       "tensors[0].dims[1]: -3; must be 0 or more"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2, 1e+30]})"),
       "tensors[0].dims[1]: 1e+30; must be an integer within int64"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2], "strides": [true]})"),
       "tensors[0].strides[0]: true; must be an integer within int64"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2], "strides": null})"),
       "tensors[0].strides: null; must be an array"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2], "ragged": 20})"),
       "tensors[0].ragged: 20; must be an object"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2], "ragged": {"multiplier": 4}})"),
       R"(tensors[0].ragged: no key "offsets"; must have offsets)"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2], "ragged": {"offsets": 20}})"),
       "tensors[0].ragged.offsets: 20; must be the uid of a tensor"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2], "alignment": "16"})"),
       R"(tensors[0].alignment: "16"; must be an integer within int64)"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2], "virtual": 1})"),
       "tensors[0].virtual: 1; must be true or false"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": []}, {"uid": 1, "dtype": "f32", "dims": []})"),
       "tensors[1].uid: 1; must be unique, tensors[0] has it"},
  });
}

TEST_CASE("a malformed node is refused with its path and value", "[json]") {
  check({
      {with_node("null"), "nodes[0]: null; must be an object"},
      {with_node(R"({"inputs": {}, "outputs": {}})"),
       R"(nodes[0]: no key "op"; must have op, inputs, outputs)"},
      {with_node(R"({"op": "sdpa_sideways", "inputs": {}, "outputs": {}})"),
       R"(nodes[0].op: "sdpa_sideways"; must be one of sdpa_forward, sdpa_backward, merge_partials)"},
      {with_node(R"({"op": [], "inputs": {}, "outputs": {}})"),
       "nodes[0].op: an array of 0; must be one of sdpa_forward, sdpa_backward, merge_partials"},
      {with_node(R"({"op": "sdpa_backward", "inputs": {}})"),
       R"(nodes[0]: no key "outputs"; must have op, inputs, outputs)"},
      {with_node(R"({"op": "sdpa_forward", "inputs": {}, "outputs": {}, "causal": true})"),
       "nodes[0].causal: unknown key with value true; must be one of op, name, inputs, outputs, attributes"},
      {with_node(R"({"op": "sdpa_forward", "inputs": [1], "outputs": {}})"),
       "nodes[0].inputs: an array of 1; must be an object of roles and uids"},
      {with_node(R"({"op": "sdpa_forward", "inputs": {"q": "1"}, "outputs": {}})"),
       R"(nodes[0].inputs.q: "1"; must be an integer within int64)"},
      {with_node(R"({"op": "sdpa_forward", "inputs": {"k": 77}, "outputs": {}})"),
       "nodes[0].inputs.k: 77; must be the uid of a tensor"},
      {with_node(R"({"op": "sdpa_backward", "inputs": {}, "outputs": {"dq": -1}})"),
       "nodes[0].outputs.dq: -1; must be the uid of a tensor"},
      {with_node(R"({"op": "sdpa_forward", "inputs": {"attn_mask": 1}, "outputs": {}})"),
       "nodes[0].inputs.attn_mask: unknown role with value 1; must be one of q, k, v, bias, mask, "
       "alibi_slopes, sink, seq_len_q, seq_len_kv, cu_seq_len_q, cu_seq_len_kv, page_table_k, "
       "page_table_v, dropout_seed, dropout_offset in sdpa_forward"},
      {with_node(R"({"op": "sdpa_forward", "inputs": {"o": 1}, "outputs": {}})"),
       "nodes[0].inputs.o: unknown role with value 1; must be one of q, k, v, bias, mask, "
       "alibi_slopes, sink, seq_len_q, seq_len_kv, cu_seq_len_q, cu_seq_len_kv, page_table_k, "
       "page_table_v, dropout_seed, dropout_offset in sdpa_forward"},
      {with_node(R"({"op": "sdpa_forward", "inputs": {}, "outputs": {"q": 1}})"),
       "nodes[0].outputs.q: unknown role with value 1; must be one of o, stats in sdpa_forward"},
      {with_node(R"({"op": "sdpa_backward", "inputs": {}, "outputs": {"stats": 1}})"),
       "nodes[0].outputs.stats: unknown role with value 1; must be one of dq, dk, dv, dbias, dsink, "
       "dalibi_slopes in sdpa_backward"},
      {with_attributes("[]"), "nodes[0].attributes: an array of 0; must be an object"},
      {with_attributes(R"({"causal": true})"),
       "nodes[0].attributes.causal: unknown key with value true; must be one of scale, softcap, band, "
       "dropout_p, stats_base, max_total_q, max_total_kv, max_seq_len_kv, deterministic"},
      {with_attributes(R"({"scale": "big"})"), R"(nodes[0].attributes.scale: "big"; must be a number)"},
      {with_attributes(R"({"max_total_q": 1.0})"),
       "nodes[0].attributes.max_total_q: 1.0; must be an integer within int64"},
      {with_attributes(R"({"deterministic": 0})"),
       "nodes[0].attributes.deterministic: 0; must be true or false"},
      {with_attributes(R"({"stats_base": 2})"), "nodes[0].attributes.stats_base: 2; must be one of e, 2"},
      {with_attributes(R"({"band": {"align": "center"}})"),
       R"(nodes[0].attributes.band.align: "center"; must be one of top_left, bottom_right)"},
      {with_attributes(R"({"band": {"up": 1}})"),
       "nodes[0].attributes.band.up: unknown key with value 1; must be one of align, left, right"},
  });
}

TEST_CASE("text that is no JSON is refused with its place", "[json]") {
  const std::string must = "; must be JSON with numbers within double";
  check({
      {"", "document: unexpected end of input at line 1, column 1, last read \"\"" + must},
      {"{\"tensors\":\n [1, 2",
       "tensors[2]: unexpected end of input at line 2, column 7, last read \"2\"" + must},
      {"{} {}", "document: unexpected '{' at line 1, column 4, last read \"{} {\"" + must},
      {"{\"version\": NaN}",
       "version: invalid literal at line 1, column 13, last read \"\\\"version\\\": N\"" + must},
      {"{\"version\": 1e999}", "version: number overflow at line 1, column 17, last read \"1e999\"" + must},
      {"[\"a\xff\"]",
       "[0]: invalid string: ill-formed UTF-8 byte at line 1, column 4, last read \"\\\"a\\ufffd\"" + must},
      {"[\"\\ud800\"]",
       "[0]: invalid string: surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF at line 1, column "
       "9, "
       "last read \"\\\"\\\\ud800\\\"\"" +
           must},
      {"[01]", "[1]: unexpected number literal at line 1, column 3, last read \"1\"" + must},
  });
}

TEST_CASE("a key given twice in one object is refused", "[json]") {
  check({
      {with_header(R"("format": "attngraph.graph", "version": 1, "version": 1)"),
       "version: key given twice; must be given once"},
      {with_tensor(R"({"uid": 1, "dtype": "f32", "dims": [2], "uid": 1})"),
       "tensors[0].uid: key given twice; must be given once"},
      {with_node(R"({"op": "sdpa_forward", "inputs": {"q": 1, "q": 1}, "outputs": {}})"),
       "nodes[0].inputs.q: key given twice; must be given once"},
  });
}

TEST_CASE("keys and values in messages are escaped and cut", "[json]") {
  check({
      {with_header(R"("a b": ")" + std::string(50, 'x') + '"'),
       R"(["a b"]: unknown key with value ")" + std::string(40, 'x') +
           R"(..."; must be one of format, version, name, tensors, nodes)"},
      {with_header('"' + std::string(39, 'y') + "\xc3\xa9\": {}"),
       R"([")" + std::string(39, 'y') +
           R"(..."]: unknown key with value an object of 0; must be one of format, version, name, tensors, nodes)"},
      {with_header(R"("\u0001\"": [1])"),
       R"(["\u0001\""]: unknown key with value an array of 1; must be one of format, version, name, tensors, nodes)"},
  });
}

TEST_CASE("nesting is read to its limit and refused beyond", "[json]") {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(JsonDocument::parse(nested(kMaxJsonDepth)).ok());
  CHECK(message_of(nested(kMaxJsonDepth + 1)).ends_with(": nested 65 deep; must be at most 64"));
  CHECK(message_of(std::string(1'000'000, '[')).ends_with(": nested 65 deep; must be at most 64"));
}

TEST_CASE("a truncated file is refused wherever it ends", "[json]") {
  const std::string text = File().text();
  for (size_t size = 0; size < text.size(); ++size) CHECK_FALSE(parse(text.substr(0, size)).ok());
}

TEST_CASE("every description that the conformance case calls malformed is refused with its words", "[json]") {
  std::ifstream file(std::filesystem::path(ATTNGRAPH_TEST_CASES) / "parse_errors.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Result<JsonDocument> document = JsonDocument::parse(text);
  REQUIRE(document.ok());
  const JsonValue steps = document->root().at("steps");
  CHECK(steps.size() == 12);
  for (const JsonValue step : steps) {
    Graph graph;
    const Status status = read(step.at("graph"), graph);
    CHECK(status.code() == Code::kInvalidGraph);
    CHECK(status.message().starts_with(step.path() + ".graph."));
    for (const JsonValue word : step.at("expect_error").at("words"))
      CHECK(status.message().find(word.text()) != std::string::npos);
  }
}
