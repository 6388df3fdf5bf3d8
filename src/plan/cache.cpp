#include "plan/cache.hpp"

#include <bit>
#include <initializer_list>

namespace attngraph {
namespace {

/// Host memory of an entry, an estimate: the key is held twice, in the entry and in the core.
int64_t estimated_bytes(const PlanKey& key, const PlanCache::Answer& answer) {
  size_t bytes = sizeof key + key.program.nodes.size() * sizeof(ProgramNode);
  if (!answer.ok()) return static_cast<int64_t>(bytes + answer.status().message().size());
  const PlanCore& core = **answer;
  bytes = 2 * bytes + sizeof core + core.slots.size() * sizeof(SlotFacts) +
          core.keep_apart.size() * sizeof(SlotPair) + core.nodes.size() * sizeof(NodePlan) +
          core.workspace.entries().size() * (sizeof(WorkspaceLayout::Entry) + sizeof(Region));
  return static_cast<int64_t>(bytes);
}

}  // namespace

size_t hash_of(const PlanKey& key) {
  uint64_t hash = key.program.nodes.size();
  const auto mix = [&](std::initializer_list<int64_t> values) {
    // One multiplication a value, after MurmurHash2 (Appleby, 2008).
    for (const int64_t value : values) {
      hash = (hash ^ static_cast<uint64_t>(value)) * 0xc6a4a7935bd1e995ULL;
      hash ^= hash >> 47;
    }
  };
  for (const ProgramNode& node : key.program.nodes) {
    const Problem& p = node.problem;
    mix({static_cast<int64_t>(p.pass), p.batch, p.q_heads, p.kv_heads, p.q_len, p.kv_len, p.qk_dim, p.v_dim});
    mix({p.q_slots, p.kv_slots, static_cast<int64_t>(p.io), std::bit_cast<int64_t>(p.scale)});
    for (const Operand& operand : p.operands)
      if (operand.present) mix({operand.stride[0], operand.stride[1], operand.stride[2]});
  }
  mix({static_cast<int64_t>(key.target.memory), key.target.sm_version, key.target.num_threads});
  return static_cast<size_t>(hash);
}

/// Owns the making of one entry: whatever way the builder leaves, those who wait are woken.
class PlanCache::Builder {
 public:
  Builder(PlanCache& cache, Entries::iterator entry) : cache_(cache), entry_(entry) {}
  ~Builder() {
    if (is_done_) return;
    const std::lock_guard lock(cache_.mutex_);
    entry_->flight->is_over = true;
    cache_.erase(entry_);
    cache_.flight_over_.notify_all();
  }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Answer run(const std::function<Answer(const PlanKey&)>& build) {
    Answer answer = build(entry_->key);
    const std::lock_guard lock(cache_.mutex_);
    cache_.finish(entry_, answer);
    is_done_ = true;
    return answer;
  }

 private:
  PlanCache& cache_;
  Entries::iterator entry_;
  bool is_done_ = false;
};

PlanCache::Answer PlanCache::find_or_build(PlanKey key, const std::function<Answer(const PlanKey&)>& build) {
  const size_t hash = hash_(key);
  std::unique_lock lock(mutex_);
  for (auto entry = find(key, hash); entry != entries_.end(); entry = find(key, hash)) {
    ++statistics_.hits;
    entries_.splice(entries_.begin(), entries_, entry);
    const std::shared_ptr<Flight> flight = entry->flight;
    flight_over_.wait(lock, [&] { return flight->is_over; });
    if (flight->answer != nullptr) return *flight->answer;
    --statistics_.hits;  // its builder was thrown out; try again
  }
  ++statistics_.misses;
  ++statistics_.builds;
  if (max_entries_ == 0) {
    lock.unlock();
    return build(key);
  }
  Builder builder(*this, insert(std::move(key), hash));
  lock.unlock();
  return builder.run(build);
}

void PlanCache::replace(PlanKey key, Answer answer) {
  if (max_entries_ == 0) return;
  const size_t hash = hash_(key);
  std::unique_lock lock(mutex_);
  for (auto entry = find(key, hash); entry != entries_.end(); entry = find(key, hash)) {
    const std::shared_ptr<Flight> flight = entry->flight;
    if (flight->is_over) {
      erase(entry);
      break;
    }
    flight_over_.wait(lock, [&] { return flight->is_over; });
  }
  finish(insert(std::move(key), hash), std::move(answer));
}

CacheStatistics PlanCache::statistics() const {
  const std::lock_guard lock(mutex_);
  CacheStatistics statistics = statistics_;
  statistics.entries = static_cast<int64_t>(entries_.size());
  return statistics;
}

PlanCache::Entries::iterator PlanCache::find(const PlanKey& key, size_t hash) {
  const auto [begin, end] = buckets_.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (at->second->key == key) return at->second;
  return entries_.end();
}

PlanCache::Entries::iterator PlanCache::insert(PlanKey key, size_t hash) {
  entries_.push_front({std::move(key), hash, 0, std::make_shared<Flight>()});
  buckets_.emplace(hash, entries_.begin());
  return entries_.begin();
}

void PlanCache::finish(Entries::iterator entry, Answer answer) {
  entry->bytes = estimated_bytes(entry->key, answer);
  bytes_ += entry->bytes;
  const bool is_kept = answer.ok() || answer.status().code() == Code::kUnsupported;
  entry->flight->answer = std::make_unique<const Answer>(std::move(answer));
  entry->flight->is_over = true;
  if (!is_kept) erase(entry);
  evict();
  flight_over_.notify_all();
}

void PlanCache::erase(Entries::iterator entry) {
  const auto [begin, end] = buckets_.equal_range(entry->hash);
  for (auto at = begin; at != end; ++at) {
    if (at->second != entry) continue;
    buckets_.erase(at);
    break;
  }
  bytes_ -= entry->bytes;
  entries_.erase(entry);
}

/// Least recently used first; an entry in the making stays.
void PlanCache::evict() {
  const auto is_full = [&] {
    return static_cast<int64_t>(entries_.size()) > max_entries_ || bytes_ > max_bytes_;
  };
  for (auto entry = entries_.end(); entry != entries_.begin() && is_full();) {
    --entry;
    if (!entry->flight->is_over) continue;
    const auto victim = entry++;
    erase(victim);
    ++statistics_.evictions;
  }
}

}  // namespace attngraph
