#pragma once

#include <cstdint>
#include <span>

#include "attngraph/types.hpp"
#include "base/enum_names.hpp"

namespace attngraph::cuda {

/// What a kernel computes; one template each.
enum class Family : uint8_t {
  kHopperForward,
  kHopperBackward,
  kHopperDq,
  kHopperDkdv,
  kHopperDecode,
  kTensorForward,
  kTensorDecode,
  kTensorDq,
  kTensorBackward,
  kTensorDkdv,
  kTensorDk,
  kTensorDv,
  kFloatForward,
  kFloatBackward,
  kGeneralForward,
  kGeneralDq,
  kGeneralDkdv,
  kGeneralDbias,
  kDeltaRows,
  kHeadSums,
  kStoreSums,
  kMergeSplits,
  kStoreDq,
  kMergePartials,
  kHopperDbias,
};

}  // namespace attngraph::cuda

namespace attngraph {

template <>
struct EnumNames<cuda::Family> {
  using enum cuda::Family;
  static constexpr std::array table = {
      std::pair{kHopperForward, "hopper forward"}, std::pair{kHopperBackward, "hopper backward"},
      std::pair{kHopperDq, "hopper dq"},           std::pair{kHopperDkdv, "hopper dk dv"},
      std::pair{kHopperDbias, "hopper dbias"},     std::pair{kHopperDecode, "hopper decode"},
      std::pair{kTensorForward, "tensor forward"}, std::pair{kTensorDecode, "tensor decode"},
      std::pair{kTensorDq, "tensor dq"},           std::pair{kTensorBackward, "tensor dq dk dv"},
      std::pair{kTensorDkdv, "tensor dk dv"},      std::pair{kTensorDk, "tensor dk"},
      std::pair{kTensorDv, "tensor dv"},           std::pair{kFloatForward, "float forward"},
      std::pair{kFloatBackward, "float dq dk dv"}, std::pair{kGeneralForward, "general forward"},
      std::pair{kGeneralDq, "general dq"},         std::pair{kGeneralDkdv, "general dk dv"},
      std::pair{kGeneralDbias, "general dbias"},   std::pair{kDeltaRows, "delta"},
      std::pair{kHeadSums, "head sums"},           std::pair{kStoreSums, "store sums"},
      std::pair{kMergeSplits, "merge splits"},     std::pair{kStoreDq, "store dq"},
      std::pair{kMergePartials, "merge partials"}};
};

}  // namespace attngraph

namespace attngraph::cuda {

/// Which instance of a family: a tensor-core or float kernel has an element type, a padded head dim and its
/// extras;
/// a general kernel has its tile in `size`; a row kernel an element type when it moves 16 bytes at a time;
/// those of sm_90a that read a bias or a mask say so.
struct InstanceKey {
  Family family = Family::kStoreSums;
  DataType io = DataType::kF32;
  int size = 0;
  bool extras = false;
  bool reads = false;

  friend bool operator==(const InstanceKey&, const InstanceKey&) = default;
};

/// One compiled kernel.
struct KernelInstance {
  InstanceKey key;
  int threads = 0;
  const void* function = nullptr;  ///< of signature void(Params), hopper ones void(Params, HopperCopies)
  bool awaits_previous = false;    ///< itself, so that it may start before the launch ahead of it has ended
};

/// Every compiled kernel: what dispatch looks up and what the register test reads.
std::span<const KernelInstance> instances();

/// The row of a key, or null.
const KernelInstance* find_instance(const InstanceKey& key);

}  // namespace attngraph::cuda
