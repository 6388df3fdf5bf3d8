#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "attngraph/context.hpp"
#include "plan/planner.hpp"

namespace attngraph {

/// What a plan is made from: equal keys have equal plans.
struct PlanKey {
  Program program;
  Target target;
  PlanOptions options;
  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

/// Picks the bucket of a key; keys are compared in full.
size_t hash_of(const PlanKey& key);

/// Plans and refusals by key, the most recently used ones up to a count and a number of bytes.
///
/// One thread builds a new plan, others that ask for it meanwhile wait for its answer. A failure other than
/// a refusal leaves no entry.
///
/// Thread: every member may be called from many threads at once.
class PlanCache {
 public:
  using Answer = Result<std::shared_ptr<const PlanCore>>;
  using Hash = size_t (*)(const PlanKey&);

  PlanCache(int64_t max_entries, int64_t max_bytes, Hash hash = hash_of)
      : max_entries_(max_entries), max_bytes_(max_bytes), hash_(hash) {}

  /// The answer for `key`, from `build` when there is none yet.
  Answer find_or_build(PlanKey key, const std::function<Answer(const PlanKey&)>& build);
  /// Puts `answer` in the place of the one that `key` has, if any.
  void replace(PlanKey key, Answer answer);
  CacheStatistics statistics() const;

 private:
  /// An answer in the making.
  struct Flight {
    std::unique_ptr<const Answer> answer;
    bool is_over = false;  ///< without an answer when the builder left by an exception
  };
  struct Entry {
    PlanKey key;
    size_t hash = 0;
    int64_t bytes = 0;
    std::shared_ptr<Flight> flight;
  };
  using Entries = std::list<Entry>;  ///< most recently used first

  class Builder;

  Entries::iterator find(const PlanKey& key, size_t hash);
  Entries::iterator insert(PlanKey key, size_t hash);
  void finish(Entries::iterator entry, Answer answer);
  void erase(Entries::iterator entry);
  void evict();

  const int64_t max_entries_, max_bytes_;
  const Hash hash_;
  mutable std::mutex mutex_;
  std::condition_variable flight_over_;
  Entries entries_;
  std::unordered_multimap<size_t, Entries::iterator> buckets_;
  int64_t bytes_ = 0;
  CacheStatistics statistics_;
};

}  // namespace attngraph
