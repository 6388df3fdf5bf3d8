/* Loads two copies of the library, each with its own context, and plans and runs on both in turn: neither
 * sees what the other does. Exits 0 when all is as it must be. */
#include <attngraph/attngraph.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kGraph[] =
    "{\"format\": \"attngraph.graph\", \"version\": 1, \"tensors\": ["
    "{\"uid\": 1, \"dtype\": \"f32\", \"dims\": [1, 1, 2, 4], \"strides\": [8, 8, 4, 1], \"alignment\": 4},"
    "{\"uid\": 2, \"dtype\": \"f32\", \"dims\": [1, 1, 2, 4], \"alignment\": 4}],"
    "\"nodes\": [{\"op\": \"sdpa_forward\", \"inputs\": {\"q\": 1, \"k\": 1, \"v\": 1}, \"outputs\": {\"o\": 2}}]}";

static void require(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "two_copies: %s\n", what);
  exit(1);
}

/* One copy of the library. ISO C has no cast from an object pointer to a function pointer: bytes are copied. */
typedef struct copy {
  void* library;
  attngraph_status (*context_create)(const attngraph_context_options*, attngraph_context**, attngraph_message*);
  void (*context_destroy)(attngraph_context*);
  attngraph_status (*statistics)(const attngraph_context*, attngraph_cache_statistics*, attngraph_message*);
  attngraph_status (*from_json)(const char*, size_t, attngraph_graph**, attngraph_message*);
  void (*graph_destroy)(attngraph_graph*);
  attngraph_status (*plan_create)(attngraph_context*, const attngraph_graph*, const attngraph_target*,
                                  const attngraph_plan_options*, attngraph_plan**, attngraph_message*);
  void (*plan_destroy)(attngraph_plan*);
  int64_t (*workspace_bytes)(const attngraph_plan*);
  attngraph_status (*execute)(const attngraph_plan*, const attngraph_call*, attngraph_message*);
  attngraph_context* context;
} copy;

static void load(void* library, const char* name, void* function) {
  void* found = dlsym(library, name);
  require(found != NULL, name);
  memcpy(function, &found, sizeof found);
}

static copy open_copy(const char* path) {
  copy c;
  c.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  require(c.library != NULL, dlerror());
  load(c.library, "attngraph_context_create", &c.context_create);
  load(c.library, "attngraph_context_destroy", &c.context_destroy);
  load(c.library, "attngraph_context_cache_statistics", &c.statistics);
  load(c.library, "attngraph_graph_from_json", &c.from_json);
  load(c.library, "attngraph_graph_destroy", &c.graph_destroy);
  load(c.library, "attngraph_plan_create", &c.plan_create);
  load(c.library, "attngraph_plan_destroy", &c.plan_destroy);
  load(c.library, "attngraph_plan_workspace_bytes", &c.workspace_bytes);
  load(c.library, "attngraph_execute", &c.execute);
  require(c.context_create(NULL, &c.context, NULL) == ATTNGRAPH_OK, "no context");
  return c;
}

static void run(const copy* c) {
  float x[8] = {1, 2, 3, 4, 1, 2, 3, 4}, o[8] = {0};
  void* pointers[2];
  attngraph_graph* graph = NULL;
  attngraph_plan* plan = NULL;
  attngraph_call call = ATTNGRAPH_CALL_INIT;
  void* memory;
  int i;
  require(c->from_json(kGraph, strlen(kGraph), &graph, NULL) == ATTNGRAPH_OK, "the graph is refused");
  require(c->plan_create(c->context, graph, NULL, NULL, &plan, NULL) == ATTNGRAPH_OK, "no plan");
  c->graph_destroy(graph);
  memory = malloc((size_t)c->workspace_bytes(plan) + 256);
  require(memory != NULL, "no memory");
  pointers[0] = x;
  pointers[1] = o;
  call.pointers = pointers;
  call.num_pointers = 2;
  call.workspace = (char*)memory + (256 - (uintptr_t)memory % 256);
  call.workspace_bytes = c->workspace_bytes(plan);
  require(c->execute(plan, &call, NULL) == ATTNGRAPH_OK, "execute is refused");
  for (i = 0; i < 8; ++i) require(o[i] > x[i] - 1e-5F && o[i] < x[i] + 1e-5F, "o is not the mean of equal rows");
  free(memory);
  c->plan_destroy(plan);
}

int main(int argc, char** argv) {
  copy one, two;
  attngraph_cache_statistics statistics = ATTNGRAPH_CACHE_STATISTICS_INIT;
  require(argc == 3, "usage: two_copies LIBRARY LIBRARY");
  one = open_copy(argv[1]);
  two = open_copy(argv[2]);
  require(one.execute != two.execute, "the second copy is the first");
  run(&one);
  run(&two);
  run(&one);
  require(one.statistics(one.context, &statistics, NULL) == ATTNGRAPH_OK, "no statistics");
  require(statistics.misses == 1 && statistics.hits == 1, "the first copy counts what the second does");
  require(two.statistics(two.context, &statistics, NULL) == ATTNGRAPH_OK, "no statistics");
  require(statistics.misses == 1 && statistics.hits == 0, "the second copy counts what the first does");
  one.context_destroy(one.context);
  dlclose(one.library);
  run(&two);
  two.context_destroy(two.context);
  dlclose(two.library);
  return 0;
}
