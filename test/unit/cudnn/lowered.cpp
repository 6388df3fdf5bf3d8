#include "unit/cudnn/lowered.hpp"

#include "support/problems.hpp"

namespace attngraph::test {
namespace {

using enum Role;

const Sizes kSizes{2, 8, 8, 256, 512, 128, 64};
const std::vector<Role> kAllOfQkv = {kDq, kDk, kDv};

Problem plain() {
  Problem p = forward_problem(kSizes, DataType::kBf16);
  p[kStats] = {};
  return p;
}

Problem tall() {
  Problem p = forward_problem({2, 8, 8, 512, 256, 128, 64}, DataType::kBf16);
  p[kStats] = {};
  return p;
}

Problem banded(Problem p, Band band) {
  p.band = band;
  return p;
}

Problem with_lengths(Problem p) {
  add_ints(p, kSeqLenQ, p.batch);
  add_ints(p, kCuSeqLenKv, p.batch + 1, DataType::kI64);
  return p;
}

Problem packed(Sizes sizes) {
  Problem p = with_lengths(forward_problem(sizes, DataType::kF16));
  make_ragged(p, Side::kQ, 600);
  make_ragged(p, Side::kKv, 900);
  return p;
}

Problem with(Problem p, Role role) {
  add_head_vector(p, role);
  return p;
}

Problem backward(const Problem& forward) {
  Problem p = forward;
  if (!p.has(kStats)) p[kStats] = operand(DataType::kF32, stats_padded(p.batch, p.q_heads, p.q_len));
  return backward_problem(p, kAllOfQkv);
}

Problem capped(Problem p) {
  p.softcap = 30;
  return p;
}

Problem biased(Problem p) {
  add_matrix(p, kBias, DataType::kF16, {1, p.q_heads, p.q_len, p.kv_len});
  return p;
}

Problem masked(Problem p) {
  add_matrix(p, kMask, DataType::kBool, {2, 1, 1, p.kv_len});
  return p;
}

Problem with_dbias(Problem p) {
  p[kDbias] = p[kBias];
  return p;
}

Problem with_dsink(Problem p) {
  add_head_vector(p, kSink);
  p[kDsink] = p[kSink];
  return p;
}

Problem wanting_only_dk(Problem p) {
  p[kDq] = p[kDv] = {};
  return p;
}

}  // namespace

std::vector<Lowered> lowered_problems() {
  const Band causal = Band::causal(), bottom_right = Band::causal(Align::kBottomRight);
  const Sizes grouped{2, 8, 2, 256, 512, 128, 128}, equal{2, 8, 8, 256, 512, 128, 128};
  return {
      {"forward", plain()},
      {"forward_stats", forward_problem(kSizes, DataType::kBf16)},
      {"forward_causal", banded(plain(), causal)},
      {"forward_bottom_right", banded(plain(), bottom_right)},
      {"forward_window", banded(plain(), {Align::kTopLeft, 3, 0})},
      {"forward_window_bottom_right", banded(plain(), {Align::kBottomRight, 3, 0})},
      {"forward_tall_bottom_right", banded(tall(), {Align::kBottomRight, 9, -2})},
      {"forward_lengths", with_lengths(banded(plain(), causal))},
      {"forward_lengths_window", with_lengths(banded(plain(), {Align::kBottomRight, 3, 2}))},
      {"forward_packed_grouped", banded(packed(grouped), causal)},
      {"forward_sink", with(plain(), kSink)},
      {"forward_slopes", with(banded(plain(), causal), kAlibiSlopes)},
      {"forward_softcap", capped(plain())},
      {"forward_bias", biased(plain())},
      {"forward_mask", masked(plain())},
      {"forward_slopes_bottom_right", with(banded(plain(), bottom_right), kAlibiSlopes)},
      {"forward_lengths_bias", with_lengths(banded(biased(plain()), causal))},
      {"backward", backward(plain())},
      {"backward_causal", backward(banded(plain(), causal))},
      {"backward_lengths_grouped", backward(with_lengths(forward_problem(grouped, DataType::kBf16)))},
      {"backward_packed", backward(banded(packed(equal), causal))},
      {"backward_packed_grouped", backward(packed(grouped))},
      {"backward_packed_small_dims", backward(packed({2, 8, 8, 256, 512, 72, 128}))},
      {"backward_only_dk", wanting_only_dk(backward(packed(equal)))},
      {"backward_sink", with_dsink(backward(plain()))},
      {"backward_slopes", with(backward(banded(plain(), causal)), kAlibiSlopes)},
      {"backward_bias", biased(backward(banded(plain(), causal)))},
      {"backward_mask", masked(backward(plain()))},
      {"backward_dbias", with_dbias(biased(backward(banded(plain(), causal))))},
      {"backward_packed_dbias", with_dbias(biased(backward(packed(grouped))))},
      {"backward_softcap", capped(backward(plain()))},
  };
}

}  // namespace attngraph::test
