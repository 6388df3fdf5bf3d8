#include "attngraph/json.hpp"
#include "unit/cli/program_run.hpp"

using namespace attngraph;
using namespace attngraph::cli;

namespace {

/// A tensor as cudnn-frontend writes it. `more`: further members, each with a comma before it.
std::string tensor(const std::string& key, const std::string& type, const std::string& dim,
                   const std::string& stride, const std::string& more = "") {
  const bool has_uid = key.find_first_not_of("0123456789") == std::string::npos;
  return '"' + key + "\": {\"name\": \"" + (has_uid ? "t" + key : key) + "\", \"data_type\": " + type +
         ", \"dim\": " + dim + ", \"stride\": " + stride +
         ", \"is_virtual\": false, \"pass_by_value\": null, \"is_pass_by_value\": false, "
         "\"reordering_type\": \"NONE\", \"uid\": " +
         (has_uid ? key : "0") + ", \"uid_assigned\": " + (has_uid ? "true" : "false") + more + "}";
}

std::string file(const std::string& node, const std::string& tensors) {
  return R"({"context": {"name": "theirs", "compute_data_type": "FLOAT", "intermediate_data_type": "FLOAT", )"
         R"("io_data_type": "BFLOAT16", "sm_count": -1, "is_dynamic_shape_enabled": false, )"
         R"("is_override_shape_enabled": false}, "json_version": "1.0", "cudnn_backend_version": "9.19.0", )"
         R"("cudnn_frontend_version": 12300, "nodes": [)" +
         node + R"(], "tensors": {)" + tensors + "}}";
}

/// Forward members after the ports.
const std::string kForwardMembers =
    R"("generate_stats": true, "alibi_mask": false, "dropout_probability": null, "max_seq_len_kv": null, )"
    R"("mma_core_mode": null, "implementation": "COMPOSITE", "is_mxfp8": false, "unfuse_fma": false)";

std::string forward(const std::string& inputs, const std::string& outputs, const std::string& members) {
  return R"({"tag": "SDPA", "name": "attention", "inputs": {)" + inputs + R"(}, "outputs": {)" + outputs +
         "}, " + members + ", " + kForwardMembers + "}";
}

const std::string kDense = "[1024, 512, 32, 1]";  // [2, 2, 16, 32]
const std::string kQkv = tensor("1", "\"HALF\"", "[2, 2, 16, 32]", kDense) + ", " +
                         tensor("2", "\"HALF\"", "[2, 2, 32, 16]", "[1024, 512, 1, 32]") + ", " +
                         tensor("3", "\"HALF\"", "[2, 2, 16, 32]", kDense) + ", " +
                         tensor("4", "\"HALF\"", "[2, 2, 16, 32]", kDense);
const std::string kQkvPorts = R"("Q": 1, "K": 2, "V": 3)";
const std::string kPlainMembers =
    R"("padding_mask": false, "attn_scale_value": null, "left_bound": null, "right_bound": null, )"
    R"("diagonal_alignment": "TOP_LEFT")";

std::string plain() { return file(forward(kQkvPorts, R"("O": 4)", kPlainMembers), kQkv); }

/// A backward over packed sequences; offsets are named, not described, as in their format.
std::string packed_backward() {
  const std::string q_ragged = R"(, "ragged_offset_uid": 30, "ragged_offset_name": "q offsets")";
  const std::string s_ragged = R"(, "ragged_offset_uid": 31, "ragged_offset_name": "stats offsets")";
  std::string tensors = tensor("9", "\"INT32\"", "[2, 1, 1, 1]", "[1, 1, 1, 1]") + ", " +
                        tensor("5", "\"FLOAT\"", "[2, 2, 16, 1]", "[32, 1, 2, 1]", s_ragged);
  for (const char* uid : {"1", "2", "3", "4", "6", "7", "8", "10"})
    tensors += ", " + tensor(uid, "null", "[2, 2, 16, 32]", "[1024, 32, 64, 1]", q_ragged);
  return file(
      R"({"tag": "SDPA_BWD", "name": null, "inputs": {"Q": 1, "K": 2, "V": 3, "O": 4, "dO": 6, "Stats": 5, )"
      R"("SEQ_LEN_Q": 9, "SEQ_LEN_KV": 9}, "outputs": {"dQ": 7, "dK": 8, "dV": 10}, "alibi_mask": false, )"
      R"("padding_mask": true, "dropout_probability": null, "attn_scale_value": "3E000000", )"
      R"("left_bound": null, "right_bound": 0, "diagonal_alignment": "TOP_LEFT", )"
      R"("max_total_seq_len_q": 20, "max_total_seq_len_kv": 20, "is_deterministic_algorithm": true})",
      tensors);
}

std::string dumped(const std::string& name) { return read_file(ATTNGRAPH_TEST_IMPORTS "/" + name).value(); }

Graph converted(const std::string& content, const std::vector<std::string>& options = {}) {
  const TemporaryFile input(content);
  std::vector<std::string> words = {"convert", input.path};
  words.insert(words.end(), options.begin(), options.end());
  const Exited answer = attngraph_with(words);
  INFO(answer.err);
  REQUIRE(answer.code == 0);
  return parse(answer.out).value();
}

}  // namespace

