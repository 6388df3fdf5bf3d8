#include "cli/bench_ceiling.hpp"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/message.hpp"
#include "device/device.hpp"
#include "engine/cpu/kernels.hpp"
#include "engine/cpu/pool.hpp"

namespace attngraph::cli {
namespace {

/// Runs work(0) .. work(threads - 1) at once.
template <class Work>
void on_all_threads(Pool& pool, int64_t threads, const Work& work) {
  pool.run(
      threads, [](void* arg, int64_t index) { (*static_cast<const Work*>(arg))(index); },
      const_cast<Work*>(&work));
}

using Line = float __attribute__((vector_size(64)));
constexpr int64_t kLineFloats = sizeof(Line) / sizeof(float), kLines = 2;  ///< a turn of read_all()
constexpr int64_t kAheadFloats = 1024;

/// Reads `count` floats, a multiple of kLines * kLineFloats. The baseline's 16-byte loads, two a cycle,
/// already outrun the memory of one core; the sums are independent, so that no addition waits for another.
/// Prefetching 4 KiB ahead reads more than the hardware's own does.
void read_all(const float* x, int64_t count) {
  Line sums[kLines] = {};
  for (int64_t at = 0; at < count; at += kLines * kLineFloats)
    for (int64_t i = 0; i < kLines; ++i) {
      if (at + kAheadFloats < count) __builtin_prefetch(x + at + kAheadFloats + i * kLineFloats);
      Line line;
      std::memcpy(&line, x + at + i * kLineFloats, sizeof line);
      sums[i] += line;
    }
  volatile Line used = sums[0] + sums[1];  // keeps the loads
  static_cast<void>(used);
}

}  // namespace

Timing time_peak(const Target& target, DataType dtype) {
  constexpr double kFlopsPerThread = 4e9;  // some ten milliseconds: a thread's start does not show
  const cpu::Kernels& kernels = cpu::kernels(target.isa);
  const bool has_pairs = dtype == DataType::kBf16 && kernels.peak_bf16 != nullptr;
  const auto loop = has_pairs ? kernels.peak_bf16 : kernels.peak_f32;
  const auto rounds = static_cast<int64_t>(kFlopsPerThread / loop(1));
  const int64_t threads = target.num_threads;
  auto pool = std::make_shared<Pool>(target.num_threads);
  Timing timing;
  timing.unit = "GFLOP/s";
  timing.work = loop(1) * static_cast<double>(rounds * threads);
  timing.seconds = average_of(1, [=] {
    on_all_threads(*pool, threads, [=](int64_t) { loop(rounds); });
    return Status();
  });
  return timing;
}

Timing time_read(const Target& target) {
  constexpr int64_t kFloats = 64 << 20;  // 256 MiB
  constexpr int64_t kTurn = kLines * kLineFloats;
  const int64_t threads = target.num_threads, share = kFloats / threads / kTurn * kTurn;
  auto pool = std::make_shared<Pool>(target.num_threads);
  auto memory = std::make_shared<const std::vector<float>>(static_cast<size_t>(kFloats), 1.0F);
  Timing timing;
  timing.unit = "GB/s";
  timing.work = static_cast<double>(share * threads) * sizeof(float);
  timing.seconds = average_of(1, [=] {
    on_all_threads(*pool, threads, [=](int64_t thread) { read_all(memory->data() + thread * share, share); });
    return Status();
  });
  return timing;
}

Result<Timing> time_copy() {
  constexpr int64_t kBytes = 1 << 30, kCopies = 5;
  auto from = device::Memory::allocate(kBytes), to = device::Memory::allocate(kBytes);
  for (const auto* memory : {&from, &to}) ATTNGRAPH_RETURN_IF_ERROR(memory->status());
  auto memory = std::make_shared<const std::pair<device::Memory, device::Memory>>(std::move(from).value(),
                                                                                  std::move(to).value());
  Timing timing;
  timing.unit = "GB/s";
  timing.work = 2.0 * static_cast<double>(kBytes);
  timing.seconds = device_average_of(kCopies, [memory] {
    return device::copy(memory->second.data(), memory->first.data(), kBytes, nullptr);
  });
  return timing;
}

}  // namespace attngraph::cli
