/// What attngraph_execute asks of the process, counted where the C library would answer: definitions in a
/// program come before those of shared libraries.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdint>
#include <cstdlib>

#include "capi/support.hpp"
#include "support/catch.hpp"

namespace {

struct Counts {
  int64_t allocations = 0, locks = 0, environment_reads = 0;
};
Counts counts;

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  ++counts.allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++counts.allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  ++counts.allocations;
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  ++counts.allocations;
  return __libc_memalign(alignment, bytes);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static const auto lock = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  ++counts.locks;
  return lock(mutex);
}
char* getenv(const char* name) {
  static const auto get = next<char*(const char*)>("getenv");
  ++counts.environment_reads;
  return get(name);
}
}

using namespace attngraph::test;

TEST_CASE("the counters see what the library does while it plans", "[capi]") {
  const Counts before = counts;
  const CContext context = make_context();
  REQUIRE(make_plan(context.get(), causal_graph(2, 2, 8, 16).get()));
  CHECK(counts.allocations > before.allocations);
  CHECK(counts.locks > before.locks);
  CHECK(counts.environment_reads > before.environment_reads);
}

TEST_CASE("execute allocates nothing, takes no lock and reads no environment", "[capi]") {
  attngraph_context_options options = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  options.num_threads = GENERATE(1, 2);
  const CContext context = make_context(&options);
  const CGraph graph = causal_graph(2, 2, 300, 16);
  attngraph_graph *forward = nullptr, *backward = nullptr;
  REQUIRE(attngraph_training_pair(graph.get(), 7, &forward, &backward, nullptr) == ATTNGRAPH_OK);
  const CGraph forward_owner(forward), backward_owner(backward);
  for (const attngraph_graph* pass : {forward, backward})
    for (const char* engine : {"cpu", "reference"}) {
      attngraph_plan_options plan_options = ATTNGRAPH_PLAN_OPTIONS_INIT;
      plan_options.engine = engine;
      const CPlan plan = make_plan(context.get(), pass, &plan_options);
      REQUIRE(plan);
      Storage storage(plan.get(), 0.5F);
      Message message;
      REQUIRE(attngraph_execute(plan.get(), &storage.call, message) == ATTNGRAPH_OK);  // starts the pool
      const Counts before = counts;
      const attngraph_status status = attngraph_execute(plan.get(), &storage.call, message);
      const Counts after = counts;
      INFO(engine);
      CHECK(status == ATTNGRAPH_OK);
      CHECK(after.allocations == before.allocations);
      CHECK(after.locks == before.locks);
      CHECK(after.environment_reads == before.environment_reads);
    }
}
