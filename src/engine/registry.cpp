#include "engine/registry.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/checked.hpp"
#include "base/message.hpp"
#include "engine/cpu/engine.hpp"
#include "engine/cuda/engine.hpp"
#include "engine/cuda/families.hpp"
#include "engine/cudnn/bias.hpp"
#include "engine/cudnn/engine.hpp"
#include "engine/reference/reference.hpp"

namespace attngraph {
namespace {

/// Nothing but q, k, v, o, stats and their gradients, and maybe one more, on sm_90, whose kernels the figures
/// below are of.
bool is_plain_on_sm_90(const Problem& p, const Target& target, std::optional<Role> besides = std::nullopt) {
  bool is_plain = target.sm_version == 90 && p.softcap == 0 && p.dropout_p == 0;
  for (size_t i = 0; i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    is_plain &= !p.has(role) || side_of(role) != Side::kNone || role == besides;
  }
  return is_plain;
}
bool has_dims(const Problem& p, int64_t qk_dim, int64_t v_dim) {
  return p.qk_dim == qk_dim && p.v_dim == v_dim;
}
bool is_full(const Problem& p) { return p.band == Band{}; }
bool is_causal(const Problem& p) { return p.band == Band::causal(); }

/// Of sequences of their own lengths, or of few keys, on the decode kernel of sm_90a.
bool is_quick_decode([[maybe_unused]] const Problem& p, [[maybe_unused]] const Target& target) {
#ifdef ATTNGRAPH_WITH_CUDA
  constexpr int64_t kBytes = 128 << 20;  // of k and v
  if (p.q_len != 1 || !cuda::why_not_hopper_decode(p, target).empty()) return false;
  if (p.has(Role::kSeqLenKv)) return is_plain_on_sm_90(p, target, Role::kSeqLenKv);
  return is_plain_on_sm_90(p, target) &&
         saturating_product({p.batch, p.kv_heads, p.kv_len, p.qk_dim + p.v_dim, 2}) <= kBytes;
#else
  return false;
#endif
}

/// As large as those that were measured, and of so many tokens.
bool is_large(const Problem& p, int64_t tokens) {
  return std::min(p.q_len, p.kv_len) >= tokens && saturating_product({p.batch, p.q_heads, p.q_len}) >= 131072;
}

bool is_quick_forward(const Problem& p, const Target& target) {
  if (!is_plain_on_sm_90(p, target)) return false;
  if (is_causal(p) && has_dims(p, 128, 128)) return is_large(p, 1024);
  if (!is_large(p, 4096)) return false;
  if (is_causal(p)) return has_dims(p, 192, 128) || has_dims(p, 256, 256);
  if (!is_full(p)) return false;
  return has_dims(p, 64, 64) || has_dims(p, 256, 256) || (has_dims(p, 128, 128) && p.kv_len >= 16384);
}

bool is_quick_backward(const Problem& p, const Target& target) {
  if (!is_plain_on_sm_90(p, target)) return false;
  if ((is_full(p) || is_causal(p)) && has_dims(p, 128, 128)) return is_large(p, 512);
  if (!is_large(p, 4096)) return false;
  if (has_dims(p, 64, 64) || (is_causal(p) && has_dims(p, 192, 128))) return true;
  return (is_full(p) || is_causal(p)) && has_dims(p, 256, 256);
}

/// cuda has such slopes in its kernels.
bool has_slopes_by_score(const Problem& p, const Target&) { return cudnn::puts_slopes_in_bias(p); }

bool is_masked_decode(const Problem& p, const Target&) { return p.has(Role::kMask) && p.q_len == 1; }

/// cuda reads them in its kernels of sm_90a. What is not in chunks of 16 bytes they load one by one, which
/// was not measured.
bool reads_matrices_on_sm_90([[maybe_unused]] const Problem& p, [[maybe_unused]] const Target& target) {
#ifdef ATTNGRAPH_WITH_CUDA
  const auto is_quick = [&](Role role) { return !p.has(role) || cuda::is_in_chunks(p[role]); };
  return (p.has(Role::kMask) || p.has(Role::kBias)) && is_quick(Role::kMask) && is_quick(Role::kBias) &&
         cuda::why_not_hopper(p, target).empty() &&
         (!p.has(Role::kDbias) || cuda::adds_dbias_on_hopper(p, target));
#else
  return false;
#endif
}

constexpr std::array<OrderRow, 19> kOrder = {{
    {Pass::kForward, MemoryKind::kHost, "cpu"},
    {Pass::kForward, MemoryKind::kHost, "reference"},
    {Pass::kBackward, MemoryKind::kHost, "cpu"},
    {Pass::kBackward, MemoryKind::kHost, "reference"},
    {Pass::kMerge, MemoryKind::kHost, "cpu"},
    {Pass::kMerge, MemoryKind::kHost, "reference"},
    // Rates of cuda by cudnn, bf16, H200, in turn (docs/results/2026-12-01-h200-cuda-one-program.json): 0.98
    // to 1.23; d128 in one band or none of up to 4,096 tokens 0.99, d64 causal 0.90, behind a window 0.95.
    {Pass::kForward, MemoryKind::kCuda, "cuda", is_quick_forward},
    // In turn with cudnn (docs/results/2026-11-30-h200-cuda-decode-ways.json): of 17 MB 1.10 to 1.21, 67 MB
    // 0.98 and 1.07, 134 MB 1.06, more 0.91 to 1.01; of unequal lengths 1.42 and 3.2; 32 heads on one, on
    // other kernels, 0.29 and 0.81.
    {Pass::kForward, MemoryKind::kCuda, "cuda", is_quick_decode},
    // Times of cuda by cudnn (docs/results/2026-11-30-h200-cudnn-bias.json): 0.47; with a mask or a bias 5.4
    // to 7.7 on its general kernels. On those of sm_90a (docs/results/2026-11-30-h200-cuda-matrices.json)
    // rates with a mask 1.44 to 1.57, d64 1.11, 512 tokens 1.21, with a bias 1.34.
    {Pass::kForward, MemoryKind::kCuda, "cuda", has_slopes_by_score},
    {Pass::kForward, MemoryKind::kCuda, "cuda", reads_matrices_on_sm_90},
    // 0.75; with 16 rows 1.44.
    {Pass::kForward, MemoryKind::kCuda, "cuda", is_masked_decode},
    {Pass::kForward, MemoryKind::kCuda, "cudnn"},
    {Pass::kForward, MemoryKind::kCuda, "cuda"},
    // Rates as above: d64 1.26 to 1.41, d128 1.03 to 1.15, d256 1.30, d192 1.04.
    {Pass::kBackward, MemoryKind::kCuda, "cuda", is_quick_backward},
    // Times: 1.25, in 1 MB of workspace instead of 337; with a mask, a bias or dbias 3.0 to 16 on the general
    // kernels. Rates on those of sm_90a: with a mask 1.46 to 1.55, 512 tokens 1.29, with a bias 1.42; at d64
    // (docs/results/2026-12-01-h200-cuda-d64-matrices.json) 1.23 and 1.15; with dbias
    // (docs/results/2026-12-01-h200-cuda-dbias.json) 1.33. Of biases cudnn takes those of f16 alone.
    {Pass::kBackward, MemoryKind::kCuda, "cuda", has_slopes_by_score},
    {Pass::kBackward, MemoryKind::kCuda, "cuda", reads_matrices_on_sm_90},
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
