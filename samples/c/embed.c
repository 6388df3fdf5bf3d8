/* What a framework's backend does, in C: ask who supports a graph and read the reasons, plan once, run the
 * one plan from two threads in memory of its own, bind other memory, and clean up. */
#include <attngraph/attngraph.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { kHeads = 4, kLen = 32, kDim = 16, kElems = kHeads * kLen * kDim, kSlots = 4 };

static attngraph_message message;
static char message_text[1024];

static void require(attngraph_status status) {
  if (status == ATTNGRAPH_OK) return;
  fprintf(stderr, "embed: %s: %s\n", attngraph_status_name(status), message.data);
  exit(1);
}

/* Causal attention on views of [batch, len, heads, dim]; q, k, v, o become uids 1 to 4. */
static attngraph_graph* describe(void) {
  static const char* const kRoles[kSlots] = {"q", "k", "v", "o"};
  const int64_t dims[] = {1, kHeads, kLen, kDim}, strides[] = {kElems, kDim, kHeads * kDim, 1};
  attngraph_attributes attributes = ATTNGRAPH_ATTRIBUTES_INIT;
  attngraph_node node = ATTNGRAPH_NODE_INIT;
  attngraph_port ports[kSlots];
  attngraph_graph* graph;
  int i;
  require(attngraph_graph_create("embed", &graph, &message));
  for (i = 0; i < kSlots; ++i) {
    attngraph_tensor tensor = ATTNGRAPH_TENSOR_INIT;
    tensor.name = ports[i].role = kRoles[i];
    tensor.rank = 4;
    tensor.dims = dims;
    tensor.strides = strides;
    tensor.alignment = sizeof(float);
    require(attngraph_graph_add_tensor(graph, &tensor, &ports[i].uid, &message));
  }
  attributes.band_right = 0;
  node.op = "sdpa_forward";
  node.ports = ports;
  node.num_ports = kSlots;
  node.attributes = &attributes;
  require(attngraph_graph_add_node(graph, &node, &message));
  return graph;
}

static void print_support(const attngraph_context* context, const attngraph_graph* graph,
                          const char* device) {
  attngraph_target target = ATTNGRAPH_TARGET_INIT;
  attngraph_support* support;
  size_t e, r;
  require(attngraph_target_preset(device, &target, &message));
  require(attngraph_support_query(context, graph, &target, &support, &message));
  for (e = 0; attngraph_support_engine(support, e) != NULL; ++e) {
    if (attngraph_support_num_reasons(support, e) == 0)
      printf("%s: %s takes it\n", device, attngraph_support_engine(support, e));
    for (r = 0; r < attngraph_support_num_reasons(support, e); ++r) {
      attngraph_reason reason = ATTNGRAPH_REASON_INIT;
      require(attngraph_support_reason(support, e, r, &reason, &message));
      printf("%s: %s: %s is %s; needs %s\n", device, attngraph_support_engine(support, e), reason.subject,
             reason.has, reason.wants);
    }
  }
  attngraph_support_destroy(support);
}

/* One thread's memory. The plan is shared and immutable; workspaces are not shared. */
typedef struct worker {
  const attngraph_plan* plan;
  float q[kElems], k[kElems], v[2][kElems], o[kElems];
  float value; /* of every element of v[0]; v[1] has twice that */
} worker;

/* Rows of equal values have that value as their mean, whatever the weights. */
static void* run(void* arg) {
  worker* w = arg;
  void* pointers[kSlots];
  const int32_t v_slot = attngraph_plan_slot_by_name(w->plan, "v");
  const int64_t bytes = attngraph_plan_workspace_bytes(w->plan);
  char* memory = malloc((size_t)bytes + 256);
  attngraph_call call = ATTNGRAPH_CALL_INIT;
  int i, round;
  for (i = 0; i < kElems; ++i) {
    w->q[i] = (float)(i % 7) / 7;
    w->k[i] = (float)(i % 5) / 5;
    w->v[0][i] = w->value;
    w->v[1][i] = 2 * w->value;
  }
  pointers[attngraph_plan_slot(w->plan, 1)] = w->q;
  pointers[attngraph_plan_slot(w->plan, 2)] = w->k;
  pointers[attngraph_plan_slot(w->plan, 4)] = w->o;
  call.pointers = pointers;
  call.num_pointers = kSlots;
  call.workspace = memory + (256 - (uintptr_t)memory % 256);
  call.workspace_bytes = bytes;
  for (round = 0; round < 2; ++round) {
    pointers[v_slot] = w->v[round]; /* to bind other memory is to store another pointer */
    if (attngraph_execute(w->plan, &call, NULL) != ATTNGRAPH_OK) return "execute was refused";
    for (i = 0; i < kElems; ++i)
      if (fabsf(w->o[i] - w->v[round][0]) > 1e-4F) return "o is not the mean of equal values";
  }
  free(memory);
  return NULL;
}

int main(void) {
  static worker workers[2];
  pthread_t threads[2];
  attngraph_context* context;
  attngraph_plan* plan;
  attngraph_graph* graph;
  void* failure;
  int i, failures = 0;
  message.data = message_text;
  message.capacity = sizeof message_text;
  require(attngraph_context_create(NULL, &context, &message));
  graph = describe();
  print_support(context, graph, "h200");
  require(attngraph_plan_create(context, graph, NULL, NULL, &plan, &message));
  attngraph_graph_destroy(graph);
  for (i = 0; i < 2; ++i) {
    workers[i].plan = plan;
    workers[i].value = (float)(i + 1);
    if (pthread_create(&threads[i], NULL, run, &workers[i]) != 0) return 1;
  }
  for (i = 0; i < 2; ++i) {
    pthread_join(threads[i], &failure);
    if (failure != NULL) fprintf(stderr, "embed: %s\n", (char*)failure), ++failures;
  }
  attngraph_plan_destroy(plan);
  attngraph_context_destroy(context);
  if (failures == 0) puts("embed: one plan served two threads");
  return failures;
}
