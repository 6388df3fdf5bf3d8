#include "unit/problem/refusal.hpp"

using namespace attngraph;
using namespace attngraph::test;
using enum Role;

namespace {
constexpr int64_t kTwo61 = int64_t{1} << 61;
}

TEST_CASE("a tensor that contradicts itself is refused", "[validate]") {
  check_refusals({
      {forward, [](Sample& s) { s[kK].dims[2] = -5; },
       "k (uid 2 \"k'\"): dims[2] is -5; must not be negative"},
      {forward, [](Sample& s) { s[kK].dims[2] = kTwo61; },
       "dims[2] is 2305843009213693952; must be below 2^61, so that sizes fit int64"},
      {forward,
       [](Sample& s) {
         s[kK].strides = {80, 40, 8};
       },
       "k (uid 2 \"k'\"): strides have rank 3; must have rank 4, as the dims"},
      {forward, [](Sample& s) { s[kK].strides.clear(); },
       "strides are absent; an input must have one for each of its 4 dims"},
      {forward, [](Sample& s) { s[kO].strides[1] = -6; },
       "o (uid 4 \"o'\"): strides[1] is -6; must not be negative"},
      {forward, [](Sample& s) { s[kQ].alignment = 0; }, "alignment is 0; must be a positive power of two"},
      {forward, [](Sample& s) { s[kQ].alignment = -16; }, "alignment is -16; must be a positive power"},
      {forward, [](Sample& s) { s[kQ].alignment = 24; }, "alignment is 24; must be a positive power"},
      {forward, [](Sample& s) { s[kStats].alignment = 2; },
       "alignment is 2; must be at least 4, the bytes of one f32"},
      {packed, [](Sample& s) { s[kQ].ragged->multiplier = -1; },
       "q (uid 1 \"q'\"): ragged multiplier is -1; must be positive"},
      {packed, [](Sample& s) { s[kQ].ragged->multiplier = 0; }, "ragged multiplier is 0; must be positive"},
      {packed, [](Sample& s) { s[kQ].ragged->offsets = 99; },
       "ragged offsets are uid 99, no tensor of the graph"},
      {forward, [](Sample& s) { s.graph.vector("spare", DataType::kI32, -2); },
       "tensor (uid 14 \"spare\"): dims[0] is -2"},
      {packed, [](Sample& s) { s.graph.find(s[kQ].ragged->offsets)->strides = {-1}; },
       "node 0, offsets of q (uid 8 \"offsets'\"): strides[0] is -1"},
  });
}

TEST_CASE("a tensor of the wrong type is refused", "[validate]") {
  check_refusals({
      {forward, [](Sample& s) { s[kQ].dtype = DataType::kFp8E4m3; },
       "dtype is fp8_e4m3; must be another type: fp8 is not covered by the contract"},
      {forward, [](Sample& s) { s[kBias].dtype = DataType::kFp8E5m2; }, "dtype is fp8_e5m2; must be another"},
      {forward, [](Sample& s) { s[kQ].dtype = DataType::kI32; }, "dtype is i32; must be f32, f16 or bf16"},
      {forward, [](Sample& s) { s[kK].dtype = DataType::kBf16; }, "dtype is bf16; must be that of q, f16"},
      {forward, [](Sample& s) { s[kV].dtype = DataType::kF32; }, "dtype is f32; must be that of q, f16"},
      {forward, [](Sample& s) { s[kO].dtype = DataType::kF32; }, "o (uid 4 \"o'\"): dtype is f32"},
      {backward, [](Sample& s) { s[kDo].dtype = DataType::kF32; }, "do (uid 13 \"do'\"): dtype is f32"},
      {backward, [](Sample& s) { s[kDq].dtype = DataType::kF32; }, "dq (uid 15 \"dq'\"): dtype is f32"},
      {backward, [](Sample& s) { s[kDk].dtype = DataType::kF32; }, "dk (uid 16 \"dk'\"): dtype is f32"},
      {backward, [](Sample& s) { s[kDv].dtype = DataType::kF32; }, "dv (uid 17 \"dv'\"): dtype is f32"},
      {forward, [](Sample& s) { s[kStats].dtype = DataType::kF16; }, "dtype is f16; must be f32"},
      {forward, [](Sample& s) { s[kSink].dtype = DataType::kF16; }, "dtype is f16; must be f32"},
      {forward, [](Sample& s) { s[kAlibiSlopes].dtype = DataType::kBf16; }, "dtype is bf16; must be f32"},
      {backward, [](Sample& s) { s[kDsink].dtype = DataType::kF16; }, "dtype is f16; must be f32"},
      {backward, [](Sample& s) { s[kDalibiSlopes].dtype = DataType::kF16; }, "dtype is f16; must be f32"},
      {forward, [](Sample& s) { s[kBias].dtype = DataType::kBool; },
       "dtype is bool; must be f32, f16 or bf16"},
      {backward, [](Sample& s) { s[kDbias].dtype = DataType::kI64; }, "dtype is i64; must be f32, f16"},
      {forward, [](Sample& s) { s[kMask].dtype = DataType::kF32; }, "dtype is f32; must be bool"},
      {forward, [](Sample& s) { s[kSeqLenQ].dtype = DataType::kF32; }, "dtype is f32; must be i32 or i64"},
      {forward, [](Sample& s) { s[kCuSeqLenKv].dtype = DataType::kF32; }, "dtype is f32; must be i32 or i64"},
      {forward, [](Sample& s) { s[kDropoutSeed].dtype = DataType::kF32; }, "dtype is f32; must be i32 or"},
      {forward, [](Sample& s) { s[kDropoutOffset].dtype = DataType::kBool; }, "dtype is bool; must be i32"},
      {paged, [](Sample& s) { s[kPageTableK].dtype = DataType::kI64; }, "dtype is i64; must be i32"},
      {packed, [](Sample& s) { s.graph.find(s[kQ].ragged->offsets)->dtype = DataType::kF32; },
       "q (uid 1 \"q'\"): ragged offsets (uid 8 \"offsets'\") have dtype f32; must be i32 or i64"},
  });
}

