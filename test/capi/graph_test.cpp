#include <cstring>
#include <string>
#include <vector>

#include "capi/support.hpp"
#include "support/catch.hpp"

using namespace attngraph::test;

namespace {

/// What a call says when it is refused.
struct Refusal {
  const char* why;
  attngraph_status (*call)(attngraph_graph* graph, attngraph_message* message);
  const char* words;
};

attngraph_tensor vector_of(const int64_t& count) {
  static const int64_t kOne = 1;
  attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
  tensor.rank = 1;
  tensor.dims = &count;
  tensor.strides = &kOne;
  return tensor;
}

attngraph_status add_node(attngraph_graph* graph, const char* op, std::vector<attngraph_port> ports,
                          const attngraph_attributes* attributes, attngraph_message* message) {
  attngraph_node node = ATTNGRAPH_NODE_INIT;
  node.op = op;
  node.ports = ports.data();
  node.num_ports = ports.size();
  node.attributes = attributes;
  return attngraph_graph_add_node(graph, &node, message);
}

}  // namespace

TEST_CASE("a graph built in C is the one that its JSON describes", "[capi]") {
  const CGraph graph = causal_graph(1, 2, 4, 8);
  REQUIRE(graph);
  attngraph_text length_only = {nullptr, 0, 0};
  REQUIRE(attngraph_graph_to_json(graph.get(), &length_only, nullptr) == ATTNGRAPH_OK);
  std::string json(length_only.length, '\0');
  attngraph_text text = {json.data(), json.size() + 1, 0};
  REQUIRE(attngraph_graph_to_json(graph.get(), &text, nullptr) == ATTNGRAPH_OK);
  CHECK(json.find("\"op\": \"sdpa_forward\"") != std::string::npos);
  CHECK(json.find("\"attributes\": {\"band\": {\"right\": 0}}") != std::string::npos);

  attngraph_graph* read = nullptr;
  REQUIRE(attngraph_graph_from_json(json.data(), json.size(), &read, nullptr) == ATTNGRAPH_OK);
  const CGraph owner(read);
  CHECK(attngraph_graph_num_nodes(read) == 1);
  CHECK(attngraph_graph_port(read, 0, "o") == 4);
  CHECK(attngraph_graph_port(read, 0, "stats") == ATTNGRAPH_NONE);
  CHECK(attngraph_graph_port(read, 1, "o") == ATTNGRAPH_NONE);
  std::string again(json.size(), '\0');
  text = {again.data(), again.size() + 1, 0};
  REQUIRE(attngraph_graph_to_json(read, &text, nullptr) == ATTNGRAPH_OK);
  CHECK(again == json);
}

TEST_CASE("a tensor is described as it was added", "[capi]") {
  const CGraph graph = causal_graph(1, 2, 4, 8);
  const int64_t count = 3;
  attngraph_tensor added = vector_of(count);
  added.name = "offsets";
  added.data_type = ATTNGRAPH_I64;
  added.alignment = 64;
  added.ragged_offsets = 2;
  added.ragged_multiplier = 7;
  added.is_virtual = 1;
  int64_t uid = 0;
  REQUIRE(attngraph_graph_add_tensor(graph.get(), &added, &uid, nullptr) == ATTNGRAPH_OK);
  CHECK(uid == 5);
  attngraph_tensor found = ATTNGRAPH_TENSOR_INIT;
  REQUIRE(attngraph_graph_tensor(graph.get(), uid, &found, nullptr) == ATTNGRAPH_OK);
  CHECK(std::string(found.name) == "offsets");
  CHECK(found.uid == uid);
  CHECK(found.data_type == ATTNGRAPH_I64);
  CHECK(found.rank == 1);
  CHECK(found.dims[0] == 3);
  CHECK(found.strides[0] == 1);
  CHECK(found.alignment == 64);
  CHECK(found.ragged_offsets == 2);
  CHECK(found.ragged_multiplier == 7);
  CHECK(found.is_virtual == 1);
}