TEST_CASE("convert translates a forward graph's meaning", "[cli]") {
  const Graph graph = converted(file(
      forward(kQkvPorts + R"(, "SINK_TOKEN": 5, "SEQ_LEN_Q": 6, "SEQ_LEN_KV": 6)", R"("O": 4, "Stats": "s")",
              R"("padding_mask": true, "attn_scale_value": "3E000000", "left_bound": 8, )"
              R"("right_bound": 2, "diagonal_alignment": "BOTTOM_RIGHT")"),
      kQkv + ", " + tensor("5", "\"FLOAT\"", "[1, 2, 1, 1]", "[2, 1, 1, 1]") + ", " +
          tensor("6", "\"INT32\"", "[2, 1, 1, 1]", "[1, 1, 1, 1]") + ", " +
          tensor("s", "\"FLOAT\"", "[2, 2, 16, 1]", "[32, 16, 1, 1]")));
  CHECK(graph.name == "theirs");
  const SdpaForward& node = std::get<SdpaForward>(graph.nodes.at(0));
  CHECK(node.name == "attention");
  CHECK(node.attributes.scale == 0.125);
  CHECK(node.attributes.band ==
        Band{Align::kBottomRight, 7, 2});  // their left bound counts the row's own key
  CHECK(node.q == 1);
  CHECK(graph.find(2)->dims == std::vector<int64_t>{2, 2, 16, 32});  // k was transposed in place
  CHECK(graph.find(2)->strides == std::vector<int64_t>{1024, 512, 32, 1});
  CHECK(graph.find(1)->dtype == DataType::kF16);
  CHECK(graph.find(*node.sink)->dims == std::vector<int64_t>{2});
  CHECK(*node.stats > 6);  // a tensor without a uid gets a fresh one
  CHECK(graph.find(*node.stats)->name == "s");
}

TEST_CASE("a scale that is not set is 1, or what a tensor or an option says", "[cli]") {
  const auto scale_of = [](const Graph& graph) {
    return std::get<SdpaForward>(graph.nodes[0]).attributes.scale;
  };
  CHECK(scale_of(converted(plain())) == 1.0);
  std::string scale = tensor("7", "\"FLOAT\"", "[1, 1, 1, 1]", "[1, 1, 1, 1]");
  const std::string node = forward(kQkvPorts + R"(, "Attn_scale": 7)", R"("O": 4)", kPlainMembers);
  CHECK(scale_of(converted(file(node, kQkv + ", " + scale), {"--scale", "0.25"})) == 0.25);
  scale.replace(scale.find("\"pass_by_value\": null"), 21,
                R"("pass_by_value": {"index": 3, "value": "3F000000"})");
  CHECK(scale_of(converted(file(node, kQkv + ", " + scale))) == 0.5);
}

TEST_CASE("convert finds graphs in the lines of a log, each once", "[cli]") {
  const std::string log = "[cudnn_frontend] INFO: Validating\n" + plain() + "\n[cudnn_frontend] " + plain() +
                          "\nnoise { }\n" + packed_backward() + "\n";
  const TemporaryFile input(log);
  const Exited several = attngraph_with({"convert", input.path});
  CHECK(several.code == 2);
  CHECK(has(several.err, "holds 2 graphs; must be one of them, --graph 0 .. 1"));
  CHECK(converted(log, {"--graph", "0"}) == converted(plain()));
  CHECK(
      std::holds_alternative<SdpaBackward>(converted(log, {"--graph", "1", "--offsets", "i32"}).nodes.at(0)));
}

