#include <atomic>
#include <thread>
#include <vector>

#include "capi/support.hpp"
#include "support/catch.hpp"

using namespace attngraph::test;

namespace {

constexpr int kThreads = 8;

template <class Body>
void on_all_threads(Body&& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("eight threads run one plan at once, each in its own memory", "[threads]") {
  attngraph_context_options options = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  options.num_threads = 3;  // a pool that some find busy
  const CContext context = make_context(&options);
  const CPlan plan = make_plan(context.get(), causal_graph(2, 3, 40, 16).get());
  REQUIRE(plan);
  std::atomic<int> right = 0;
  on_all_threads([&](int i) {
    const float value = static_cast<float>(i + 1);
    Storage storage(plan.get(), value);
    for (int round = 0; round < 20; ++round)
      if (attngraph_execute(plan.get(), &storage.call, nullptr) != ATTNGRAPH_OK) return;
    const std::vector<float>& o = storage[attngraph_plan_slot_by_name(plan.get(), "o")];
    for (const float x : o)
      if (x < 0.999F * value || x > 1.001F * value) return;
    ++right;
  });
  CHECK(right == kThreads);
}

TEST_CASE("eight threads that plan the same graphs at once build each once", "[threads]") {
  const CContext context = make_context();
  std::atomic<int> made = 0;
  on_all_threads([&](int) {
    for (int64_t len = 1; len <= 10; ++len) {
      const CGraph graph = causal_graph(1, 1, len, 8);
      if (make_plan(context.get(), graph.get())) ++made;
    }
  });
  CHECK(made == 10 * kThreads);
  attngraph_cache_statistics statistics = ATTNGRAPH_CACHE_STATISTICS_INIT;
  REQUIRE(attngraph_context_cache_statistics(context.get(), &statistics, nullptr) == ATTNGRAPH_OK);
  CHECK(statistics.builds == 10);
  CHECK(statistics.hits == 10 * kThreads - 10);
}
