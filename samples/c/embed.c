/* What a framework's backend does, in C: ask who supports a graph and read the reasons, plan once, run the
 * one plan from two threads in memory of its own, bind other memory, and clean up. */
#include <math.h>
#include <pthread.h>

#include "describe.h"

static void print_support(const attngraph_context* context, const attngraph_graph* graph) {
  attngraph_target target = ATTNGRAPH_TARGET_INIT;
  attngraph_reason why = ATTNGRAPH_REASON_INIT;
  attngraph_support* support;
  const char* engine;
  require(attngraph_target_preset("h200", &target, &message));
  require(attngraph_support_query(context, graph, &target, &support, &message));
  for (size_t e = 0; (engine = attngraph_support_engine(support, e)) != NULL; ++e) {
    printf("%s on an h200: %s\n", engine, attngraph_support_num_reasons(support, e) == 0 ? "yes" : "no");
    for (size_t r = 0; attngraph_support_reason(support, e, r, &why, NULL) == ATTNGRAPH_OK; ++r)
      printf("  %s is %s; needs %s\n", why.subject, why.has, why.wants);
  }
  attngraph_support_destroy(support);
}

/* One thread's memory. With keys of 0 all weigh the same, so o is the mean of equal values v. */
typedef struct worker {
  const attngraph_plan* plan; /* shared and immutable */
  float q[kElems], k[kElems], v[2][kElems], o[kElems];
} worker;

static void* run(void* arg) {
  worker* w = arg;
  const int64_t bytes = attngraph_plan_workspace_bytes(w->plan);
  char* memory = malloc((size_t)bytes + 256);
  void* pointers[kSlots];
  attngraph_call call = ATTNGRAPH_CALL_INIT;
  const int32_t v_slot = attngraph_plan_slot_by_name(w->plan, "v");
  int is_wrong = memory == NULL;
  pointers[attngraph_plan_slot(w->plan, 1)] = w->q, pointers[attngraph_plan_slot(w->plan, 2)] = w->k;
  pointers[attngraph_plan_slot(w->plan, 4)] = w->o;
  call.pointers = pointers, call.num_pointers = kSlots;
  call.workspace = memory + (256 - (uintptr_t)memory % 256), call.workspace_bytes = bytes;
  for (int round = 0; round < 2 && !is_wrong; ++round) {
    pointers[v_slot] = w->v[round]; /* to bind other memory is to store another pointer */
    is_wrong = attngraph_execute(w->plan, &call, NULL) != ATTNGRAPH_OK;
    for (int i = 0; i < kElems; ++i) is_wrong |= fabsf(w->o[i] - w->v[round][0]) > 1e-4F;
  }
  free(memory);
  return is_wrong ? w : NULL;
}

int main(void) {
  static worker workers[2];
  pthread_t threads[2];
  void* wrong[2];
  attngraph_graph* graph = describe();
  attngraph_context* context;
  attngraph_plan* plan;
  require(attngraph_context_create(NULL, &context, &message));
  print_support(context, graph);
  require(attngraph_plan_create(context, graph, NULL, NULL, &plan, &message));
  attngraph_graph_destroy(graph);
  for (int i = 0; i < 2; ++i) {
    workers[i].plan = plan;
    for (int j = 0; j < kElems; ++j) workers[i].v[0][j] = (float)i + 1, workers[i].v[1][j] = (float)i - 4;
    if (pthread_create(&threads[i], NULL, run, &workers[i]) != 0) return 1;
  }
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], &wrong[i]);
  attngraph_plan_destroy(plan);
  attngraph_context_destroy(context);
  puts(wrong[0] || wrong[1] ? "embed: a thread was refused or got a wrong o"
                            : "embed: one plan, two threads");
  return wrong[0] || wrong[1];
}