TEST_CASE("a converted packed backward runs and agrees with the reference", "[cli]") {
  const TemporaryFile input(packed_backward()), output("");
  const Exited asked = attngraph_with({"convert", input.path});
  CHECK(asked.code == 2);
  CHECK(has(asked.err, "ragged_offset_uid: 3"));
  CHECK(has(asked.err, "must be given by --offsets i32 or i64"));
  REQUIRE(attngraph_with({"convert", input.path, "--offsets", "i64", "--out", output.path}).code == 0);
  const Graph graph = parse(read_file(output.path).value()).value();
  CHECK(graph.find(1)->dtype == DataType::kBf16);  // from the context
  CHECK(graph.find(1)->ragged == Ragged{30, 1});
  CHECK(graph.find(30)->dtype == DataType::kI64);
  CHECK(graph.find(30)->dims == std::vector<int64_t>{3});
  CHECK(graph.find(5)->ragged == Ragged{31, 1});
  CHECK(std::get<SdpaBackward>(graph.nodes[0]).attributes.max_total_kv == 20);
  const Exited run = attngraph_with({"run", output.path, "--gaps", "2", "--compare"});
  INFO(run.out << run.err);
  CHECK(run.code == 0);
}

TEST_CASE("what PyTorch and cudnn-frontend logged on a GPU is converted and runs", "[cli]") {
  struct Row {
    const char* file;
    std::vector<std::string> options;
    Band band;
    bool is_ragged;
  };
  const std::vector<std::string> packed = {"--scale", "0.125", "--packed", "--offsets", "i32", "--graph"};
  const auto with = [](std::vector<std::string> options, const char* last) {
    options.emplace_back(last);
    return options;
  };
  const Row rows[] = {
      {"pytorch-2.11.log", {"--scale", "0.125", "--graph", "0"}, Band::causal(), false},
      {"pytorch-2.11.log", {"--scale", "0.125", "--graph", "1"}, Band::causal(), false},
      {"pytorch-2.11.log", with(packed, "2"), {}, true},
      {"pytorch-2.11.log", with(packed, "3"), {}, true},
      {"cudnn-frontend-1.23.json", {"--offsets", "i32"}, Band::causal(), true},
  };
  for (const Row& row : rows) {
    INFO(row.file << " " << row.options.back());
    const Graph graph = converted(dumped(row.file), row.options);
    const auto look = [&](const auto& node) {
      CHECK(node.attributes.band == row.band);
      CHECK(node.attributes.scale == 0.125);
      for (const Port& port : {node.q, node.k, node.v, node.o, node.stats}) {
        const Tensor& tensor = *graph.find(*port);
        CHECK(tensor.ragged.has_value() == row.is_ragged);
        CHECK(tensor.dims[1] == 4);
        CHECK(tensor.dims[3] == (port == node.stats ? 1 : 64));
      }
    };
    if (const auto* forward = std::get_if<SdpaForward>(&graph.nodes[0]))
      look(*forward);
    else
      look(std::get<SdpaBackward>(graph.nodes[0]));
    const TemporaryFile input(print(graph));
    const Exited run = attngraph_with({"run", input.path, "--gaps", "2", "--compare"});
    INFO(run.out << run.err);
    CHECK(run.code == 0);
  }
}

TEST_CASE("packed tensors of a version that leaves out their offsets are asked about", "[cli]") {
  const TemporaryFile input(dumped("pytorch-2.11.log"));
  const Exited answer = attngraph_with({"convert", input.path, "--scale", "0.125", "--graph", "2"});
  CHECK(answer.code == 2);
  CHECK(has(answer.err, "tensor Q: has batch stride 2147483647, which PyTorch gives packed tensors"));
  CHECK(has(answer.err, "must be converted with --packed"));
}

TEST_CASE("convert undoes the transposition of paged k and names what must be bound", "[cli]") {
  const std::string node =
      R"({"tag": "SDPA", "name": "", "inputs": {"Q": 1, "K": 2, "V": 3, "SEQ_LEN_Q": 6, "SEQ_LEN_KV": 6, )"
      R"("Page_table_K": 7, "Page_table_V": 8}, "outputs": {"O": 4, "Stats": 5}, "padding_mask": true, )"
      R"("alibi_mask": true, "right_bound": 0, "max_seq_len_kv": 30})";
  const std::string tensors =
      tensor("1", "\"HALF\"", "[2, 4, 1, 32]", "[128, 32, 32, 1]") + ", " +
      tensor("2", "\"HALF\"", "[9, 2, 32, 8]", "[512, 256, 1, 32]") + ", " +
      tensor("3", "\"HALF\"", "[9, 2, 8, 32]", "[512, 256, 32, 1]") + ", " +
      tensor("4", "\"HALF\"", "[]", "[]") + ", " + tensor("6", "\"INT32\"", "[2, 1, 1, 1]", "[1, 1, 1, 1]") +
      ", " + tensor("7", "\"INT32\"", "[2, 1, 4, 1]", "[4, 4, 1, 1]") + ", " +
      tensor("8", "\"INT32\"", "[2, 1, 4, 1]", "[4, 4, 1, 1]") + ", " +
      R"("5": {"name": "unasked", "data_type": "FLOAT", "dim": [], "stride": [], "is_virtual": true, "uid": 5, )"
      R"("uid_assigned": true})";
  const TemporaryFile input(file(node, tensors));
  const Exited answer = attngraph_with({"convert", input.path});
  INFO(answer.err);
  REQUIRE(answer.code == 0);
  CHECK(has(answer.err, "(alibi_slopes): cuDNN computes these"));
  const Graph graph = parse(answer.out).value();
  const SdpaForward& made = std::get<SdpaForward>(graph.nodes[0]);
  CHECK(graph.find(2)->dims == std::vector<int64_t>{9, 2, 8, 32});
  CHECK(graph.find(7)->dims == std::vector<int64_t>{2, 4});
  CHECK(graph.find(7)->strides == std::vector<int64_t>{4, 1});
  CHECK(graph.find(4)->dims == std::vector<int64_t>{2, 4, 1, 32});
  CHECK(graph.find(*made.alibi_slopes)->dims == std::vector<int64_t>{4});
  CHECK(made.attributes.max_seq_len_kv == 30);
  CHECK_FALSE(made.stats);  // virtual and read by nobody: not asked for
}

