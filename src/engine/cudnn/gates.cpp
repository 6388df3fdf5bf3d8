#include "engine/cudnn/gates.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/enum_names.hpp"
#include "base/message.hpp"
#include "engine/cudnn/bias.hpp"
#include "engine/cudnn/library.hpp"
#include "engine/cudnn/lower.hpp"
#include "problem/layout.hpp"

namespace attngraph::cudnn {
namespace {

using enum Role;
using Found = std::optional<Finding>;

template <class Value>
Found when(bool hits, const char* subject, const Value& value) {
  if (!hits) return std::nullopt;
  return Finding{subject, text(value)};
}

/// Tensors whose rows cuDNN reads or writes in 16-byte pieces.
constexpr std::array kRowTensors = {kQ, kK, kV, kO, kDo, kDq, kDk, kDv};
constexpr int64_t kRowElems = 8;  ///< 16 bytes of f16 or bf16

/// "dim of q": the first row tensor that `has` gives a value for.
template <class Has>
Found first_row_tensor(const Facts& f, const char* property, const Has& has) {
  for (const Role role : kRowTensors) {
    if (!f.problem.has(role)) continue;
    if (const std::optional<int64_t> value = has(f.problem[role]))
      return Finding{text(property, " of ", role), text(*value)};
  }
  return std::nullopt;
}

/// The first present role of the list.
Found present(const Facts& f, std::initializer_list<Role> roles) {
  for (const Role role : roles)
    if (f.problem.has(role)) return Finding{text(role), "given"};
  return std::nullopt;
}

std::optional<int64_t> uneven(int64_t value, int64_t divisor) {
  return value % divisor != 0 ? std::optional(value) : std::nullopt;
}

bool is_backward(const Facts& f) { return f.problem.pass == Pass::kBackward; }
int sm_major(const Facts& f) { return f.target.sm_version / 10; }

/// Largest head dim; backward on newer and older chips than sm_90 has smaller kernels.
int64_t largest_dim(const Facts& f) { return is_backward(f) && sm_major(f) != 9 ? 128 : 256; }

constexpr const char* kFrontend =
    "cudnn-frontend 1.23, sdpa_support_surface.h and "
    "scaled_dot_product_flash_attention.h";
constexpr const char* kContract = "docs/numerics.md";
constexpr const char* kMeasured = "measured with 9.19.0 on an H200";

constexpr Gate kGates[] = {
    // --- target ----------------------------------------------------------------------------------
    {[](const Facts& f) {
       return when(f.target.sm_version < 80, "target", text("sm_", f.target.sm_version));
     },
     "sm_80 or newer", kFrontend},
    {[](const Facts& f) {
       if (f.target.cudnn_version == 0)
         return when(true, "cudnn_version",
                     text("none", f.missing.empty() ? "" : " (", f.missing, f.missing.empty() ? "" : ")"));
       return when(f.target.cudnn_version < static_cast<int>(kOldestVersion), "cudnn_version",
                   version_text(f.target.cudnn_version));
     },
     "9.19.0 or newer, whose operations the lowering speaks", kMeasured},
    // --- sizes -----------------------------------------------------------------------------------
    {[](const Facts& f) {
       return when(f.problem.io != DataType::kF16 && f.problem.io != DataType::kBf16, "io dtype",
                   f.problem.io);
     },
     "f16 or bf16", kFrontend},
    {[](const Facts& f) {
       const Problem& p = f.problem;
       for (const auto& [name, size] :
            {std::pair{"batch", p.batch}, std::pair{"q_heads", p.q_heads}, std::pair{"q_len", p.q_len},
             std::pair{"kv_len", p.kv_len}, std::pair{"qk_dim", p.qk_dim}, std::pair{"v_dim", p.v_dim}})
         if (size == 0) return Found(Finding{name, "0"});
       return Found();
     },
     "at least 1: cuDNN has no empty tensors", "cuDNN 9.19 backend"},
    {[](const Facts& f) {
       const Problem& p = f.problem;
       return p.batch > 65535 ? when(true, "batch", p.batch) : when(p.q_heads > 65535, "q_heads", p.q_heads);
     },
     "at most 65535, a grid axis", "PyTorch, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp"},
    {[](const Facts& f) {
       const Problem& p = f.problem;
       return p.qk_dim % 8 != 0 ? when(true, "qk_dim", p.qk_dim) : when(p.v_dim % 8 != 0, "v_dim", p.v_dim);
     },
     "a multiple of 8", kFrontend},
    {[](const Facts& f) {
       const Problem& p = f.problem;
       const int64_t most = largest_dim(f);
       return p.qk_dim > most ? when(true, "qk_dim", p.qk_dim) : when(p.v_dim > most, "v_dim", p.v_dim);
     },
     "at most 256; 128 for backward elsewhere than on sm_9x", kFrontend},
    {[](const Facts& f) {
       const Problem& p = f.problem;
       return when(is_backward(f) && p.qk_dim > 192 && p.v_dim > 64 && p.v_dim <= 128, "qk_dim", p.qk_dim);
     },
     "at most 192 with a v_dim of 65 to 128, where cuDNN leaves columns of dq and dk unwritten", kMeasured},
    {[](const Facts& f) { return when(static_cast<float>(f.problem.scale) <= 0, "scale", f.problem.scale); },
     "above 0 as a float32: cuDNN takes the largest score before it scales", kContract},
    // --- layouts ---------------------------------------------------------------------------------
    {[](const Facts& f) {
       return first_row_tensor(f, "stride of dim", [](const Operand& t) {
         return dim(t) > 1 && dim_stride(t) != 1 ? std::optional(dim_stride(t)) : std::nullopt;
       });
     },
     "1", kFrontend},
    {[](const Facts& f) {
       return first_row_tensor(f, "stride", [](const Operand& t) -> std::optional<int64_t> {
         for (size_t axis = t.ragged ? 1 : 0; axis < 3; ++axis)
           if (t.extent[axis] > 1 && (t.stride[axis] == 0 || t.stride[axis] % kRowElems != 0))
             return t.stride[axis];
         return std::nullopt;
       });
     },
     "a positive multiple of 8: rows are read in pieces of 16 bytes",
     "CUDA driver API, cuTensorMapEncodeTiled"},
    {[](const Facts& f) {
       return first_row_tensor(f, "offset multiplier", [](const Operand& t) {
         return t.ragged ? uneven(t.multiplier, kRowElems) : std::nullopt;
       });
     },
     "a multiple of 8, so that every sequence begins at a multiple of 16 bytes",
     "CUDA driver API, cuTensorMapEncodeTiled"},
    {[](const Facts& f) {
       return first_row_tensor(f, "alignment",
                               [](const Operand& t) { return uneven(t.alignment, int64_t{16}); });
     },
     "a multiple of 16 bytes", "CUDA driver API, cuTensorMapEncodeTiled"},
    {[](const Facts& f) {
       return when(has_lengths(f.problem) && (sm_major(f) == 8 || sm_major(f) == 12), "target",
                   text("sm_", f.target.sm_version));
     },
     "sm_9x or sm_10x with lengths, which make every tensor a ragged one for cuDNN", kFrontend},
    {[](const Facts& f) {
       const Problem& p = f.problem;
       const bool is_unwritten = p.q_len == 1 && p.group() > 1 && has_lengths(p);
       return when(is_unwritten && !is_backward(f) && p.has(kStats), "q_len", p.q_len);
     },
     "above 1 with lengths, grouped heads and stats, which cuDNN leaves unwritten there", kMeasured},
    // --- masks and scores ------------------------------------------------------------------------
    {[](const Facts& f) {
       const Problem& p = f.problem;
       return when(p.q_len == 1 && p.kv_len == 1 && makes_bias(p), "kv_len", p.kv_len);
     },
     "above 1 with one row and a bias, a mask or slopes: of one value for all rows and keys cuDNN adds "
     "others",
     kMeasured},
    {[](const Facts& f) {
       const Operand& bias = f.problem[kBias];
       return when(bias.present && bias.dtype != DataType::kF16, "dtype of bias", bias.dtype);
     },
     "f16: cuDNN takes scores in units of log2, so that to it a row of a bias beyond 2.36e38, such as the "
     "least number of float32, is empty",
     kMeasured},
    {[](const Facts& f) -> Found {
       const Operand& bias = f.problem[kBias];
       if (!f.problem.has(kDbias)) return std::nullopt;
       if (len(bias) < f.problem.q_len) return Finding{"bias", "one for all rows"};
       return when(dim(bias) < f.problem.kv_len, "bias", "one for all keys");
     },
     "one a row and key with dbias, of which cuDNN makes no other sum", kMeasured},
    {[](const Facts& f) {
       return when(f.problem.has(kDbias) && f.problem.softcap > 0, "softcap", f.problem.softcap);
     },
     "0 with dbias, of which cuDNN gives what is behind the softcap", kMeasured},
    {[](const Facts& f) -> Found {
       const Problem& p = f.problem;
       if (!p.has(kDbias)) return std::nullopt;
       return p.q_len == 1 ? when(true, "q_len", p.q_len) : when(p.kv_len == 1, "kv_len", p.kv_len);
     },
     "above 1 with dbias, where cuDNN leaves heads of dq unwritten or gives another dk", kMeasured},
    {[](const Facts& f) {
       return when(f.problem.has(kDbias) && has_lengths(f.problem) && sm_major(f) != 9, "target",
                   text("sm_", f.target.sm_version));
     },
     "sm_9x with dbias and lengths", kFrontend},
    {[](const Facts& f) { return when(f.problem.dropout_p > 0, "dropout_p", f.problem.dropout_p); },
     "0: cuDNN draws another mask than the contract's", kContract},
    {[](const Facts& f) {
       return present(f, {kPageTableK, kPageTableV});
     },
     "absent: a page outside the container is an absent key, and cuDNN would read it", kContract},
    // --- backward --------------------------------------------------------------------------------
    {[](const Facts& f) { return present(f, {kDalibiSlopes}); }, "absent: cuDNN has no such gradient",
     kFrontend},
    {[](const Facts& f) { return when(is_backward(f) && f.problem.deterministic, "deterministic", "true"); },
     "false: cuDNN's deterministic backward takes a workspace of q_len * kv_len a head", kFrontend},
};

}  // namespace

std::span<const Gate> gates() { return kGates; }

std::vector<Reason> refusals(const Facts& facts) {
  if (facts.target.memory != MemoryKind::kCuda)
    return {{Code::kUnsupported, "target", "host", "a cuda device", ""}};
  std::vector<Reason> reasons = needs_float_scores(facts.problem);
  for (const Gate& gate : kGates)
    if (auto found = gate.find(facts))
      reasons.push_back(
          {Code::kUnsupported, std::move(found->subject), std::move(found->has), gate.wants, ""});
  return reasons;
}

}  // namespace attngraph::cudnn