TEST_CASE("a tensor of the wrong rank is refused", "[validate]") {
  check_refusals({
      {forward,
       [](Sample& s) {
         s.reshape(kQ, {2, 3, 8});
       },
       "dims have rank 3; must have rank 4"},
      {forward,
       [](Sample& s) {
         s.reshape(kQ, {2, 4, 3, 8, 1});
       },
       "dims have rank 5; must have rank 4"},
      {forward,
       [](Sample& s) {
         s.reshape(kBias, {3, 5});
       },
       "dims have rank 2; must have rank 4"},
      {forward, [](Sample& s) { s.reshape(kMask, {5}); }, "dims have rank 1; must have rank 4"},
      {forward,
       [](Sample& s) {
         s.reshape(kStats, {2, 4});
       },
       "dims have rank 2; must have rank 3, or more"},
      {forward,
       [](Sample& s) {
         s.reshape(kStats, {2, 4, 3, 2});
       },
       "dims[3] is 2; must be 1, as each dim after the first 3"},
      {forward, [](Sample& s) { s.reshape(kSeqLenQ, {}); }, "dims have rank 0; must have rank 1, or more"},
      {forward,
       [](Sample& s) {
         s.reshape(kSeqLenQ, {2, 2});
       },
       "dims[1] is 2; must be 1"},
      {forward,
       [](Sample& s) {
         s.reshape(kSink, {1, 4});
       },
       "dims[1] is 4; must be 1"},
      {forward,
       [](Sample& s) {
         s.reshape(kAlibiSlopes, {2, 4, 2});
       },
       "dims[2] is 2; must be 1"},
      {forward, [](Sample& s) { s.reshape(kAlibiSlopes, {}); }, "dims have rank 0; must have rank 1"},
      {paged, [](Sample& s) { s.reshape(kPageTableK, {6}); }, "dims have rank 1; must have rank 2, or more"},
      {paged,
       [](Sample& s) {
         s.reshape(kPageTableK, {2, 1, 3});
       },
       "dims[2] is 3; must be 1"},
      {packed, [](Sample& s) { s.graph.find(s[kQ].ragged->offsets)->dims = {2}; },
       "ragged offsets (uid 8 \"offsets'\") have dims [2]; must be [3], one more than the batch of q"},
      {packed,
       [](Sample& s) {
         Tensor& offsets = *s.graph.find(s[kQ].ragged->offsets);
         offsets.dims = {3, 2}, offsets.strides = {2, 1};
       },
       "have dims [3, 2]; must be [3]"},
  });
}