TEST_CASE("what has no counterpart is an error that names it", "[cli]") {
  struct Row {
    std::string content;
    std::vector<std::string> options;
    const char* words;
  };
  const auto with = [](const std::string& inputs, const std::string& outputs, const std::string& members) {
    return file(forward(kQkvPorts + inputs, R"("O": 4)" + outputs, members), kQkv);
  };
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  const Row rows[] = {
      {replaced(plain(), "\"SDPA\"", "\"MATMUL\""),
       {},
       "nodes[0].tag: \"MATMUL\"; must be SDPA, SDPA_FWD or SDPA_BWD"},
      {with(R"(, "Block_mask": 9)", "", kPlainMembers),
       {},
       "nodes[0].inputs.Block_mask: is given; must be absent"},
      {with("", R"(, "Max": 4)", kPlainMembers), {}, "nodes[0].outputs.Max: is given; must be absent"},
      {with(R"(, "Bias": 99)", "", kPlainMembers), {}, "nodes[0].inputs.Bias: 99 is no key of tensors"},
      {with("", "", kPlainMembers + R"(, "block_size": 3)"),
       {},
       "nodes[0].block_size: unknown key with value 3"},
      {with(R"(, "Attn_scale": 4)", "", kPlainMembers), {}, "must be given by --scale"},
      {replaced(plain(), "\"padding_mask\": false", "\"padding_mask\": true"),
       {},
       "nodes[0].padding_mask: true without SEQ_LEN_Q or SEQ_LEN_KV; must be false then"},
      {replaced(plain(), "\"is_mxfp8\": false", "\"is_mxfp8\": true"),
       {},
       "nodes[0].is_mxfp8: true; must be false"},
      {replaced(plain(), "\"is_pass_by_value\": false", "\"is_pass_by_value\": true"),
       {},
       "tensors.1.is_pass_by_value: true; must be false, q is read from memory"},
      {replaced(plain(), "\"NONE\"", "\"F16x16\""), {}, "tensors.1.reordering_type: F16x16; must be NONE"},
      {replaced(plain(), "\"HALF\"", "\"INT4\""),
       {},
       "tensors.1.data_type: \"INT4\"; must be one of FLOAT, HALF"},
      {replaced(replaced(plain(), "\"HALF\"", "null"), "\"BFLOAT16\"", "null"),
       {},
       "tensors.1.data_type: null, and the context has none"},
      {replaced(plain(), "\"attn_scale_value\": null", "\"attn_scale_value\": \"3E0000\""),
       {},
       "must be a number or the eight hexadecimal digits of a float"},
      {plain(), {"--offsets", "i8"}, "--offsets: is i8; must be i32 or i64"},
      {plain(), {"--packed"}, "--packed: is given alone; must come with --offsets"},
      {plain(), {"--scale", "big"}, "--scale: is big; must be a finite number"},
      {plain(), {"--graph", "1"}, "holds 1 graphs; must be one of them"},
      {"a log\nof nothing\n", {}, "no line holds a graph with \"context\""},
  };
  for (const Row& row : rows) {
    const TemporaryFile input(row.content);
    std::vector<std::string> words = {"convert", input.path};
    words.insert(words.end(), row.options.begin(), row.options.end());
    const Exited answer = attngraph_with(words);
    INFO("want " << row.words << "\ngot  " << answer.err);
    CHECK(answer.code == 2);
    CHECK(has(answer.err, row.words));
  }
}
