#pragma once

#include "engine/cuda/kernels/hopper_tiles.cuh"

/// What scores on sm_90a read besides q and k: a bias and a mask.
///
/// Each warp of products copies its own blocks of bias and mask to shared memory of its own, a tile ahead: no
/// barrier is needed but the warp's, and nothing on its way stays in registers.
namespace attngraph::cuda {

/// A warp's block of kQueries by kKeys scores, 16 on the side of its fragments' rows. Of bias and mask a row
/// of queries is a row of shared memory, its chunks of 16 bytes twisted so that the lanes of a fragment find
/// theirs in banks of their own.
template <int kQueries, int kKeys>
struct MatrixBlock {
  static_assert(kQueries == 16 || kKeys == 16);
  static constexpr bool kKeysAreRows = kKeys == 16;    ///< of the fragments
  static constexpr int kBytes = kQueries * kKeys * 4;  ///< a bias of four bytes, or one of two and a mask

  const Params& p;
  uint32_t bias;  ///< address, a multiple of 128

  __device__ uint32_t mask() const { return bias + kBytes / 2; }

  /// From the block's address to chunk `chunk` of row `row` of elements of kSize bytes.
  template <int kSize>
  __device__ static uint32_t place(int row, int chunk) {
    constexpr int kChunks = kKeys * kSize / 16;
    int twist = 0;
    if constexpr (kChunks == 2) twist = row >> 2 & 1;
    if constexpr (kChunks == 4) twist = row >> 1 & 3;
    if constexpr (kChunks == 8 || kChunks == 16) twist = row & 7;
    if constexpr (kChunks == 32) twist = (row & 3) << 1;  // a fragment's row takes two chunks
    return static_cast<uint32_t>(row * kChunks * 16 + ((chunk ^ twist) << 4));
  }

  /// Starts to copy the block at (first_query, first_key) of a head; the warp has read the one before.
  __device__ __forceinline__ void bring(const HopperCopies& copies, const Sequence& s, int head,
                                        int first_query, int first_key) const {
    const int num_queries = s.q_len - first_query, num_keys = s.kv_len - first_key;
    __syncwarp();
    const auto from = [&](Role role) {
      return row_offset(p, s, role, head, first_query) + first_key * p[role].stride[3];
    };
    if (const TensorView& t = p[Role::kBias]; t.present) {
      if (t.dtype == DataType::kF32)
        copy<uint32_t>(t, from(Role::kBias), bias, copies.bias_in_chunks, num_queries, num_keys);
      else
        copy<uint16_t>(t, from(Role::kBias), bias, copies.bias_in_chunks, num_queries, num_keys);
    }
    if (const TensorView& t = p[Role::kMask]; t.present)
      copy<uint8_t>(t, from(Role::kMask), mask(), copies.mask_in_chunks, num_queries, num_keys);
  }

  /// Waits until the whole warp may read the block.
  __device__ static void arrive() {
    wait_all_copies();
    __syncwarp();
  }

  /// Calls of(i, bias of element i of the fragments).
  template <class Of>
  __device__ __forceinline__ void each_bias(Of&& of) const {
    switch (p[Role::kBias].dtype) {
      case DataType::kF32:
        return each_float(of);
      case DataType::kF16:
        return each_pair<__half>(of);
      default:
        return each_pair<__nv_bfloat16>(of);
    }
  }

  /// Calls of(i) for each element i of the fragments that the mask leaves out.
  template <class Of>
  __device__ __forceinline__ void each_masked(Of&& of) const {
    const int lane = made_anew(threadIdx.x) % 32;  // what follows from it is not kept across tiles
    if constexpr (kKeysAreRows) {
      const uint32_t at = mask() + static_cast<uint32_t>(lane % 4 * 2 * kKeys + lane / 4);
#pragma unroll
      for (int i = 0; i < kQueries / 2; ++i)
        if (load_shared<uint8_t>(at + static_cast<uint32_t>((i / 4 * 8 + i % 2) * kKeys + i / 2 % 2 * 8)) ==
            0)
          of(i);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t at = mask() + place<1>(lane / 4 + 8 * half, 0) + static_cast<uint32_t>(lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          const uint32_t pair = load_shared<uint16_t>((at ^ static_cast<uint32_t>(n / 2 << 4)) + n % 2 * 8);
          if ((pair & 0xff) == 0) of(4 * n + 2 * half);
          if ((pair & 0xff00) == 0) of(4 * n + 2 * half + 1);
        }
      }
    }
  }

