#pragma once

#include "engine/cuda/kernels/hopper_order.cuh"

/// The copying warps of the forward for sm_90a, and how they meet with those that compute.
namespace attngraph::cuda {

/// What the copying warp tells the others about a tile. Where tiles are joined it writes the tile behind the
/// next one when both warpgroups have their last products with Q of one, while they may still store the two
/// before that.
struct HopperWork {
  static constexpr int kSlots = 5;

  Sequence sequence;
  int head;  ///< below 0: the block has no more tiles
  int first_row;
  MapPlace k_place, v_place;
  int begin, end;                             ///< tiles of keys that some row sees
  int low, high;                              ///< row r sees keys r + low .. r + high - 1 of the sequence
  int full_begin, full_end;                   ///< keys that every row sees
  static constexpr int kAbsent = 0x7fffffff;  ///< full_begin of a sequence with absent pages
};

template <HopperTile kTile>
struct HopperShared {
  uint32_t q, k, v, matrices;  ///< addresses, each of whole panels

  __device__ explicit HopperShared(uint32_t base) {
    q = (base + 1023) / 1024 * 1024;
    k = q + kTile.q_buffers() * kTile.q_bytes();
    v = k + kTile.k_stages * kTile.k_bytes();
    matrices = v + kTile.v_stages * kTile.v_bytes();
  }
  /// The rows of a warpgroup in a buffer of Q.
  __device__ uint32_t q_of(int buffer, int group) const {
    return q +
           static_cast<uint32_t>(buffer * kTile.q_bytes() + group * HopperTile::group_rows * kPanelRowBytes);
  }
};

/// Addresses of the barriers that a tile passes through. Where tiles are joined, each warpgroup's rows of a
/// buffer of Q have a pair of their own, so that it begins its next tile before the other has ended this one.
template <HopperTile kTile>
struct HopperBarriers {
  static constexpr int kQPairs = kTile.joins() ? kTile.q_buffers() * kTile.consumers : 1;
  static constexpr int kStages = kTile.k_stages > kTile.v_stages ? kTile.k_stages : kTile.v_stages;
  static constexpr int kWorks = kTile.joins() ? HopperWork::kSlots : 0;
  static constexpr int kCount = 2 * kQPairs + 1 + 4 * kStages + 2 * kWorks;
  uint32_t base;

  __device__ uint32_t q_full(int pair = 0) const { return base + 16 * pair; }
  __device__ uint32_t q_empty(int pair = 0) const { return base + 16 * pair + 8; }
  __device__ uint32_t q_full(int buffer, int group) const { return q_full(buffer * kTile.consumers + group); }
  __device__ uint32_t q_empty(int buffer, int group) const {
    return q_empty(buffer * kTile.consumers + group);
  }
  /// A tail of V that is still to be zeroed.
  __device__ uint32_t cleared() const { return base + 16 * kQPairs; }
  __device__ uint32_t k_full(int stage) const { return cleared() + 8 + 32 * stage; }
  __device__ uint32_t k_empty(int stage) const { return cleared() + 16 + 32 * stage; }
  __device__ uint32_t v_full(int stage) const { return cleared() + 24 + 32 * stage; }
  __device__ uint32_t v_empty(int stage) const { return cleared() + 32 + 32 * stage; }
  /// The warps that copy K and V may read a slot of HopperWork; the others learn it from q_full.
  __device__ uint32_t work_full(int slot) const { return k_full(kStages) + 16 * slot; }
  __device__ uint32_t work_empty(int slot) const { return k_full(kStages) + 16 * slot + 8; }

