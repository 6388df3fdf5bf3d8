#pragma once

#include <bit>

#include "engine/cuda/hopper_tiles.hpp"
#include "engine/cuda/kernels/hopper_tiles.cuh"
#include "engine/cuda/kernels/tensor.cuh"

/// Decode for sm_90a: o = softmax(scale Q K^T within the band) V for at most 16 packed query rows of a kv
/// head, bound by the rate at which K and V arrive.
///
/// A block owns a part of one head's keys. Its last warp copies them, 64 at a time, through a ring of
/// `stages` buffers of K and V, so that the bytes under way do not wait for products; each of the others
/// takes 16 keys of every tile, with scores, a maximum and o of its own in registers. The warps' rows meet in
/// shared memory; the parts of a head are the blocks of a cluster, and each sends every other the columns
/// that this one joins and stores.
///
/// Pipeline of a warp: Q K(n)^T, softmax(n), weights(n) V(n), while tiles n + 1 .. n + stages arrive.
///
/// Measured: H200, bf16, d128, 32 heads on 8, 4,476 GB/s with 64 x 8,192 keys, 4,112 with one sequence of
/// 131,072, where a copy does 4,242; attngraph bench --engine cuda --filter decode/.
namespace attngraph::cuda {

/// A tile as tensor copies leave it: panels of 64 columns.
template <int kDim, int kRows>
struct PanelTile {
  static constexpr int kChunks = kDim / 8, kPitch = kPanelRowBytes;
  uint32_t base;

  __device__ uint32_t at(int row, int chunk) const {
    return further(base + static_cast<uint32_t>(row * kPitch + ((chunk % 2 ^ (row & 7)) << 4)), chunk / 2);
  }
  __device__ static uint32_t further(uint32_t address, int k) {
    return (address ^ static_cast<uint32_t>(k % 4 << 5)) + static_cast<uint32_t>(k / 4 * kRows * kPitch);
  }
};

/// Named barriers; 0 is that of __syncthreads().
inline constexpr int kWorkIsSet = 1, kRingIsRead = 2;

/// How many blocks a cluster has, a power of 2, and which of them this one is. To divide by that number
/// takes a shift; by one that is not known to be such a power, some 40 instructions.
struct DecodeCluster {
  int blocks_log2, rank;

  __device__ DecodeCluster() : blocks_log2(cluster_blocks_log2()), rank(cluster_rank()) {}
};

template <HopperDecodeTile kTile>
struct DecodeShared {
  uint32_t ring, barriers;  ///< addresses; behind the ring lies what the blocks of the cluster send
  // When the last tile has been used, the ring holds rows of o of each warp.

