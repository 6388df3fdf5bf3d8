#include "engine/registry.hpp"

#include <algorithm>
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

/// Nothing but q, k, v, o, stats and their gradients, of head dim 256 and 4,096 tokens or more.
bool is_long_plain_256(const Problem& p, const Target& target) {
  bool is_plain = p.softcap == 0 && p.dropout_p == 0;
  for (size_t i = 0; i < kNumRoles; ++i)
    is_plain &= !p.operands[i].present || side_of(static_cast<Role>(i)) != Side::kNone;
  return target.sm_version == 90 && is_plain && p.qk_dim == 256 && p.v_dim == 256 &&
         std::min(p.q_len, p.kv_len) >= 4096;
}
bool is_full_256(const Problem& p, const Target& target) {
  return p.band == Band{} && is_long_plain_256(p, target);
}
bool is_full_or_causal_256(const Problem& p, const Target& target) {
  return (p.band == Band{} || p.band == Band::causal()) && is_long_plain_256(p, target);
}

/// Slopes of which cudnn makes a bias of every score; cuda has them in its kernels.
bool has_slopes_by_score(const Problem& p, const Target&) {
  const Operand& slopes = p[Role::kAlibiSlopes];
  return slopes.present && (p.band.align == Align::kBottomRight || slopes.stride[0] != 0);
}

bool is_masked_decode(const Problem& p, const Target&) { return p.has(Role::kMask) && p.q_len == 1; }

constexpr std::array<OrderRow, 16> kOrder = {{
    {Pass::kForward, MemoryKind::kHost, "cpu"},
    {Pass::kForward, MemoryKind::kHost, "reference"},
    {Pass::kBackward, MemoryKind::kHost, "cpu"},
    {Pass::kBackward, MemoryKind::kHost, "reference"},
    {Pass::kMerge, MemoryKind::kHost, "cpu"},
    {Pass::kMerge, MemoryKind::kHost, "reference"},
    // Times of cuda by cudnn, bf16, H200, in one process (docs/results/2026-11-30-h200-cudnn-frontend.json,
    // with the kernels that cuda had then): 0.976, and in decode 1.14 to 1.32, else 1.02 to 1.54 at dims 64
    // and 128.
    {Pass::kForward, MemoryKind::kCuda, "cuda", is_full_256},
    // 0.47; with a mask or a bias 5.4 to 7.7 (docs/results/2026-11-30-h200-cudnn-bias.json).
    {Pass::kForward, MemoryKind::kCuda, "cuda", has_slopes_by_score},
    // 0.75; with 16 rows 1.44.
    {Pass::kForward, MemoryKind::kCuda, "cuda", is_masked_decode},
    {Pass::kForward, MemoryKind::kCuda, "cudnn"},
    {Pass::kForward, MemoryKind::kCuda, "cuda"},
    // The same: 1.18 to 1.49; but 0.76 and 0.82 (docs/results/2026-11-30-h200-cuda-wide-backward.json).
    {Pass::kBackward, MemoryKind::kCuda, "cuda", is_full_or_causal_256},
    // 1.25, in 1 MB of workspace instead of 337; with a mask, a bias or dbias 3.0 to 16.
    {Pass::kBackward, MemoryKind::kCuda, "cuda", has_slopes_by_score},
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