  /// `work_readers`: warps that copy K or V.
  __device__ void init(int work_readers) const {
    constexpr int kGroupWarps = kWarpgroup / 32, kWarps = kGroupWarps * kTile.consumers;
    for (int pair = 0; pair < kQPairs; ++pair)
      init_barrier(q_full(pair), 1), init_barrier(q_empty(pair), kTile.joins() ? kGroupWarps : kWarps);
    init_barrier(cleared(), 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(k_full(stage), 1), init_barrier(k_empty(stage), kWarps);
      init_barrier(v_full(stage), 1), init_barrier(v_empty(stage), kWarps);
    }
    for (int slot = 0; slot < kWorks; ++slot)
      init_barrier(work_full(slot), 1), init_barrier(work_empty(slot), work_readers);
    fence_barrier_init();
  }
};

/// Whether one of the keys `begin` .. `end` - 1 is on a page outside of its container; pages are whole pieces
/// of `box_rows` keys.
__device__ inline bool warp_lacks_pages(const Params& p, const Sequence& s, int begin, int end,
                                        int box_rows) {
  bool lacks = false;
#pragma unroll 1  // registers are few
  for (int key = begin + static_cast<int>(threadIdx.x) % 32 * box_rows; key < end; key += 32 * box_rows)
    lacks |= (page_row<Role::kK>(p, s, key).page < 0) | (page_row<Role::kV>(p, s, key).page < 0);
  return __any_sync(0xffffffffu, lacks);
}

/// Writes what a tile is; a whole warp calls it. `before`: the block's tile before, or null.
template <HopperTile kTile>
__device__ inline void describe_tile(const Params& p, const HopperPlace& place, int box_rows,
                                     const HopperWork* before, HopperWork& w) {
  constexpr int kRows = kTile.rows, kKeys = kTile.keys;
  if (place.head < 0) {
    if (threadIdx.x % 32 == 0) w.head = -1, w.begin = w.end = 0;
    return __syncwarp();
  }
  warp_loads_sequence(p, place.batch, w.sequence);
  const Sequence& s = w.sequence;
  const int first = place.tile * kRows, last = first + kRows - 1;
  const KeySpan seen = span_seen(p, s, first, last);
  const int begin = seen.begin / kKeys, end = (seen.end + kKeys - 1) / kKeys;
  bool lacks_pages = false;
  if (p[Role::kPageTableK].present) {
    const bool is_known = before != nullptr && before->sequence.batch == place.batch &&
                          before->full_begin != HopperWork::kAbsent && before->begin <= begin &&
                          before->end >= end;
    lacks_pages = !is_known && warp_lacks_pages(p, s, begin * kKeys, min(end * kKeys, s.kv_len), box_rows);
  }
  if (threadIdx.x % 32 == 0) {
    w.head = place.head, w.first_row = first;
    w.k_place = map_place(p, s, Role::kK), w.v_place = map_place(p, s, Role::kV);
    w.begin = begin, w.end = max(begin, end);
    w.full_begin =
        lacks_pages ? HopperWork::kAbsent : static_cast<int>(band_keys(p, s, min(last, s.q_len - 1)).begin);
    w.full_end = static_cast<int>(band_keys(p, s, first).end);
    // Cut where more changes nothing.
    const int64_t offset = p.band.offset(s.q_len, s.kv_len), least = -s.q_len, most = s.kv_len;
    w.low = static_cast<int>(p.band.left ? std::clamp(offset - *p.band.left, least, most) : least);
    w.high = static_cast<int>(p.band.right ? std::clamp(offset + *p.band.right + 1, least, most) : most);
  }
  __syncwarp();
}

/// Copies tiles of K or V through their ring; a whole warp calls it.
template <HopperTile kTile, Role kRole>
struct HopperStream {
  static constexpr bool kIsK = kRole == Role::kK;
  static constexpr int kDim = kIsK ? kTile.dim : kTile.v_dim;

  const HopperCopies& copies;
  const HopperShared<kTile>& shared;
  const HopperBarriers<kTile>& barriers;
  RingPlace<kIsK ? kTile.k_stages : kTile.v_stages> ring;
  uint32_t cleared_parity = 0;
  PageWindow<kRole> pages;

