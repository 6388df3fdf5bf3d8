#include "plan/cache.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "support/catch.hpp"
#include "support/stub_engine.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

PlanKey key_of_length(int64_t len) { return {forward_program(1, 1, len, 8), Target::cpu(1), {}}; }

struct CountingBuild {
  std::shared_ptr<const EngineSet> engines = stub_engines({{}});
  std::atomic<int> builds = 0;

  std::function<PlanCache::Answer(const PlanKey&)> function() {
    return [this](const PlanKey& key) {
      ++builds;
      return make_plan(key.program, key.target, key.options, engines);
    };
  }
};

constexpr int64_t kNoBound = int64_t{1} << 40;

}  // namespace

TEST_CASE("equal keys are planned once and share the plan", "[cache]") {
  CountingBuild build;
  PlanCache cache(8, kNoBound);
  const auto first = cache.find_or_build(key_of_length(4), build.function()).value();
  const auto second = cache.find_or_build(key_of_length(4), build.function()).value();
  CHECK(first == second);
  CHECK(build.builds == 1);
  const CacheStatistics statistics = cache.statistics();
  CHECK(statistics.hits == 1);
  CHECK(statistics.misses == 1);
  CHECK(statistics.builds == 1);
  CHECK(statistics.entries == 1);
}

TEST_CASE("whatever changes a plan changes its key", "[cache]") {
  const auto change = GENERATE(values<void (*)(PlanKey&)>({
      [](PlanKey& key) { key.program.nodes[0].problem.scale = 0.5; },
      [](PlanKey& key) { key.program.nodes[0].problem[Role::kV].stride[2] = 16; },
      [](PlanKey& key) { key.program.nodes[0].problem[Role::kO].dtype = DataType::kBf16; },
      [](PlanKey& key) { key.program.nodes[0].problem.band = Band::causal(); },
      [](PlanKey& key) { key.program.nodes[0].problem.kv_slots = 7; },
      [](PlanKey& key) { key.program.virtual_slots[3] = true; },
      [](PlanKey& key) { key.target = Target::h200(); },
      [](PlanKey& key) { key.options.guard_bytes = 64; },
      [](PlanKey& key) { key.options.max_workspace_bytes = 64; },
      [](PlanKey& key) { key.options.validate_bindings = true; },
      [](PlanKey& key) { key.options.engine += 'x'; },
  }));
  PlanKey changed = key_of_length(4);
  change(changed);
  CHECK_FALSE(changed == key_of_length(4));
}

TEST_CASE("keys whose hashes all collide keep their own plans", "[cache]") {
  CountingBuild build;
  PlanCache cache(64, kNoBound, [](const PlanKey&) { return size_t{7}; });
  for (int round = 0; round < 2; ++round)
    for (int64_t len = 1; len <= 20; ++len) {
      const auto core = cache.find_or_build(key_of_length(len), build.function()).value();
      CHECK(core->program.nodes[0].problem.q_len == len);
    }
  CHECK(build.builds == 20);
}

TEST_CASE("the least recently used plan is evicted by count", "[cache]") {
  CountingBuild build;
  PlanCache cache(2, kNoBound);
  for (const int64_t len : {1, 2, 1, 3, 1, 2})
    REQUIRE(cache.find_or_build(key_of_length(len), build.function()).ok());
  CHECK(build.builds == 4);  // 1, 2, 3, and 2 again
  CHECK(cache.statistics().evictions == 2);
  CHECK(cache.statistics().entries == 2);
}

TEST_CASE("plans are evicted by bytes, and a plan that is held stays alive", "[cache]") {
  CountingBuild build;
  PlanCache cache(8, 1);
  const auto held = cache.find_or_build(key_of_length(4), build.function()).value();
  CHECK(cache.statistics().entries == 0);
  CHECK(held->program.nodes[0].problem.q_len == 4);
}

TEST_CASE("a refusal is remembered with its words, a failure is not", "[cache]") {
  const auto [code, builds] =
      GENERATE(table<Code, int>({{Code::kUnsupported, 1}, {Code::kBackend, 2}, {Code::kInternal, 2}}));
  PlanCache cache(8, kNoBound);
  int count = 0;
  const auto refuse = [&, code = code](const PlanKey&) -> PlanCache::Answer {
    ++count;
    return Status(code, "the reason");
  };
  for (int i = 0; i < 2; ++i) {
    const auto answer = cache.find_or_build(key_of_length(4), refuse);
    CHECK(answer.status().code() == code);
    CHECK(answer.status().message() == "the reason");
  }
  CHECK(count == builds);
}

TEST_CASE("a build that throws leaves no entry", "[cache]") {
  CountingBuild build;
  PlanCache cache(8, kNoBound);
  CHECK_THROWS_AS(cache.find_or_build(key_of_length(4),
                                      [](const PlanKey&) -> PlanCache::Answer { throw std::bad_alloc(); }),
                  std::bad_alloc);
  CHECK(cache.statistics().entries == 0);
  CHECK(cache.find_or_build(key_of_length(4), build.function()).ok());
}

TEST_CASE("eight threads that ask for one new plan build it once", "[cache]") {
  CountingBuild build;
  PlanCache cache(8, kNoBound);
  std::atomic<int> waiting = 0;
  const auto slow = [&](const PlanKey& key) {
    while (waiting < 8) std::this_thread::yield();
    return build.function()(key);
  };
  std::vector<std::shared_ptr<const PlanCore>> cores(8);
  std::vector<std::thread> threads;
  for (auto& core : cores)
    threads.emplace_back([&] {
      ++waiting;
      core = cache.find_or_build(key_of_length(4), slow).value();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(build.builds == 1);
  CHECK(std::all_of(cores.begin(), cores.end(), [&](const auto& core) { return core == cores.front(); }));
}

TEST_CASE("a cache without entries builds every time", "[cache]") {
  CountingBuild build;
  PlanCache cache(0, kNoBound);
  for (int i = 0; i < 3; ++i) REQUIRE(cache.find_or_build(key_of_length(4), build.function()).ok());
  CHECK(build.builds == 3);
}

TEST_CASE("an answer that is replaced is the one that is found, and takes no second place", "[cache]") {
  CountingBuild build;
  PlanCache cache(2, kNoBound);
  const auto first = cache.find_or_build(key_of_length(4), build.function()).value();
  const auto other = build.function()(key_of_length(4)).value();
  cache.replace(key_of_length(4), other);
  CHECK(cache.find_or_build(key_of_length(4), build.function()).value() == other);
  CHECK(cache.statistics().entries == 1);
  cache.replace(key_of_length(5), other);  // one that was evicted meanwhile
  CHECK(cache.find_or_build(key_of_length(5), build.function()).value() == other);
  CHECK(build.builds == 2);
  PlanCache none(0, kNoBound);
  none.replace(key_of_length(4), other);
  CHECK(none.statistics().entries == 0);
}
