#pragma once

#include "engine/cuda/kernels/hopper_tiles.cuh"

/// The order in which blocks of the forward for sm_90a take their tiles of query rows.
namespace attngraph::cuda {

/// Places in the order of the launch, as HopperPlace has them, of sequences that differ in length. A section
/// is some sequences, a lane each, those with more keys first, and some of their heads: all their last tiles,
/// then all the last but one, and so on; behind these the padding of dense outputs. A whole warp calls all of
/// it.
template <int kRows>
class HopperLevels {
 public:
  __device__ void begin(const Params& p, const HopperCopies& copies) {
    section_ = 0;
    before_ = 0;
    begin_section(p, copies);
  }

  /// Place `index`, not below that of the call before; its head is below 0 behind the last tile.
  __device__ HopperPlace find(const Params& p, const HopperCopies& copies, int index) {
    for (int count = count_; index >= before_ + count; count = count_) {
      before_ += count;
      if (step_ + 1 < steps_) {
        ++step_;
        count_ = __popc(__ballot_sync(kAll, has_tile())) * num_heads_;
      } else {
        ++section_;
        if (!begin_section(p, copies)) return {};
      }
    }
    const unsigned having = __ballot_sync(kAll, has_tile()), before = having & ((1u << threadIdx.x % 32) - 1);
    const int at = index - before_, rank = at / num_heads_;
    const int lane = __ffs(__ballot_sync(kAll, has_tile() && __popc(before) == rank)) - 1;
    HopperPlace place;
    place.tile = tile(), place.head = first_head_ + at % num_heads_;
    place.batch = __shfl_sync(kAll, batch_, lane);
    return place;
  }

 private:
  static constexpr unsigned kAll = 0xffffffffu;

  __device__ int tile() const { return step_ < highest_ ? highest_ - 1 - step_ : lowest_ + step_ - highest_; }
  __device__ bool has_tile() const {
    return batch_ >= 0 && (step_ < highest_ ? tile() < tiles_ : tile() >= tiles_);
  }

  __device__ bool begin_section(const Params& p, const HopperCopies& copies) {
    const int heads = p.kv_head_count * p.group, lane = static_cast<int>(threadIdx.x) % 32;
    const int of_heads = (heads + copies.heads_together - 1) / copies.heads_together;
    const int of_batch = (p.batch_count + copies.sequences_together - 1) / copies.sequences_together;
    if (section_ >= of_heads * of_batch) return false;
    const int first = section_ / of_heads * copies.sequences_together,
              first_head = section_ % of_heads * copies.heads_together;
    first_head_ = p.kv_head_begin * p.group + first_head;
    num_heads_ = min(copies.heads_together, heads - first_head);
    const bool is_one = lane < min(copies.sequences_together, p.batch_count - first);
    const int batch = p.batch_begin + first + lane;
    const int keys = is_one ? bound_len(p, Role::kSeqLenKv, Role::kCuSeqLenKv, p.kv_len, batch) : -1;
    batch_ = -1;
    int rank = 0;
#pragma unroll 1
    for (int other = 0; other < copies.sequences_together; ++other) {
      const int others = __shfl_sync(kAll, keys, other);
      rank += others > keys || (others == keys && other < lane);
    }
#pragma unroll 1
    for (int other = 0; other < copies.sequences_together; ++other)
      if (__shfl_sync(kAll, is_one ? rank : -1, other) == lane) batch_ = p.batch_begin + first + other;
    tiles_ = batch_ < 0
                 ? 0
                 : (bound_len(p, Role::kSeqLenQ, Role::kCuSeqLenQ, p.q_len, batch_) + kRows - 1) / kRows;
    highest_ = __reduce_max_sync(kAll, tiles_);
    lowest_ = __reduce_min_sync(kAll, batch_ < 0 ? p.row_tiles : tiles_);
    const TensorView& stats = p[Role::kStats];
    const bool has_padding = !p[Role::kO].ragged || (stats.present && !stats.ragged);
    steps_ = highest_ + (has_padding ? p.row_tiles - lowest_ : 0);
    step_ = 0;
    count_ = steps_ > 0 ? __popc(__ballot_sync(kAll, has_tile())) * num_heads_ : 0;
    return true;
  }

  int section_, before_, count_;  ///< places before this level and in it
  int step_, steps_;              ///< levels of the section, those of padding behind the others
  int first_head_, num_heads_, highest_, lowest_;
  int batch_, tiles_;  ///< of the lane's sequence; -1: it has none
};

/// The places of a block, turn after turn; a whole warp calls it.
template <int kRows>
class HopperTurns {
 public:
  __device__ HopperTurns(const Params& p, const HopperCopies& copies) : p_(p), copies_(copies) {
    if (copies.sequences_together > 0) levels_.begin(p, copies);
  }
  /// Its head is below 0 behind the last tile.
  __device__ HopperPlace next() {
    const int index = tile_of_turn(turn_++, made_anew(blockIdx.x));  // registers are few
    if (copies_.sequences_together > 0) return levels_.find(p_, copies_, index);
    if (index >= copies_.tiles) return {};
    return HopperPlace(p_, copies_, p_.kv_head_count * p_.group, p_.kv_head_begin * p_.group, index);
  }

 private:
  const Params& p_;
  const HopperCopies& copies_;
  HopperLevels<kRows> levels_;
  int turn_ = 0;
};

}  // namespace attngraph::cuda