  __device__ uint32_t k(int stage) const { return ring + stage * 2 * kTile.key_bytes(); }
  __device__ uint32_t v(int stage) const { return k(stage) + kTile.key_bytes(); }
  __device__ uint32_t k_full(int stage) const { return barriers + 24 * stage; }
  __device__ uint32_t v_full(int stage) const { return barriers + 24 * stage + 8; }
  __device__ uint32_t empty(int stage) const { return barriers + 24 * stage + 16; }
  __device__ uint32_t cleared() const { return barriers + 24 * kTile.stages; }
  static constexpr int kBarriers = 3 * kTile.stages + 1;
  static constexpr int kPiecesLog2 =
      std::countr_zero(unsigned{kTile.dim / 4});  ///< of four columns, of a row
  /// Four floats of a row of o as `part` left it.
  __device__ float4* o(int part, int row, int column) const {
    return static_cast<float4*>(__cvta_shared_to_generic(ring)) +
           ((part * kDecodeRows + row) * kTile.dim + column) / 4;
  }
  /// Four floats of o from a block, by their place among those that this one joins.
  __device__ float4* sent_o(int block, int place, const DecodeCluster& cluster) const {
    constexpr int kPlaces = kDecodeRows * kTile.dim / 4;
    return static_cast<float4*>(__cvta_shared_to_generic(ring + kTile.ring_bytes())) +
           block * (kPlaces >> cluster.blocks_log2) + place;
  }
};
template <HopperDecodeTile kTile>
struct DecodeWork {
  Sequence sequence;
  BlockWork block;
  PartRow rows[kTile.warps][kDecodeRows];             ///< of each warp
  PartRow sent_rows[kTile.max_cluster][kDecodeRows];  ///< of each block of the cluster
  uint32_t absent[kTile.stages];  ///< a bit for each 8 keys of a tile: their page is outside
};

/// The copying warp where keys lie in one piece. One lane copies, and the compiler knows that it is one: in
/// turns of lanes, with what pages need, a tile takes this warp twice as many instructions.
template <HopperDecodeTile kTile>
__device__ inline void copy_whole_keys(const Params& p, const HopperCopies& copies,
                                       const DecodeShared<kTile>& shared, const DecodeWork<kTile>& work) {
  constexpr int kKeys = kTile.keys;
  const Sequence& s = work.sequence;
  const MapPlace k_place = map_place(p, s, Role::kK), v_place = map_place(p, s, Role::kV);
  const int kv_len = s.kv_len, head = work.block.head, end = work.block.tile_end;
  RingPlace<kTile.stages> ring;
  uint32_t cleared_parity = 0;
  await_previous();
  for (int tile = work.block.tile; tile < end; ++tile, ring.next()) {
    const int row = tile * kKeys;
    const auto copy = [&](uint32_t to, const TensorMap& map, MapPlace place, uint32_t barrier) {
      if (!elect()) return;
      arrive_expecting(barrier, kTile.key_bytes());
      copy_panels<kTile.dim, kKeys>(to, map, place, row, head, barrier, Keep::kFirstOut);
    };
    wait(shared.empty(ring.stage), ring.parity ^ 1);
    copy(shared.k(ring.stage), copies.k, k_place, shared.k_full(ring.stage));
    bring_tile<kTile.dim, kKeys>(
        {shared.v(ring.stage), shared.v_full(ring.stage), shared.cleared()}, kv_len - row, cleared_parity,
        [&](uint32_t barrier) { copy(shared.v(ring.stage), copies.v, v_place, barrier); });
  }
}

/// The same where pages hold keys, k's or v's or both: a lane looks up a piece of a tile, keys that lie on
/// one page.
template <HopperDecodeTile kTile>
__device__ inline void copy_paged_keys(const Params& p, const HopperCopies& copies,
                                       const DecodeShared<kTile>& shared, DecodeWork<kTile>& work) {
  constexpr int kKeys = kTile.keys;
  const Sequence& s = work.sequence;
  const int lane = static_cast<int>(threadIdx.x) % 32, box_rows = copies.key_box_rows;
  const bool pages_k = p[Role::kPageTableK].present, pages_v = p[Role::kPageTableV].present;
  const MapPlace k_place = map_place(p, s, Role::kK), v_place = map_place(p, s, Role::kV);
  const int head = work.block.head, end = work.block.tile_end;
  RingPlace<kTile.stages> ring;
  uint32_t cleared_parity = 0;
  PageRow k_next{-1, 0}, v_next{-1, 0};
  const auto look_up = [&](int tile) {
    const int key = tile * kKeys + lane * box_rows;
    const bool is_piece = lane * box_rows < kKeys && key < s.kv_len && tile < end;
    k_next = {k_place.batch, k_place.row + key}, v_next = {v_place.batch, v_place.row + key};
    if (pages_k) k_next = is_piece ? page_row<Role::kK>(p, s, key) : PageRow{-1, 0};
    if (pages_v) v_next = is_piece ? page_row<Role::kV>(p, s, key) : PageRow{-1, 0};
  };
  await_previous();
  look_up(work.block.tile);
  for (int tile = work.block.tile; tile < end; ++tile, ring.next()) {
    PageRow k_at = k_next, v_at = v_next;
    look_up(tile + 1);
    const bool absent = k_at.page < 0 || v_at.page < 0;
    if (absent) k_at.page = v_at.page = -1;
    wait(shared.empty(ring.stage), ring.parity ^ 1);
    const uint32_t pieces = __ballot_sync(0xffffffffu, absent);
    if (lane < 8) {
      const uint32_t bits = __ballot_sync(0xffu, pieces >> (lane * 8 / box_rows) & 1);
      if (lane == 0) work.absent[ring.stage] = bits;
    }
    __syncwarp();
    const auto copy = [&](uint32_t to, const TensorMap& map, PageRow at, uint32_t barrier) {
      copy_pieces<kTile.dim, kKeys>({to, barrier, box_rows}, map, at, head, Keep::kFirstOut);
    };
    copy(shared.k(ring.stage), copies.k, k_at, shared.k_full(ring.stage));
    bring_tile<kTile.dim, kKeys>(
        {shared.v(ring.stage), shared.v_full(ring.stage), shared.cleared()}, s.kv_len - tile * kKeys,
        cleared_parity, [&](uint32_t barrier) { copy(shared.v(ring.stage), copies.v, v_at, barrier); });
  }
}

/// Q as the left operand of all products: rows l / 4 and l / 4 + 8 of lane l, zero where there is none. It is
/// the first that a product warp reads of memory.
template <HopperDecodeTile kTile>
__device__ inline void load_queries(const Params& p, const DecodeWork<kTile>& work,
                                    uint32_t (&q)[kTile.dim / 16][4]) {
  const Sequence& s = work.sequence;
  const PackedRows rows{p, work.block.head};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::byte* from[2];
  int columns[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = work.block.first_row + lane / 4 + 8 * half;
    from[half] = p[Role::kQ].data + 2 * row_offset(p, s, Role::kQ, rows.head(row), rows.position(row));
    columns[half] = row < s.q_len * p.group ? p.qk_dim : 0;
  }
  await_previous();
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int eight = 0; eight < kTile.dim / 8; ++eight) {
      const int column = 8 * eight + lane % 4 * 2;
      q[eight / 2][eight % 2 * 2 + half] =
          column < columns[half] ? *reinterpret_cast<const uint32_t*>(from[half] + 2 * column) : 0u;
    }
}