TEST_CASE("a tensor whose extents contradict another's is refused", "[validate]") {
  check_refusals({
      {forward,
       [](Sample& s) {
         s.reshape(kQ, {2, 5, 3, 8});
       },
       "o (uid 4 \"o'\"): heads is 4; must be 5"},
      {plain_forward,
       [](Sample& s) {
         s.reshape(kQ, {2, 5, 3, 8}), s.reshape(kO, {2, 5, 3, 6});
       },
       "q (uid 1 \"q'\"): heads is 5; must be a multiple of 2, the heads of k (uid 2 \"k'\")"},
      {plain_forward,
       [](Sample& s) {
         s.reshape(kK, {2, 0, 5, 8}), s.reshape(kV, {2, 0, 5, 6});
       },
       "heads is 4; must be a multiple of 0"},
      {forward,
       [](Sample& s) {
         s.reshape(kK, {3, 2, 5, 8});
       },
       "k (uid 2 \"k'\"): batch is 3; must be 2, the batch of q (uid 1 \"q'\")"},
      {forward,
       [](Sample& s) {
         s.reshape(kK, {2, 2, 5, 7});
       },
       "dim is 7; must be 8, the dim of q"},
      {forward,
       [](Sample& s) {
         s.reshape(kV, {2, 4, 5, 6});
       },
       "heads is 4; must be 2, the heads of k"},
      {forward,
       [](Sample& s) {
         s.reshape(kV, {2, 2, 6, 6});
       },
       "v (uid 3 \"v'\"): len is 6; must be 5, the len of k (uid 2 \"k'\")"},
      {forward,
       [](Sample& s) {
         s.reshape(kO, {2, 4, 3, 8});
       },
       "dim is 8; must be 6, the dim of v"},
      {forward,
       [](Sample& s) {
         s.reshape(kStats, {2, 4, 4, 1});
       },
       "len is 4; must be 3, the len of q"},
      {forward,
       [](Sample& s) {
         s.reshape(kBias, {3, 4, 3, 5});
       },
       "batch is 3; must be 1 or 2, the batch of q"},
      {forward,
       [](Sample& s) {
         s.reshape(kBias, {1, 2, 3, 5});
       },
       "heads is 2; must be 1 or 4, the heads"},
      {forward,
       [](Sample& s) {
         s.reshape(kBias, {1, 4, 2, 5});
       },
       "len is 2; must be 1 or 3, the len of q"},
      {forward,
       [](Sample& s) {
         s.reshape(kMask, {1, 1, 3, 4});
       },
       "dim is 4; must be 1 or 5, the len of k"},
      {forward,
       [](Sample& s) {
         s.reshape(kAlibiSlopes, {3, 4});
       },
       "batch is 3; must be 1 or 2, the batch"},
      {forward, [](Sample& s) { s.reshape(kAlibiSlopes, {2}); }, "heads is 2; must be 4, the heads of q"},
      {forward, [](Sample& s) { s.reshape(kSink, {2}); }, "heads is 2; must be 4, the heads of q"},
      {forward, [](Sample& s) { s.reshape(kSeqLenQ, {3}); }, "batch is 3; must be 2, the batch of q"},
      {forward, [](Sample& s) { s.reshape(kCuSeqLenKv, {2}); },
       "batch is 2; must be 3, one more than the batch of q"},
      {forward, [](Sample& s) { s.reshape(kDropoutSeed, {2}); }, "batch is 2; must be 1"},
      {backward,
       [](Sample& s) {
         s.reshape(kDo, {2, 4, 3, 8});
       },
       "dim is 8; must be 6, the dim of v"},
      {backward,
       [](Sample& s) {
         s.reshape(kDq, {2, 2, 3, 8});
       },
       "dq (uid 15 \"dq'\"): heads is 2; must be 4, the heads of q (uid 1 \"q'\")"},
      {backward,
       [](Sample& s) {
         s.reshape(kDk, {2, 2, 4, 8});
       },
       "len is 4; must be 5, the len of k"},
      {backward,
       [](Sample& s) {
         s.reshape(kDv, {2, 4, 5, 6});
       },
       "heads is 4; must be 2, the heads of v"},
      {backward,
       [](Sample& s) {
         s.reshape(kDbias, {2, 4, 3, 5});
       },
       "batch is 2; must be 1, the batch of bias"},
      {backward, [](Sample& s) { s.reshape(kDsink, {1}); }, "heads is 1; must be 4, the heads of sink"},
      {backward,
       [](Sample& s) {
         s.reshape(kDalibiSlopes, {2, 4});
       },
       "batch is 2; must be 1, the batch of alibi_slopes"},
  });
}