  /// Before the tiles of w, the last first.
  __device__ void begin(const HopperWork& w) { pages.first_tile = w.end; }
  __device__ void copy(const Params& p, const HopperWork& w, int tile) {
    constexpr int kKeys = kTile.keys;
    const Sequence& s = w.sequence;
    const int piece_rows = copies.key_box_rows;
    const MapPlace& place = kIsK ? w.k_place : w.v_place;
    PageRow at{place.batch, place.row + tile * kKeys};
    if (p[Role::kPageTableK].present) at = pages.find(p, s, tile, kKeys / piece_rows, piece_rows);
    const uint32_t to =
        kIsK ? shared.k + ring.stage * kTile.k_bytes() : shared.v + ring.stage * kTile.v_bytes();
    const uint32_t full = kIsK ? barriers.k_full(ring.stage) : barriers.v_full(ring.stage);
    const int kv_head = static_cast<int>(p.by_group.quotient(static_cast<uint32_t>(w.head)));
    wait(kIsK ? barriers.k_empty(ring.stage) : barriers.v_empty(ring.stage), ring.parity ^ 1);
    const auto copy_to = [&](uint32_t barrier) {
      copy_pieces<kDim, kKeys>({to, barrier, piece_rows}, kIsK ? copies.k : copies.v, at, kv_head,
                               Keep::kLastOut);
    };
    if constexpr (kIsK)
      copy_to(full);
    else
      bring_tile<kDim, kKeys>({to, full, barriers.cleared()}, s.kv_len - tile * kKeys, cleared_parity,
                              copy_to);
    ring.next();
  }
  /// All of them, some.
  __device__ void copy_all(const Params& p, const HopperWork& w) {
    begin(w);
    for (int tile = w.end - 1, first = w.begin; tile >= first; --tile) copy(p, w, tile);
  }
};

/// One warp that copies K and V, V a tile of keys behind K.
template <HopperTile kTile>
struct HopperKeys {
  HopperStream<kTile, Role::kK> k;
  HopperStream<kTile, Role::kV> v;

  __device__ HopperKeys(const HopperCopies& copies, const HopperShared<kTile>& shared,
                        const HopperBarriers<kTile>& barriers)
      : k{copies, shared, barriers}, v{copies, shared, barriers} {}

