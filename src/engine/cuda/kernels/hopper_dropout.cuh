#pragma once

#include "engine/cuda/kernels/hopper_tiles.cuh"
#include "problem/dropout_parts.hpp"

/// Dropout's decisions on sm_90a. Draws of several rows run in step, since each alone waits for its own last
/// result, with what they share of a head, a row or a pair of keys computed once.
namespace attngraph::cuda {

/// WideProduct in one instruction.
struct DeviceProduct {
  __host__ __device__ uint64_t operator()(uint32_t a, uint32_t b) const {
#ifdef __CUDA_ARCH__
    uint64_t product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
#else
    return WideProduct{}(a, b);  // philox_round() is a host function, too
#endif
  }
};
using DeviceDraws = HeadDraws<DeviceProduct>;

/// Some elements may be dropped.
__device__ inline bool drops(const Params& p) { return p.dropout_threshold > 0; }

__device__ inline DeviceDraws draws_of(const Params& p, const Sequence& s, int head) {
  const auto copied = [](uint64_t value) {
    return uint64_t{uniform(static_cast<uint32_t>(value >> 32))} << 32 |
           uniform(static_cast<uint32_t>(value));
  };
  return {Dropout{copied(s.seed), copied(s.offset), p.dropout_threshold},
          int64_t{s.batch} * p.q_heads + uniform(static_cast<uint32_t>(head))};
}

/// Shifts whether `word` is kept into `bits` from below. Some are dropped.
__device__ __forceinline__ void shift_in(uint32_t& bits, uint32_t word, uint32_t negative_threshold) {
  asm("{.reg .u32 t; add.cc.u32 t, %1, %2; addc.u32 %0, %0, %0;}"
      : "+r"(bits)
      : "r"(word), "r"(negative_threshold));
}

/// Finishes four draws; a bit for each of their words, the first in bit 15, set where its element is kept.
__device__ __forceinline__ uint32_t draw_four(const Params& p, const DeviceDraws& draws,
                                              PhiloxWords (&words)[4]) {
  PhiloxKey key = draws.next();
#pragma unroll
  for (int round = 0; round < DeviceDraws::kRoundsLeft; ++round, key = next_key(key))
#pragma unroll
    for (PhiloxWords& each : words) philox_round(each, key, DeviceProduct{});
  const auto negative_threshold = static_cast<uint32_t>(-p.dropout_threshold);
  uint32_t bits[4] = {};
#pragma unroll
  for (int word = 0; word < 4; ++word)
#pragma unroll
    for (int i = 0; i < 4; ++i) shift_in(bits[i], words[i][word], negative_threshold);
  return bits[0] << 12 | bits[1] << 8 | bits[2] << 4 | bits[3];
}

/// Dropout's decisions on a warp's fragments with queries as rows, `row` and the eighth after it: bit 31 - i
/// % 32 of word i / 32 is set where element i is kept.
__device__ __forceinline__ void draw_query_rows(const Params& p, const Sequence& s, int head, int row,
                                                int first_key, uint32_t (&kept)[2]) {
  const DeviceDraws draws = draws_of(p, s, head);
  const DeviceDraws::Row of_row = draws.row(row);
  int key = first_key + made_anew(threadIdx.x) % 4 * 2;
#pragma unroll 1  // once in the code
  for (int quarter = 0; quarter < 4; ++quarter, key += 32) {
    PhiloxWords words[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) words[n] = DeviceDraws::meet(of_row, draws.keys(key + 8 * n));
    kept[0] = kept[0] << 16 | kept[1] >> 16;
    kept[1] = kept[1] << 16 | draw_four(p, draws, words);
  }
}
/// Element i's bit there.
__device__ __forceinline__ bool is_kept(const uint32_t (&kept)[2], int i) {
  return (kept[i / 32] >> (31 - i % 32) & 1) != 0;
}

/// The same with keys as rows, for the 32 elements of 64 queries. A draw serves two lanes, of neighbouring
/// keys: each draws for one query of its pairs.
__device__ __forceinline__ uint32_t draw_key_rows(const Params& p, const Sequence& s, int head,
                                                  int first_query, int first_key) {
  const DeviceDraws draws = draws_of(p, s, head);
  const int lane = made_anew(threadIdx.x) % 32, parity = lane / 4 % 2;
  const int key = first_key + lane / 8 * 2;
  const DeviceDraws::Keys keys[] = {draws.keys(key), draws.keys(key + 8)};
  int query = first_query + lane % 4 * 2 + parity;
  uint32_t own = 0;
#pragma unroll 1
  for (int half = 0; half < 2; ++half, query += 32) {
    PhiloxWords words[4];
#pragma unroll
    for (int n = 0; n < 4; ++n)  // pairs of eight queries, halves of the keys
      words[n] = DeviceDraws::meet(draws.row(query + n / 2 * 16), keys[n % 2]);
    own = own << 16 | draw_four(p, draws, words);
  }
  own = __brev(own);
  // Of each draw: bit 2 r + k is query r of the pair eight apart and key k; wanted are those of the own key.
  const uint32_t other = __shfl_xor_sync(0xffffffffu, own, 4);
  constexpr uint32_t kEven = 0x55555555u;
  const uint32_t first = (parity ? other : own) >> parity & kEven,
                 second = (parity ? own : other) >> parity & kEven;
  return first | second << 1;
}
/// The bit of element i there.
constexpr int key_row_bit(int i) { return i / 8 * 8 + i / 2 % 2 * 4 + i / 4 % 2 * 2 + i % 2; }

}  // namespace attngraph::cuda
