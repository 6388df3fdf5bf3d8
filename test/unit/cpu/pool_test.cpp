#include "engine/cpu/pool.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using namespace attngraph;

namespace {

/// How often each worker index ran.
struct Calls {
  explicit Calls(int64_t count) : by_index(static_cast<size_t>(count)) {}
  std::vector<std::atomic<int>> by_index;

  static void worker(void* arg, int64_t index) {
    ++static_cast<Calls*>(arg)->by_index[static_cast<size_t>(index)];
  }
  bool each_once() const {
    for (const auto& calls : by_index)
      if (calls != 1) return false;
    return true;
  }
};

}  // namespace

TEST_CASE("every worker runs exactly once, whatever the number of threads", "[pool]") {
  for (const int threads : {1, 2, 5}) {
    Pool pool(threads);
    for (int64_t count = 0; count < 40; ++count) {
      Calls calls(count);
      pool.run(count, Calls::worker, &calls);
      CHECK(calls.each_once());
    }
  }
}

TEST_CASE("callers from many threads all get their work done", "[pool]") {
  Pool pool(3);
  std::atomic<int> complete = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        Calls calls(7);
        pool.run(7, Calls::worker, &calls);
        complete += calls.each_once();
      }
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(complete == 8 * 200);
}

TEST_CASE("a worker may call the pool that runs it", "[pool]") {
  struct Outer {
    Pool pool{2};
    std::atomic<int> complete = 0;
  } outer;
  outer.pool.run(
      4,
      [](void* arg, int64_t) {
        auto& self = *static_cast<Outer*>(arg);
        Calls calls(5);
        self.pool.run(5, Calls::worker, &calls);
        self.complete += calls.each_once();
      },
      &outer);
  CHECK(outer.complete == 4);
}

TEST_CASE("a fork of a process whose pool has threads does the work itself", "[pool]") {
  Pool pool(2);
  Calls before(4);
  pool.run(4, Calls::worker, &before);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Calls calls(4);
    pool.run(4, Calls::worker, &calls);
    _exit(calls.each_once() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