TEST_CASE("what contradicts itself is refused with the argument's name and value", "[capi]") {
  const std::vector<Refusal> refusals = {
      {"a graph handle is needed",
       [](attngraph_graph*, attngraph_message* m) { return attngraph_graph_validate(nullptr, m); },
       "graph: is null; must be a pointer"},
      {"JSON that is none",
       [](attngraph_graph*, attngraph_message* m) {
         attngraph_graph* read = nullptr;
         return attngraph_graph_from_json("{\"format\": 1}", 13, &read, m);
       },
       "format: 1; must be"},
      {"a struct without a size",
       [](attngraph_graph* g, attngraph_message* m) {
         attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
         tensor.struct_size = 0;
         return attngraph_graph_add_tensor(g, &tensor, nullptr, m);
       },
       "tensor.struct_size: is 0; must be the sizeof"},
      {"a type that is no number of the enum",
       [](attngraph_graph* g, attngraph_message* m) {
         attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
         tensor.data_type = 99;
         return attngraph_graph_add_tensor(g, &tensor, nullptr, m);
       },
       "tensor.data_type: is 99; must be a number of f32, f16"},
      {"a negative rank",
       [](attngraph_graph* g, attngraph_message* m) {
         attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
         tensor.rank = -1;
         return attngraph_graph_add_tensor(g, &tensor, nullptr, m);
       },
       "tensor.rank: is -1; must be 0 or more"},
      {"dims that are not there",
       [](attngraph_graph* g, attngraph_message* m) {
         attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
         tensor.rank = 2;
         return attngraph_graph_add_tensor(g, &tensor, nullptr, m);
       },
       "tensor.dims: is null; must be a pointer"},
      {"an unknown tensor",
       [](attngraph_graph* g, attngraph_message* m) {
         attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
         return attngraph_graph_tensor(g, 77, &tensor, m);
       },
       "uid: is 77; must be the uid of a tensor"},
      {"an unknown op",
       [](attngraph_graph* g, attngraph_message* m) { return add_node(g, "sdpa", {}, nullptr, m); },
       "node.op: is sdpa; must be one of sdpa_forward, sdpa_backward, merge_partials"},
      {"an unknown role",
       [](attngraph_graph* g, attngraph_message* m) {
         return add_node(g, "sdpa_forward", {{"attn_mask", 1}}, nullptr, m);
       },
       "port.role: is attn_mask; must be a role of sdpa_forward"},
      {"a role given twice",
       [](attngraph_graph* g, attngraph_message* m) {
         return add_node(g, "sdpa_forward", {{"q", 1}, {"q", 2}}, nullptr, m);
       },
       "port q: is given as uid 1 and as uid 2; must be given once"},
      {"an attribute that a merge does not have",
       [](attngraph_graph* g, attngraph_message* m) {
         attngraph_attributes attributes = ATTNGRAPH_ATTRIBUTES_INIT;
         attributes.softcap = 3;
         return add_node(g, "merge_partials", {}, &attributes, m);
       },
       "node.attributes: have more than stats_base and max_total_q; must be those alone in merge_partials"},
      {"a gradient that does not exist",
       [](attngraph_graph* g, attngraph_message* m) {
         attngraph_graph *forward = nullptr, *backward = nullptr;
         return attngraph_training_pair(g, 64, &forward, &backward, m);
       },
       "gradients: is 64; must be a sum of bits up to 63"},
      {"a gradient of an absent input",
       [](attngraph_graph* g, attngraph_message* m) {
         attngraph_graph *forward = nullptr, *backward = nullptr;
         return attngraph_training_pair(g, ATTNGRAPH_GRADIENT_BIAS, &forward, &backward, m);
       },
       "dbias wanted of a forward without bias"},
      {"two tensors of one uid",
       [](attngraph_graph* g, attngraph_message* m) {
         attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
         tensor.uid = 1;
         attngraph_graph_add_tensor(g, &tensor, nullptr, nullptr);
         return attngraph_graph_validate(g, m);
       },
       "uid 1 is borne by tensors 0 and 4; must be unique"},
  };
  for (const Refusal& refusal : refusals) {
    const CGraph graph = causal_graph(1, 2, 4, 8);
    Message message;
    INFO(refusal.why);
    CHECK(refusal.call(graph.get(), message) == ATTNGRAPH_INVALID_GRAPH);
    CHECK(std::string(message.text).find(refusal.words) != std::string::npos);
    CHECK(refusal.call(graph.get(), nullptr) == ATTNGRAPH_INVALID_GRAPH);  // without a message, too
  }
}

TEST_CASE("a merge takes the two attributes that it has", "[capi]") {
  const CGraph graph = causal_graph(1, 2, 4, 8);
  attngraph_attributes attributes = ATTNGRAPH_ATTRIBUTES_INIT;
  attributes.stats_base = ATTNGRAPH_STATS_BASE_2;
  attributes.max_total_q = 12;
  REQUIRE(add_node(graph.get(), "merge_partials", {{"o_a", 1}, {"o", 4}}, &attributes, nullptr) ==
          ATTNGRAPH_OK);
  std::string json(4096, '\0');
  attngraph_text text = {json.data(), json.size(), 0};
  REQUIRE(attngraph_graph_to_json(graph.get(), &text, nullptr) == ATTNGRAPH_OK);
  CHECK(json.find("\"attributes\": {\"stats_base\": \"2\", \"max_total_q\": 12}") != std::string::npos);
}