  /// The keys of a tile of rows, some; calls `behind_first` after the first copy of K.
  template <class Behind>
  __device__ void copy(const Params& p, const HopperWork& w, Behind&& behind_first) {
    const int begin = w.begin, end = w.end;
    k.begin(w), v.begin(w);
    for (int tile = end - 1; tile >= begin; --tile) {
      k.copy(p, w, tile);
      if (tile + 1 < end)
        v.copy(p, w, tile + 1);
      else
        behind_first();
    }
    v.copy(p, w, begin);
  }
};

/// The copying warp: all tiles of the block.
template <HopperTile kTile>
__device__ inline void copy_tiles(const Params& p, const HopperCopies& copies,
                                  const HopperShared<kTile>& shared, const HopperBarriers<kTile>& barriers,
                                  HopperWork (&work)[HopperWork::kSlots]) {
  const bool leader = threadIdx.x == 0;
  HopperTurns<kTile.rows> turns(p, copies);
  HopperKeys<kTile> keys(copies, shared, barriers);
  const HopperWork* before = nullptr;
  bool is_tile = true;
  for (int turn = 0; is_tile; ++turn) {
    HopperWork& w = work[turn % HopperWork::kSlots];
    const HopperPlace place = turns.next();
    is_tile = place.head >= 0;
    describe_tile<kTile>(p, place, copies.key_box_rows, before, w);
    before = &w;
    const bool has_keys = w.begin < w.end;
    const auto copy_q = [&] {
      wait(barriers.q_empty(), static_cast<uint32_t>(turn & 1) ^ 1);
      __syncwarp();  // none still waits when the leader lets the phase after this one end
      if (!leader) return;
      if (!has_keys) return arrive(barriers.q_full());
      arrive_expecting(barriers.q_full(), kTile.q_bytes());
      copy_panels<kTile.dim, kTile.rows>(shared.q, copies.q, map_place(p, w.sequence, Role::kQ), w.first_row,
                                         w.head, barriers.q_full(), Keep::kFirstOut);
    };
    if (has_keys) keys.copy(p, w, copy_q);
    if (!has_keys) copy_q();
  }
}

/// The same where tiles are joined: one warp copies Q and says what a tile is ...
template <HopperTile kTile>
__device__ inline void copy_queries(const Params& p, const HopperCopies& copies,
                                    const HopperShared<kTile>& shared, const HopperBarriers<kTile>& barriers,
                                    HopperWork (&work)[HopperWork::kSlots]) {
  const bool leader = threadIdx.x % 32 == 0;
  RingPlace<kTile.q_buffers()> q;
  RingPlace<HopperWork::kSlots> slot;
  HopperTurns<kTile.rows> turns(p, copies);
  const HopperWork* before = nullptr;
  for (bool is_tile = true; is_tile;) {
    HopperWork& w = work[slot.stage];
    const HopperPlace place = turns.next();
    is_tile = place.head >= 0;
    wait(barriers.work_empty(slot.stage), slot.parity ^ 1);
    describe_tile<kTile>(p, place, copies.key_box_rows, before, w);
    before = &w;
    if (leader) arrive(barriers.work_full(slot.stage));
    for (int group = 0; group < kTile.consumers; ++group) {
      const uint32_t full = barriers.q_full(q.stage, group);
      wait(barriers.q_empty(q.stage, group), q.parity ^ 1);
      __syncwarp();  // none still waits when the leader lets the phase after this one end
      if (!leader) continue;
      if (w.begin == w.end) {
        arrive(full);
        continue;
      }
      arrive_expecting(full, kTile.q_bytes() / kTile.consumers);
      copy_panels<kTile.dim, kTile.rows>(
          shared.q_of(q.stage, group), copies.q, map_place(p, w.sequence, Role::kQ),
          w.first_row + group * HopperTile::group_rows, w.head, full, Keep::kFirstOut);
    }
    q.next(), slot.next();
  }
}

/// ... and by `copy(work)` another copies the keys of each tile that has some.
template <HopperTile kTile, class Copy>
__device__ inline void copy_keys(const HopperBarriers<kTile>& barriers,
                                 const HopperWork (&work)[HopperWork::kSlots], Copy&& copy) {
  RingPlace<HopperWork::kSlots> slot;
  for (;;) {
    wait(barriers.work_full(slot.stage), slot.parity);
    const HopperWork& w = work[slot.stage];
    if (w.head < 0) return;
    if (w.begin < w.end) copy(w);
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barriers.work_empty(slot.stage));
    slot.next();
  }
}
/// The copying warps where tiles are joined. Over pages keys come in so many pieces that K and V have a warp
/// each.
template <HopperTile kTile>
__device__ inline void copy_joined_tiles(const Params& p, const HopperCopies& copies,
                                         const HopperShared<kTile>& shared,
                                         const HopperBarriers<kTile>& barriers,
                                         HopperWork (&work)[HopperWork::kSlots]) {
  const uint32_t warp = uniform(threadIdx.x / 32);
  const bool is_paged = p[Role::kPageTableK].present;
  if (warp == 1) copy_queries<kTile>(p, copies, shared, barriers, work);
  if (warp == 0 && !is_paged) {
    HopperKeys<kTile> keys(copies, shared, barriers);
    copy_keys<kTile>(barriers, work, [&](const HopperWork& w) { keys.copy(p, w, [] {}); });
  }
  if (warp == 0 && is_paged) {
    HopperStream<kTile, Role::kK> k{copies, shared, barriers};
    copy_keys<kTile>(barriers, work, [&](const HopperWork& w) { k.copy_all(p, w); });
  }
  if (warp == 2 && is_paged) {
    HopperStream<kTile, Role::kV> v{copies, shared, barriers};
    copy_keys<kTile>(barriers, work, [&](const HopperWork& w) { v.copy_all(p, w); });
  }
}

}  // namespace attngraph::cuda