/// One warp of products: 16 keys of every tile of the block, then its rows to shared memory.
template <class T, HopperDecodeTile kTile>
__device__ inline void multiply_keys(const Params& p, const DecodeShared<kTile>& shared,
                                     DecodeWork<kTile>& work) {
  constexpr int kKeys = kTile.keys;
  using Tile = PanelTile<kTile.dim, kKeys>;
  const Sequence& s = work.sequence;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const bool pages = p[Role::kPageTableK].present || p[Role::kPageTableV].present;
  uint32_t q[kTile.dim / 16][4];
  load_queries<kTile>(p, work, q);
  Span keys;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = work.block.first_row + lane / 4 + 8 * half;
    const KeyRange range = band_keys(p, s, PackedRows{p, work.block.head}.position(row));
    keys.begin[half] = static_cast<int>(range.begin), keys.end[half] = static_cast<int>(range.end);
  }

  float o[1][kTile.dim / 8][4] = {};
  RunningRows<1> running;
  RingPlace<kTile.stages> ring;
  for (int tile = work.block.tile; tile < work.block.tile_end; ++tile, ring.next()) {
    const int first_key = tile * kKeys + warp * 16;
    float scores[1][2][4] = {};
    wait(shared.k_full(ring.stage), ring.parity);
    const uint32_t k = Tile{shared.k(ring.stage)}.at(warp * 16 + lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int step = 0; step < kTile.dim / 16; ++step) {
      uint32_t b[4];
      load_matrices(b, Tile::further(k, step));
      multiply_accumulate<T>(scores[0][0], q[step], b[0], b[1]);
      multiply_accumulate<T>(scores[0][1], q[step], b[2], b[3]);
    }
    if (tile * kKeys < work.block.all_begin || (tile + 1) * kKeys > work.block.all_end)
#pragma unroll
      for (int n = 0; n < 2; ++n) keys.mask(scores[0][n], first_key + 8 * n);
    if (pages) {
      const uint32_t absent = work.absent[ring.stage] >> 2 * warp;
#pragma unroll
      for (int n = 0; n < 2; ++n)
        if (absent >> n & 1)
#pragma unroll
          for (float& score : scores[0][n]) score = -kInf;
    }
    running.step<false>(scores, o, p.scale_log2);
    wait(shared.v_full(ring.stage), ring.parity);
    multiply_weights<T>(o, scores, Tile{shared.v(ring.stage)}, warp * 16);
    __syncwarp();
    if (lane == 0) arrive(shared.empty(ring.stage));
  }

  meet(kRingIsRead, 32 * kTile.warps);  // nobody reads the ring any more
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + 8 * half;
    const float sum = lanes_sum<4>(running.sum[0][half]);
    if (row >= p.q_len * p.group) continue;
    if (lane % 4 == 0) work.rows[warp][row] = {running.maximum[0][half], sum};
