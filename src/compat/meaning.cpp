#include "compat/meaning.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <utility>

namespace attngraph::compat {
namespace {

struct PortName {
  std::string_view name;
  Role role;
};
constexpr PortName kPorts[] = {{"Q", Role::kQ},
                               {"K", Role::kK},
                               {"V", Role::kV},
                               {"O", Role::kO},
                               {"dO", Role::kDo},
                               {"Stats", Role::kStats},
                               {"Bias", Role::kBias},
                               {"SINK_TOKEN", Role::kSink},
                               {"SEQ_LEN_Q", Role::kSeqLenQ},
                               {"SEQ_LEN_KV", Role::kSeqLenKv},
                               {"Page_table_K", Role::kPageTableK},
                               {"Page_table_V", Role::kPageTableV},
                               {"Seed", Role::kDropoutSeed},
                               {"Offset", Role::kDropoutOffset},
                               {"dQ", Role::kDq},
                               {"dK", Role::kDk},
                               {"dV", Role::kDv},
                               {"dBias", Role::kDbias},
                               {"DSINK_TOKEN", Role::kDsink}};

void keep_axes(Tensor& tensor, std::initializer_list<size_t> axes) {
  std::vector<int64_t> dims, strides;
  for (const size_t axis : axes) {
    dims.push_back(tensor.dims[axis]);
    if (!tensor.strides.empty()) strides.push_back(tensor.strides[axis]);
  }
  tensor.dims = std::move(dims), tensor.strides = std::move(strides);
}

}  // namespace

std::optional<Role> role_of(std::string_view port) {
  const auto* known = std::find_if(std::begin(kPorts), std::end(kPorts),
                                   [&](const PortName& entry) { return entry.name == port; });
  if (known == std::end(kPorts)) return std::nullopt;
  return known->role;
}

SdpaAttributes attributes_of(const FrontendAttributes& theirs) {
  SdpaAttributes ours;
  ours.scale = theirs.attn_scale.value_or(1.0);
  ours.band.align = theirs.diagonal_alignment;
  if (theirs.left_bound) ours.band.left = *theirs.left_bound - 1;
  ours.band.right = theirs.right_bound;
  ours.max_seq_len_kv = theirs.max_seq_len_kv;
  ours.max_total_q = theirs.max_total_seq_len_q;
  ours.max_total_kv = theirs.max_total_seq_len_kv;
  ours.deterministic = theirs.deterministic;
  return ours;
}

void drop_unit_axes(Role role, Tensor& tensor) {
  if (tensor.dims.size() != 4) return;
  const auto are_units = [&](std::initializer_list<size_t> axes) {
    return std::all_of(axes.begin(), axes.end(), [&](size_t axis) { return tensor.dims[axis] == 1; });
  };
  if ((role == Role::kSink || role == Role::kDsink) && are_units({0, 2, 3})) keep_axes(tensor, {1});
  if ((role == Role::kPageTableK || role == Role::kPageTableV) && are_units({1, 3}))
    keep_axes(tensor, {0, 2});
}

std::vector<float> alibi_slopes(int64_t heads) {
  std::vector<float> slopes;
  const int64_t whole = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  for (int64_t h = 0; h < heads; ++h) {
    const double power = h < whole ? static_cast<double>(h + 1) : static_cast<double>(h - whole) + 0.5;
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * power / static_cast<double>(whole))));
  }
  return slopes;
}

}  // namespace attngraph::compat
