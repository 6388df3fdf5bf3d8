#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attngraph/attngraph.h"

namespace attngraph::test {

/// A message of the caller.
struct Message {
  char text[512] = "";
  attngraph_message message = {text, sizeof text, 0};
  operator attngraph_message*() { return &message; }
};

template <class Handle, void (*kDestroy)(Handle*)>
struct Destroy {
  void operator()(Handle* handle) const { kDestroy(handle); }
};
using CContext = std::unique_ptr<attngraph_context, Destroy<attngraph_context, attngraph_context_destroy>>;
using CGraph = std::unique_ptr<attngraph_graph, Destroy<attngraph_graph, attngraph_graph_destroy>>;
using CPlan = std::unique_ptr<attngraph_plan, Destroy<attngraph_plan, attngraph_plan_destroy>>;
using CSupport = std::unique_ptr<attngraph_support, Destroy<attngraph_support, attngraph_support_destroy>>;

inline CContext make_context(const attngraph_context_options* options = nullptr) {
  attngraph_context* context = nullptr;
  if (attngraph_context_create(options, &context, nullptr) != ATTNGRAPH_OK) return nullptr;
  return CContext(context);
}

inline CPlan make_plan(attngraph_context* context, const attngraph_graph* graph,
                       const attngraph_plan_options* options = nullptr) {
  attngraph_plan* plan = nullptr;
  if (attngraph_plan_create(context, graph, nullptr, options, &plan, nullptr) != ATTNGRAPH_OK) return nullptr;
  return CPlan(plan);
}

/// Causal attention over [batch, heads, len, dim] in float32: q, k, v, o have the uids 1 to 4.
inline CGraph causal_graph(int64_t batch, int64_t heads, int64_t len, int64_t dim) {
  attngraph_graph* made = nullptr;
  if (attngraph_graph_create("causal", &made, nullptr) != ATTNGRAPH_OK) return nullptr;
  CGraph graph(made);
  const int64_t dims[] = {batch, heads, len, dim}, strides[] = {heads * len * dim, len * dim, dim, 1};
  for (const char* name : {"q", "k", "v", "o"}) {
    attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
    tensor.name = name;
    tensor.rank = 4;
    tensor.dims = dims;
    tensor.strides = strides;
    if (attngraph_graph_add_tensor(made, &tensor, nullptr, nullptr) != ATTNGRAPH_OK) return nullptr;
  }
  attngraph_attributes attributes = ATTNGRAPH_ATTRIBUTES_INIT;
  attributes.band_right = 0;
  const attngraph_port ports[] = {{"q", 1}, {"k", 2}, {"v", 3}, {"o", 4}};
  attngraph_node node = ATTNGRAPH_NODE_INIT;
  node.op = "sdpa_forward";
  node.ports = ports;
  node.num_ports = 4;
  node.attributes = &attributes;
  if (attngraph_graph_add_node(made, &node, nullptr) != ATTNGRAPH_OK) return nullptr;
  return graph;
}

/// Memory for every slot of a plan, filled with one value, and the call over it.
class Storage {
 public:
  Storage(const attngraph_plan* plan, float value) {
    for (int32_t slot = 0; slot < attngraph_plan_num_slots(plan); ++slot) {
      attngraph_slot info = ATTNGRAPH_SLOT_INIT;
      if (attngraph_plan_slot_info(plan, slot, &info, nullptr) != ATTNGRAPH_OK) continue;
      slots_.emplace_back(static_cast<size_t>(info.bytes) / sizeof(float), value);
      bytes_.push_back(info.bytes);
    }
    for (std::vector<float>& slot : slots_) pointers_.push_back(slot.data());
    workspace_.resize(static_cast<size_t>(attngraph_plan_workspace_bytes(plan)) / sizeof(Block) + 1);
    call.pointers = pointers_.data();
    call.bytes = bytes_.data();
    call.num_pointers = static_cast<int32_t>(pointers_.size());
    call.workspace = workspace_.data();
    call.workspace_bytes = static_cast<int64_t>(workspace_.size() * sizeof(Block));
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::vector<float>& operator[](int32_t slot) { return slots_[static_cast<size_t>(slot)]; }
  void*& pointer(int32_t slot) { return pointers_[static_cast<size_t>(slot)]; }

  attngraph_call call = ATTNGRAPH_CALL_INIT;

 private:
  struct alignas(256) Block {
    char bytes[256];
  };
  std::vector<std::vector<float>> slots_;
  std::vector<int64_t> bytes_;
  std::vector<void*> pointers_;
  std::vector<Block> workspace_;
};

}  // namespace attngraph::test