#pragma unroll
    for (int n = 0; n < kTile.dim / 8; ++n)
      reinterpret_cast<float2*>(shared.o(warp, row, 8 * n))[lane % 4] =
          float2{o[0][n][2 * half], o[0][n][2 * half + 1]};
  }
}

/// A row of `num_parts` parts as that of all their keys: its numbers and, in `o`, four of its columns.
template <class RowOf, class OOf>
__device__ __forceinline__ PartRow join_parts(int num_parts, float scale_log2, float4& o, RowOf row_of,
                                              OOf o_of) {
  PartRow all{-kInf, 0.0f};
#pragma unroll 8
  for (int part = 0; part < num_parts; ++part) all.maximum = fmaxf(all.maximum, row_of(part)->maximum);
  o = {};
#pragma unroll 8
  for (int part = 0; part < num_parts; ++part) {
    const PartRow row = *row_of(part);
    const float4 x = *o_of(part);
    if (row.maximum == -kInf) continue;
    const float weight = exp2_fast((row.maximum - all.maximum) * scale_log2);
    all.sum += weight * row.sum;
    o.x += weight * x.x, o.y += weight * x.y, o.z += weight * x.z, o.w += weight * x.w;
  }
  return all;
}

/// Joins the warps' rows, in the order of the warps, and sends each block of the cluster its columns.
template <HopperDecodeTile kTile>
__device__ inline void join_warps(const Params& p, const DecodeShared<kTile>& shared, DecodeWork<kTile>& work,
                                  const DecodeCluster& cluster, int num_rows) {
  constexpr int kPieces = kTile.dim / 4;
  const int share_log2 = DecodeShared<kTile>::kPiecesLog2 - cluster.blocks_log2;
  for (int at = static_cast<int>(threadIdx.x); at < num_rows * kPieces; at += kTile.threads()) {
    const int row = at / kPieces, piece = at % kPieces, to = piece >> share_log2;
    const int place = piece - (to << share_log2);
    float4 o;
    const PartRow all = join_parts(
        kTile.warps, p.scale_log2, o, [&](int warp) { return &work.rows[warp][row]; },
        [&](int warp) { return shared.o(warp, row, 4 * piece); });
    *in_block(to, shared.sent_o(cluster.rank, (row << share_log2) + place, cluster)) = o;
    if (place == 0) *in_block(to, &work.sent_rows[cluster.rank][row]) = all;
  }
}

