#pragma once

#include "engine/cuda/kernels/hopper_backward.cuh"

/// dk and dv for sm_90a where the sums of either of 64 keys alone fill a warpgroup's registers.
///
/// A block owns 64 keys of one kv head, K and V in shared memory, and passes over the query rows of all heads
/// of the group that see them; Q, dO, log-sum-exp and delta come as in the backward of narrower heads. One
/// warpgroup computes P' and sums dv, the other dP' and dS' and sums dk. Both hold the same fragments of keys
/// by queries, so P' goes from one to the other in register order.
///
///   first:   S' = K Q', P' = exp(scale S' - lse), dV += P' dO
///   second:  dP' = V dO', dS' = P' (dP' - delta), dK += dS' Q
///
/// Pipeline: S' of the next step runs beside dK; dP' waits for it and runs under the exponentials, dV under
/// dS'. hopper_dq.cuh has what was measured.
namespace attngraph::cuda {

/// What both warpgroups know and do.
template <class T, HopperGradientTile kTile>
struct SumsOwner {
  const Params& p;
  const GradientShared<kTile>& shared;
  const GradientBarriers& barriers;
  const GradientWork<kTile>& work;
  int begin, end;  ///< of work, uniform

  static constexpr int kRows = kTile.q_rows;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }

  __device__ static void release(uint32_t barrier) {
    __syncwarp();
    if (lane() == 0) arrive(barrier);
  }
  __device__ int steps() const { return (end - begin) * p.group; }
  __device__ uint32_t q(int stage) const { return shared.q + stage * kTile.q_bytes(); }
  __device__ uint32_t dout(int stage) const { return shared.dout + stage * kTile.dout_bytes(); }
  /// 16 bytes of this thread's P', of 16 queries.
  __device__ uint32_t weights(int stage, int sixteen) const {
    const uint32_t thread = threadIdx.x % kWarpgroup;
    return shared.ds + stage * kTile.ds_bytes() + (sixteen * kWarpgroup + thread) * 16;
  }

  /// Leaves out the products of a tile that lie outside of the band.
  __device__ __forceinline__ void mask(float (&products)[kRows / 2], int tile) const {
    if (tile * kRows >= work.full_begin && (tile + 1) * kRows <= work.full_end) return;
    Span queries;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = work.first_key + warp() * 16 + lane() / 4 + 8 * half;
      const KeySpan seeing = span_seeing(p, work.sequence, key, key);
      queries.begin[half] = seeing.begin, queries.end[half] = seeing.end;
    }
    queries.mask(products, tile * kRows);
  }

  /// Stores a warpgroup's sums through a half of Q's buffers, which are free.
  __device__ __forceinline__ void store(Role role, const auto& sums, float scale, int half_of_q) const {
    if (!p[role].present) return;
    constexpr int kPanelBytes = 16 * kPanelRowBytes, kDim = 2 * sizeof(sums) / sizeof(float);
    const Sequence& s = work.sequence;
    const int first_row = work.first_key + warp() * 16;
    const uint32_t stage = shared.q + static_cast<uint32_t>((half_of_q * 4 + warp()) * 16 * kTile.dim * 2);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      factor[half] = first_row + lane() / 4 + 8 * half < s.kv_len ? scale : 0.0f;
    stage_rows<T, kPanelBytes>(stage, sums, factor);
    __syncwarp();
    const int num_rows = min(rows_written(p[role], s.kv_len, p.kv_len) - first_row, 16);
    store_staged<T, kDim, kPanelBytes>(p, s, role, {work.kv_head, first_row, num_rows}, stage);
  }
};

inline constexpr int kSumsMeeting = 1;

/// The warpgroup of P' and dv.
template <class T, HopperGradientTile kTile>
__device__ inline void sum_dv(const SumsOwner<T, kTile>& c) {
  constexpr int kRows = kTile.q_rows;
  const auto& [p, shared, barriers, work, begin, end] = c;
  float dv[kTile.v_dim / 2] = {};
  RingPlace<kTile.stages> ring;
  int before = 0, tile = begin;
  const int steps = c.steps();
  if (steps > 0) wait(barriers.keys_full(), 0);
  for (int step = 0; step < steps; ++step) {
    float weights[kRows / 2];
    uint32_t operand[kRows / 16][4];
    wait(barriers.q_full(ring.stage), ring.parity);
    start_row_products<T, kTile.dim, kTile.keys, kRows>(weights, shared.k, c.q(ring.stage));
    if (step > 0) {
      wait_products<1>();
      c.release(barriers.dout_empty(before));
    }
    wait_products<0>();
    c.release(barriers.scores_done(ring.stage));
    c.mask(weights, tile);
    if (++tile == end) tile = begin;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      const float2 lse = *reinterpret_cast<const float2*>(&work.lse[ring.stage][8 * i + c.lane() % 4 * 2]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = 4 * i + 2 * half;
        operand[i / 2][i % 2 * 2 + half] = pack<T>(exp2_fast(fmaf(weights[at], p.scale_log2, -lse.x)),
                                                   exp2_fast(fmaf(weights[at + 1], p.scale_log2, -lse.y)));
      }
    }
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i)
      store_shared_16(c.weights(ring.stage, i),
                      uint4{operand[i][0], operand[i][1], operand[i][2], operand[i][3]});
    c.release(barriers.weights_full(ring.stage));
    if (c.lane() == 0) arrive(barriers.q_empty(ring.stage));
    wait(barriers.dout_full(ring.stage), ring.parity);
    start_weighted_rows<T, kRows>(dv, operand, c.dout(ring.stage));
    before = ring.stage;
    ring.next();
  }
  wait_products<0>();
  meet(kSumsMeeting, 2 * kWarpgroup);
  c.store(Role::kDv, dv, 1.0f, 0);
}