 private:
  template <class Bits>
  __device__ __forceinline__ void copy(const TensorView& t, int64_t first, uint32_t to, bool in_chunks,
                                       int num_queries, int num_keys) const {
    constexpr int kSize = sizeof(Bits), kPerChunk = 16 / kSize, kChunks = kKeys / kPerChunk;
    const int lane = made_anew(threadIdx.x) % 32;  // what follows from it is not kept across tiles
    if (in_chunks) {
      constexpr int kRowsAtOnce = 32 / kChunks;
      const int chunk = lane % kChunks;
      const int rows = chunk * kPerChunk < num_keys ? num_queries : 0;
      const std::byte* from = t.data + (first + lane / kChunks * t.stride[2]) * kSize + chunk * 16;
#pragma unroll 2
      for (int row = lane / kChunks; row < kQueries; row += kRowsAtOnce) {
        copy_async_16(to + place<kSize>(row, chunk), from, row < rows ? 16 : 0);
        from += kRowsAtOnce * kSize * t.stride[2];
      }
      return;
    }
#pragma unroll 4
    for (int at = lane; at < kQueries * kKeys; at += 32) {
      const int row = at / kKeys, key = at % kKeys;
      Bits bits = 0;
      if (row < num_queries && key < num_keys)
        bits = reinterpret_cast<const Bits*>(t.data)[first + row * t.stride[2] + key * t.stride[3]];
      store_shared<Bits>(
          to + place<kSize>(row, key / kPerChunk) + static_cast<uint32_t>(key % kPerChunk * kSize), bits);
    }
  }

  /// Of two bytes: matrices as products have them.
  template <class T, class Of>
  __device__ __forceinline__ void each_pair(Of& of) const {
    const int lane = made_anew(threadIdx.x) % 32;  // what follows from it is not kept across tiles
    const uint32_t at = bias + (kKeysAreRows ? place<2>(lane / 16 * 8 + lane % 8, lane / 8 % 2)
                                             : place<2>(lane % 16, lane / 16));
#pragma unroll
    for (int k = 0; k < kBytes / 1024; ++k) {
      uint32_t pairs[4];
      if constexpr (kKeysAreRows)
        load_matrices_transposed(pairs, at + static_cast<uint32_t>(16 * k * kKeys * 2));
      else
        load_matrices(pairs, (at ^ static_cast<uint32_t>(k % 4 << 5)) + k / 4 * 128);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const auto [low, high] = unpack<T>(pairs[pair]);
        of(8 * k + 2 * pair, low), of(8 * k + 2 * pair + 1, high);
      }
    }
  }

  template <class Of>
  __device__ __forceinline__ void each_float(Of& of) const {
    const int lane = made_anew(threadIdx.x) % 32;  // what follows from it is not kept across tiles
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kKeysAreRows) {
        const uint32_t at =
            bias + place<4>(lane % 4 * 2, 2 * half + lane / 16) + static_cast<uint32_t>(lane / 4 % 4 * 4);
#pragma unroll
        for (int n = 0; n < kQueries / 4; ++n) {
          const auto further = static_cast<uint32_t>((n / 2 * 8 + n % 2) * kKeys * 4);
          of(n / 2 * 4 + 2 * half + n % 2, __uint_as_float(load_shared<uint32_t>(at + further)));
        }
      } else {
        const uint32_t at =
            bias + place<4>(lane / 4 + 8 * half, lane % 4 / 2) + static_cast<uint32_t>(lane % 2 * 8);
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          const uint2 bits = load_shared<uint2>((at ^ static_cast<uint32_t>(n % 4 << 5)) + n / 4 * 128);
          of(4 * n + 2 * half, __uint_as_float(bits.x)), of(4 * n + 2 * half + 1, __uint_as_float(bits.y));
        }
      }
    }
  }
};

}  // namespace attngraph::cuda