TEST_CASE("a caller that knows fewer members of a struct gets the defaults of the others", "[capi]") {
  const CGraph graph = causal_graph(1, 2, 4, 8);
  struct Older {  // attngraph_tensor up to its strides
    size_t struct_size;
    int64_t uid;
    const char* name;
    attngraph_data_type data_type;
    int32_t rank;
    const int64_t *dims, *strides;
  };
  const int64_t count = 2, stride = 1;
  const Older older = {sizeof(Older), 50, "lengths", ATTNGRAPH_I32, 1, &count, &stride};
  REQUIRE(attngraph_graph_add_tensor(graph.get(), reinterpret_cast<const attngraph_tensor*>(&older), nullptr,
                                     nullptr) == ATTNGRAPH_OK);
  attngraph_tensor found = ATTNGRAPH_TENSOR_INIT;
  REQUIRE(attngraph_graph_tensor(graph.get(), 50, &found, nullptr) == ATTNGRAPH_OK);
  CHECK(found.alignment == 16);
  CHECK(found.ragged_offsets == ATTNGRAPH_NONE);

  Older out = {sizeof(Older), 0, nullptr, ATTNGRAPH_F32, 0, nullptr, nullptr};
  REQUIRE(attngraph_graph_tensor(graph.get(), 50, reinterpret_cast<attngraph_tensor*>(&out), nullptr) ==
          ATTNGRAPH_OK);
  CHECK(out.struct_size == sizeof(Older));
  CHECK(std::string(out.name) == "lengths");
  CHECK(out.dims[0] == 2);
}

TEST_CASE("a text that does not fit ends between characters and tells its whole length", "[capi]") {
  attngraph_graph* made = nullptr;
  REQUIRE(attngraph_graph_create("\xc3\xa4\xc3\xb6\xc3\xbc", &made, nullptr) == ATTNGRAPH_OK);
  const CGraph graph(made);
  Message all;
  const attngraph_text whole = [&] {
    attngraph_text text = {all.text, sizeof all.text, 0};
    REQUIRE(attngraph_graph_to_json(made, &text, nullptr) == ATTNGRAPH_OK);
    return text;
  }();
  for (size_t capacity = 1; capacity <= whole.length + 1; ++capacity) {
    std::vector<char> buffer(capacity + 1, '#');
    attngraph_text text = {buffer.data(), capacity, 0};
    REQUIRE(attngraph_graph_to_json(made, &text, nullptr) == ATTNGRAPH_OK);
    REQUIRE(text.length == whole.length);
    REQUIRE(buffer[capacity] == '#');
    const size_t written = std::strlen(buffer.data());
    REQUIRE(std::memcmp(buffer.data(), all.text, written) == 0);
    REQUIRE((static_cast<unsigned char>(all.text[written]) & 0xC0) != 0x80);  // a character begins there
    REQUIRE(written + 2 >= capacity);
  }
}

TEST_CASE("a training pair has the gradients asked for under uids that can be looked up", "[capi]") {
  const CGraph graph = causal_graph(1, 2, 4, 8);
  attngraph_graph *forward = nullptr, *backward = nullptr;
  Message message;
  REQUIRE(attngraph_training_pair(graph.get(), ATTNGRAPH_GRADIENT_Q | ATTNGRAPH_GRADIENT_V, &forward,
                                  &backward, message) == ATTNGRAPH_OK);
  const CGraph forward_owner(forward), backward_owner(backward);
  CHECK(message.message.length == 0);
  CHECK(attngraph_graph_port(forward, 0, "stats") == attngraph_graph_port(backward, 0, "stats"));
  CHECK(attngraph_graph_port(backward, 0, "dq") != ATTNGRAPH_NONE);
  CHECK(attngraph_graph_port(backward, 0, "dk") == ATTNGRAPH_NONE);
  attngraph_tensor dv = ATTNGRAPH_TENSOR_INIT;
  REQUIRE(attngraph_graph_tensor(backward, attngraph_graph_port(backward, 0, "dv"), &dv, nullptr) ==
          ATTNGRAPH_OK);
  CHECK(dv.dims[3] == 8);
}