/// The warpgroup of dP', dS' and dk.
template <class T, HopperGradientTile kTile>
__device__ inline void sum_dk(const SumsOwner<T, kTile>& c) {
  constexpr int kRows = kTile.q_rows;
  const auto& [p, shared, barriers, work, begin, end] = c;
  float dk[kTile.dim / 2] = {};
  RingPlace<kTile.stages> ring;
  int before = 0;
  const int steps = c.steps();
  if (steps > 0) wait(barriers.keys_full(), 0);
  for (int step = 0; step < steps; ++step) {
    float gradients[kRows / 2];
    uint32_t weights[kRows / 16][4], operand[kRows / 16][4];
    if (step > 0) {
      wait_products<0>();
      c.release(barriers.q_empty(before));
    }
    wait(barriers.dout_full(ring.stage), ring.parity);
    wait(barriers.scores_done(ring.stage), ring.parity);
    start_row_products<T, kTile.v_dim, kTile.keys, kRows>(gradients, shared.v, c.dout(ring.stage));
    wait(barriers.q_full(ring.stage), ring.parity);  // and delta's rows
    wait(barriers.weights_full(ring.stage), ring.parity);
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      const uint4 four = load_shared_16(c.weights(ring.stage, i));
      weights[i][0] = four.x, weights[i][1] = four.y, weights[i][2] = four.z, weights[i][3] = four.w;
    }
    wait_products<0>();
    c.release(barriers.dout_empty(ring.stage));
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      const float2 delta =
          *reinterpret_cast<const float2*>(&work.delta[ring.stage][8 * i + c.lane() % 4 * 2]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = 4 * i + 2 * half;
        const float2 weight = unpack<T>(weights[i / 2][i % 2 * 2 + half]);
        operand[i / 2][i % 2 * 2 + half] =
            pack<T>(weight.x * (gradients[at] - delta.x), weight.y * (gradients[at + 1] - delta.y));
      }
    }
    start_weighted_rows<T, kRows>(dk, operand, c.q(ring.stage));
    before = ring.stage;
    ring.next();
  }
  wait_products<0>();
  meet(kSumsMeeting, 2 * kWarpgroup);
  c.store(Role::kDk, dk, p.scale, 1);
}

template <class T, int kDim>
__global__ void __launch_bounds__(HopperGradientTile::threads, 1)
    hopper_dkdv(const __grid_constant__ Params p, const __grid_constant__ HopperCopies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr HopperGradientTile kTile = hopper_gradient_tile(kDim);
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  __shared__ uint64_t barrier_memory[GradientBarriers::count(kTile.stages)];
  __shared__ GradientWork<kTile> work;
  const GradientShared<kTile> shared(shared_address(dynamic_shared));
  const GradientBarriers barriers{shared_address(barrier_memory)};
  if (p[Role::kDq].present) let_next_start();  // that of dq; what else follows is the caller's
  if (threadIdx.x == 0) barriers.init(kTile.stages);
  const Block block(p, p.kv_head_count, p.kv_head_begin);
  load_sequence(p, block.batch, work.sequence);  // the block meets here
  if (threadIdx.x == 0) locate<kTile>(p, block, work);
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    shrink_registers<kTile.copy_registers>();
    if (threadIdx.x < 32)
      copy_tiles<kTile>(p, copies, shared, barriers, work);
    else if (threadIdx.x < 64)
      copy_row_numbers<kTile>(p, barriers, work);
  } else {
    grow_registers<kTile.product_registers>();
    const int begin = static_cast<int>(uniform(static_cast<uint32_t>(work.begin))),
              end = static_cast<int>(uniform(static_cast<uint32_t>(work.end)));
    if (product_group() == 0)
      sum_dv<T, kTile>({p, shared, barriers, work, begin, end});
    else
      sum_dk<T, kTile>({p, shared, barriers, work, begin, end});
  }
#endif
}

}  // namespace attngraph::cuda
