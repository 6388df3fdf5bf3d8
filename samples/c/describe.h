#ifndef SAMPLES_C_DESCRIBE_H_
#define SAMPLES_C_DESCRIBE_H_

/* The graph that embed.c runs, built call by call. */
#include <attngraph/attngraph.h>
#include <stdio.h>
#include <stdlib.h>

enum { kHeads = 4, kLen = 32, kDim = 16, kElems = kHeads * kLen * kDim, kSlots = 4 };
static char text[1024];
static attngraph_message message = {text, sizeof text, 0};

static void require(attngraph_status status) {
  if (status == ATTNGRAPH_OK) return;
  fprintf(stderr, "embed: %s: %s\n", attngraph_status_name(status), text);
  exit(1);
}

/* Causal attention on views of [batch, len, heads, dim] in float32; q, k, v, o have the uids 1 to 4. */
static attngraph_graph* describe(void) {
  const int64_t dims[] = {1, kHeads, kLen, kDim}, strides[] = {kElems, kDim, kHeads * kDim, 1};
  const attngraph_port ports[] = {{"q", 1}, {"k", 2}, {"v", 3}, {"o", 4}};
  attngraph_attributes attributes = ATTNGRAPH_ATTRIBUTES_INIT;
  attngraph_node node = ATTNGRAPH_NODE_INIT;
  attngraph_graph* graph;
  require(attngraph_graph_create("embed", &graph, &message));
  for (int i = 0; i < kSlots; ++i) {
    attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
    tensor.uid = ports[i].uid, tensor.name = ports[i].role, tensor.alignment = sizeof(float);
    tensor.rank = 4, tensor.dims = dims, tensor.strides = strides;
    require(attngraph_graph_add_tensor(graph, &tensor, NULL, &message));
  }
  attributes.band_right = 0;
  node.op = "sdpa_forward", node.ports = ports, node.num_ports = kSlots, node.attributes = &attributes;
  require(attngraph_graph_add_node(graph, &node, &message));
  return graph;
}

#endif