/// Joins what the blocks of the cluster have sent, in their order, and stores it: o and stats, or, where a
/// head has more than a cluster, a part of merge_splits().
template <class T, HopperDecodeTile kTile>
__device__ inline void join_blocks(const Params& p, const DecodeShared<kTile>& shared,
                                   const DecodeWork<kTile>& work, const DecodeCluster& cluster,
                                   int num_rows) {
  const Sequence& s = work.sequence;
  const PackedRows rows{p, work.block.head};
  const TensorView& out = p[Role::kO];
  const int share_log2 = DecodeShared<kTile>::kPiecesLog2 - cluster.blocks_log2;
  for (int at = static_cast<int>(threadIdx.x); at < num_rows << share_log2; at += kTile.threads()) {
    const int row = at >> share_log2, column = 4 * (at - (row << share_log2) + (cluster.rank << share_log2));
    const int head = rows.head(row), position = rows.position(row);
    float4 o;
    const PartRow all = join_parts(
        1 << cluster.blocks_log2, p.scale_log2, o, [&](int block) { return &work.sent_rows[block][row]; },
        [&](int block) { return shared.sent_o(block, at, cluster); });
    const float maximum = all.maximum * p.scale;  // natural units; -inf stays
    RowResult result;
    if (p.merged_splits > 1) {
      if (all.sum != 0.0f) result.o_scale = 1.0f / all.sum;
    } else if (position < s.q_len) {
      result = finish_row(p, head, maximum, all.sum);
    }
    const float factor = result.o_scale;
    o = factor == 0.0f ? float4{} : float4{o.x * factor, o.y * factor, o.z * factor, o.w * factor};
    if (p.merged_splits > 1) {
      if (position >= s.q_len) continue;
      const int64_t part = (work.block.split >> cluster.blocks_log2) * packed_rows(p) + rows.index(s, row);
      if (column == 0) p.scratch.partial_rows[part] = {maximum, all.sum};
      if (column < p.v_dim) *reinterpret_cast<float4*>(p.scratch.partial_o + part * p.v_dim + column) = o;
      continue;
    }
    if (column == 0) store_stats(p, s, head, position, result.lse);
    if (column < p.v_dim && position < rows_written(out, s.q_len, p.q_len))
      *reinterpret_cast<uint2*>(reinterpret_cast<T*>(out.data) + row_offset(p, s, Role::kO, head, position) +
                                column) = uint2{pack<T>(o.x, o.y), pack<T>(o.z, o.w)};
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(hopper_decode_tile(kDim).threads(), 2)
    hopper_decode(const __grid_constant__ Params arguments, const __grid_constant__ HopperCopies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr HopperDecodeTile kTile = hopper_decode_tile(kDim);
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  __shared__ __align__(16) unsigned char argument_memory[sizeof(Params)];
  __shared__ uint64_t barrier_memory[DecodeShared<kTile>::kBarriers];
  __shared__ DecodeWork<kTile> work;
  const DecodeShared<kTile> shared{(shared_address(dynamic_shared) + 1023) / 1024 * 1024,
                                   shared_address(barrier_memory)};
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const bool leads_copies = threadIdx.x == 32 * kTile.warps;
  let_next_start();
  if (leads_copies) prefetch_map(&copies.k), prefetch_map(&copies.v);
  bring_arguments(arguments, argument_memory);
  if (leads_copies) {
    for (int stage = 0; stage < kTile.stages; ++stage) {
      init_barrier(shared.k_full(stage), 1), init_barrier(shared.v_full(stage), 1);
      init_barrier(shared.empty(stage), kTile.warps);
    }
    init_barrier(shared.cleared(), 1);
    fence_barrier_init();
  }
  __syncthreads();
  announce_to_cluster();
  const Params& p = *reinterpret_cast<const Params*>(argument_memory);
  if (warp == kTile.warps) {
    const Block block(p, p.kv_head_count, p.kv_head_begin);
    if (reads_bounds(p)) await_previous();
    warp_loads_sequence(p, block.batch, work.sequence);
    if (leads_copies) set_work(p, work.sequence, block, kDecodeRows, kTile.keys, work.block);
    __syncwarp();
    announce(kWorkIsSet, kTile.threads());
    if (p[Role::kPageTableK].present || p[Role::kPageTableV].present)
      copy_paged_keys<kTile>(p, copies, shared, work);
    else
      copy_whole_keys<kTile>(p, copies, shared, work);
  } else {
    meet(kWorkIsSet, kTile.threads());
    multiply_keys<T, kTile>(p, shared, work);
  }
  const int num_rows = p.q_len * p.group;
  __syncthreads();
  await_cluster();  // all blocks have begun
  const DecodeCluster cluster;
  join_warps<kTile>(p, shared, work, cluster, num_rows);
  announce_to_cluster();
  await_cluster();
  join_blocks<T, kTile>(p, shared, work, cluster, num_rows);
#else
  __trap();  // no recipe for another target has it
#endif
}

}  // namespace attngraph::cuda
