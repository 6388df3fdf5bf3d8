#include "engine/registry.hpp"

#include <array>
#include <cstdlib>
#include <string_view>

#include "base/message.hpp"
#include "engine/cpu/engine.hpp"
#include "engine/cuda/engine.hpp"
#include "engine/cudnn/engine.hpp"
#include "engine/reference/reference.hpp"

namespace attngraph {
namespace {

constexpr std::array<OrderRow, 11> kOrder = {{
    {Pass::kForward, MemoryKind::kHost, "cpu"},
    {Pass::kForward, MemoryKind::kHost, "reference"},
    {Pass::kBackward, MemoryKind::kHost, "cpu"},
    {Pass::kBackward, MemoryKind::kHost, "reference"},
    {Pass::kMerge, MemoryKind::kHost, "cpu"},
    {Pass::kMerge, MemoryKind::kHost, "reference"},
    // bf16, dim 128, H200: 1.5 to 1.9 times as fast as cuda, decode 1.15 to 1.45 times
    // (docs/results/2026-11-30-h200-cudnn.json). Since then the sm_90a kernels of cuda reach 0.80 of it at
    // 512 tokens and 0.97 to 1.07 from 4,096 on (docs/results/2026-11-30-h200-cuda-sm90a.json).
    {Pass::kForward, MemoryKind::kCuda, "cudnn"},
    {Pass::kForward, MemoryKind::kCuda, "cuda"},
    // The same: 2.0 to 2.4 times as fast as cuda was, 1.15 to 1.39 times as fast as its sm_90a kernels.
    {Pass::kBackward, MemoryKind::kCuda, "cudnn"},
    {Pass::kBackward, MemoryKind::kCuda, "cuda"},
    {Pass::kMerge, MemoryKind::kCuda, "cuda"},
}};

}  // namespace

EngineSet make_engines(Executor& executor) {
  EngineSet set;
  set.engines.push_back(make_cpu_engine(executor));
  set.engines.push_back(make_reference_engine());
#ifdef ATTNGRAPH_WITH_CUDA
  set.engines.push_back(make_cuda_engine());
#endif
#ifdef ATTNGRAPH_WITH_CUDNN
  const char* library = std::getenv("ATTNGRAPH_CUDNN");
  set.engines.push_back(make_cudnn_engine(library != nullptr ? library : ""));
#endif
  set.order = kOrder;
  if (const char* forced = std::getenv("ATTNGRAPH_ENGINE"); forced != nullptr) {
    set.why_empty = text("ATTNGRAPH_ENGINE: is ", forced, "; this build has ", set.names());
    std::erase_if(set.engines,
                  [&](const auto& engine) { return engine->name() != std::string_view(forced); });
  }
  return set;
}

}  // namespace attngraph
