#include "cli/random_problem.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/random.hpp"
#include "graph/fields.hpp"

namespace attngraph::cli {
namespace {

/// Draws one problem. Each member function draws one group of choices.
class Drawing {
 public:
  Drawing(uint64_t seed, ProblemSize size, ProblemRows rows) : words_(seed, 0), size_(size), rows_(rows) {
    p_.seed = seed;
  }

  RandomProblem draw() {
    p_.pass = words_.one_in(2) ? Pass::kForward : Pass::kBackward;
    if (chance(8)) p_.pass = Pass::kMerge;
    p_.io = pick<DataType>({DataType::kF32, DataType::kF32, DataType::kF16, DataType::kBf16});
    draw_extents();
    draw_scores();
    draw_bias_and_mask();
    draw_dropout();
    draw_outputs();
    draw_lengths(p_.q_lengths, p_.q_len), draw_lengths(p_.kv_lengths, p_.kv_len);
    draw_pages();
    draw_sharing();
    if (p_.pass == Pass::kMerge) drop_keys();
    for (size_t i = 0; i < kNumRoles; ++i) draw_placement(static_cast<Role>(i));
    if (rows_ == ProblemRows::kAligned) align_rows();
    if (words_.one_in(12)) draw_hostile_data();
    return std::move(p_);
  }

 private:
  template <class T>
  T pick(std::initializer_list<T> list) {
    return *(list.begin() + words_.below(static_cast<int64_t>(list.size())));
  }
  bool chance(int64_t in) { return words_.one_in(in); }
  bool& has(Role role) { return p_.has[static_cast<size_t>(role)]; }
  /// A real number of `first` .. `last` in steps of 1/64, exact in every type.
  double real(int64_t first, int64_t last) {
    return static_cast<double>(words_.between(64 * first, 64 * last)) / 64;
  }

  bool is_large() {
    if (size_ != ProblemSize::kLarge) return chance(10);
    return rows_ == ProblemRows::kAligned ? !chance(3) : chance(3);  // what the fastest kernels take
  }

  int64_t extent(int64_t usual) {
    if (chance(24)) return words_.between(0, 1);
    if (is_large())  // across tiles of 64, 128 and 256
      return std::max<int64_t>(1, pick<int64_t>({64, 128, 256}) + words_.between(-3, 44));
    return words_.between(1, usual);
  }

  void draw_extents() {
    p_.batch = chance(40) ? 0 : words_.between(1, 4);
    p_.kv_heads = chance(60) ? 0 : words_.between(1, 3);
    p_.group = words_.between(1, 3);
    if (p_.kv_heads == 0 && chance(2)) p_.kv_heads = words_.between(1, 3), p_.group = 0;  // keys alone
    p_.q_len = extent(40), p_.kv_len = chance(3) ? p_.q_len : extent(40);
    p_.qk_dim = std::max<int64_t>(1, extent(40));
    p_.v_dim = chance(2) ? p_.qk_dim : extent(40);
    // The reference takes a time of this product; a sweep lives from many problems.
    const auto work = [&] { return p_.batch * p_.q_heads() * p_.q_len * p_.kv_len * (p_.qk_dim + p_.v_dim); };
    const int64_t most = size_ == ProblemSize::kLarge ? 40'000'000 : 4'000'000;
    if (work() > most) p_.batch = 1;
    if (work() > most) p_.kv_heads = 1;
    if (work() > most) p_.group = 1;
    if (work() > most) p_.kv_len = std::min<int64_t>(p_.kv_len, 70);
  }

  void draw_scores() {
    SdpaAttributes& a = p_.attributes;
    if (chance(3)) a.scale = real(-1, 1) / 2;
    if (chance(4)) a.softcap = chance(8) ? real(300, 30000) : real(1, 30);
    if (chance(4)) a.stats_base = StatsBase::k2;
    if (chance(2)) a.band.align = Align::kBottomRight;
    const int64_t reach = std::max(p_.q_len, p_.kv_len);
    if (chance(3)) a.band.left = chance(4) ? -words_.between(0, 5) : words_.between(0, reach);
    if (chance(2)) a.band.right = chance(2) ? 0 : words_.between(-5, std::min<int64_t>(reach, 20));
    has(Role::kAlibiSlopes) = chance(5);
    p_.slopes_rank = static_cast<int>(words_.between(1, 3));
    has(Role::kSink) = chance(5);
  }

  void draw_bias_and_mask() {
    has(Role::kBias) = chance(4);
    has(Role::kMask) = chance(5);
    for (bool& full : p_.bias_full) full = !chance(3);
    for (bool& full : p_.mask_full) full = !chance(3);
    p_.bias_dtype = pick<DataType>({p_.io, DataType::kF32, DataType::kF16, DataType::kBf16});
    p_.dbias_dtype = chance(2) ? p_.bias_dtype : DataType::kF32;
  }

  void draw_dropout() {
    if (!chance(5)) return;
    p_.attributes.dropout_p = pick<double>({0.0, 1.0, 0.1, 0.25, 0.5, 0.9});
    has(Role::kDropoutSeed) = true;
    has(Role::kDropoutOffset) = chance(2);
    p_.wide_seed = chance(2);
  }

  void draw_outputs() {
    p_.stats_rank3 = chance(3);
    if (p_.pass != Pass::kBackward) {
      has(Role::kStats) = !chance(3);
      return;
    }
    p_.attributes.deterministic = chance(3);
    const bool usual = chance(2);  // all three
    for (const Role role : {Role::kDq, Role::kDk, Role::kDv}) has(role) = usual || chance(2);
    has(Role::kDbias) = has(Role::kBias) && chance(2);
    has(Role::kDsink) = has(Role::kSink) && chance(2);
    has(Role::kDalibiSlopes) = has(Role::kAlibiSlopes) && chance(2);
    if (std::none_of(p_.has.begin() + static_cast<size_t>(Role::kDq), p_.has.end(), [](bool b) { return b; }))
      has(pick<Role>({Role::kDq, Role::kDk, Role::kDv})) = true;
  }

  void draw_lengths(Lengths& lengths, int64_t len) {
    lengths.form =
        pick<Lengths::Form>({Lengths::Form::kNone, Lengths::Form::kPlain, Lengths::Form::kCumulative});
    lengths.wide = chance(3);
    for (int64_t b = 0; b < p_.batch; ++b)
      lengths.by_batch.push_back(chance(6) ? 0 : chance(4) ? len : words_.between(0, len));
  }

  void draw_pages() {
    if (p_.pass == Pass::kBackward || p_.kv_len == 0 || !chance(5)) return;
    p_.page_size = chance(2) ? pick<int64_t>({1, 2, 4, 8, 16}) : words_.between(1, 20);
    if (rows_ == ProblemRows::kAligned && !chance(8))
      p_.page_size = pick<int64_t>({8, 16, 32, 48, 64, 96, 128, 256});
    has(Role::kPageTableK) = has(Role::kPageTableV) = true;
    if (chance(2))
      p_.attributes.max_seq_len_kv = p_.kv_len;
    else
      p_.kv_len = (p_.kv_len + p_.page_size - 1) / p_.page_size * p_.page_size;
  }

  /// A merge has queries alone.
  void drop_keys() {
    p_.kv_lengths.form = Lengths::Form::kNone;
    p_.page_size = 0;
    p_.sharing = RandomProblem::Sharing::kNone;
  }

  bool may_be_ragged(Role role) const {
    const Side side = side_of(role);
    if (side == Side::kNone || (side == Side::kKv && p_.page_size > 0 && role <= Role::kV)) return false;
    return (side == Side::kQ ? p_.q_lengths : p_.kv_lengths).form != Lengths::Form::kNone;
  }

  static bool is_written(Role role, Pass pass) {
    return role >= Role::kDq || (pass != Pass::kBackward && (role == Role::kO || role == Role::kStats));
  }

  static bool has_four_axes(Role role) {
    return side_of(role) != Side::kNone || role == Role::kBias || role == Role::kMask || role == Role::kDbias;
  }

  void draw_placement(Role role) {
    if (!has_four_axes(role)) return;
    Placement& place = p_[role];
    // bhsd, bshd, sbhd, and any order at all.
    place.order = pick<std::array<int, 4>>({{3, 2, 1, 0}, {3, 1, 2, 0}, {3, 1, 0, 2}});
    if (chance(8))
      for (size_t i = 3; i > 0; --i)
        std::swap(place.order[i],
                  place.order[static_cast<size_t>(words_.below(static_cast<int64_t>(i) + 1))]);
    if (chance(4))
      for (int64_t& free : place.padding) free = chance(2) ? 0 : words_.between(1, 5);
    place.ragged = may_be_ragged(role) && !chance(3);
    place.token_offsets = !chance(4);
    place.wide_offsets = chance(3);
    place.max_gap = chance(2) ? 0 : 3;
    const Lengths& lengths = side_of(role) == Side::kQ ? p_.q_lengths : p_.kv_lengths;
    place.by_lengths = place.ragged && lengths.form == Lengths::Form::kCumulative && chance(3);
    if (place.by_lengths) place.token_offsets = true, place.max_gap = 0;
    place.aligned_to_element = chance(2);
    // o and stats are written by the forward that a backward problem starts with.
    const bool is_output = is_written(role, p_.pass) || role == Role::kO || role == Role::kStats;
    const bool is_part = p_.sharing != RandomProblem::Sharing::kNone && role <= Role::kV;
    if (!is_output && !is_part && !place.ragged && chance(10))
      place.broadcast_axis = static_cast<int>(words_.below(3));
  }

  void draw_sharing() {
    if (p_.page_size == 0 && chance(4))
      p_.sharing = chance(2) ? RandomProblem::Sharing::kKv : RandomProblem::Sharing::kQkv;
    if (p_.sharing == RandomProblem::Sharing::kQkv) {  // self-attention
      p_.kv_len = p_.q_len;
      p_.kv_lengths = p_.q_lengths;
    }
    p_.shared_gradients = p_.pass == Pass::kBackward && has(Role::kDk) && has(Role::kDv) && chance(4);
    p_.spare_slots = chance(2) ? 0 : words_.between(1, 4);
  }

  void align_rows() {
    constexpr int64_t kPiece = 8, kMostDim = 256;  // elements
    if (p_.io == DataType::kF32) p_.io = chance(2) ? DataType::kF16 : DataType::kBf16;
    for (int64_t* dim : {&p_.qk_dim, &p_.v_dim})
      *dim = std::min((*dim + kPiece - 1) / kPiece * kPiece, kMostDim);
    for (size_t i = 0; i < kNumRoles; ++i) {
      const Role role = static_cast<Role>(i);
      Placement& place = p_.placement[i];
      if (side_of(role) == Side::kNone || role == Role::kStats) continue;
      std::stable_partition(place.order.begin(), place.order.end(), [](int axis) { return axis == 3; });
      for (int64_t& free : place.padding) free *= kPiece;
      place.broadcast_axis.reset();
      place.aligned_to_element = false, place.token_offsets = true;
    }
    const Placement bias = p_[Role::kBias], mask = p_[Role::kMask];
    align_matrix(Role::kBias, p_.bias_full, kPiece);
    align_matrix(Role::kMask, p_.mask_full, 2 * kPiece);  // elements of one byte
    for (size_t i = 0; i < kNumRoles; ++i) {
      const Role role = static_cast<Role>(i);
      if (side_of(role) == Side::kNone) continue;
      p_[role].ragged = p_[offsets_source(role)].ragged;
      if (const auto primal = primal_of(role)) p_[role] = p_[*primal];
    }
    p_.like_primals = p_.sharing == RandomProblem::Sharing::kNone && !p_.shared_gradients;
    if (!chance(8)) tame_scores();
    if (chance(4)) p_[Role::kBias] = bias;
    if (chance(4)) p_[Role::kMask] = mask;
  }

  void align_matrix(Role role, const std::array<bool, 4>& full, int64_t piece) {
    Placement& place = p_[role];
    std::stable_partition(place.order.begin(), place.order.end(), [](int axis) { return axis == 3; });
    place.padding.fill(0);
    place.padding[0] = (piece - (full[3] ? p_.kv_len : 1) % piece) % piece;
    place.broadcast_axis.reset();
    place.aligned_to_element = false;
  }

  /// The tensor that decides for its side whether it is ragged.
  static Role offsets_source(Role role) { return side_of(role) == Side::kQ ? Role::kQ : Role::kK; }

  /// Leaves out what few engines for tensor cores take.
  void tame_scores() {
    SdpaAttributes& a = p_.attributes;
    if (a.scale) a.scale = std::abs(*a.scale) + 0.125;
    for (auto* side : {&a.band.left, &a.band.right})
      if (*side && !chance(6)) *side = std::abs(**side);
    a.dropout_p = 0;
    for (const Role role : {Role::kDropoutSeed, Role::kDropoutOffset, Role::kDalibiSlopes}) has(role) = false;
    if (p_.pass == Pass::kBackward) has(Role::kDk) = true;
  }

  /// Lengths, offsets and pages that no caller should write. Outputs keep disjoint sequences.
  void draw_hostile_data() {
    constexpr int64_t kHuge = int64_t{1} << 30;  // fits int32
    const auto spoil = [&](Lengths& lengths) {
      if (!lengths.by_batch.empty() && chance(2))
        lengths.by_batch[0] = pick<int64_t>({-1, -kHuge, kHuge, 1000});
    };
    spoil(p_.q_lengths), spoil(p_.kv_lengths);
    for (size_t i = 0; i < kNumRoles; ++i)
      if (Placement& place = p_.placement[i]; place.ragged && !place.by_lengths && chance(3)) {
        place.hostile_offset = pick<int64_t>({-1, -kHuge, kHuge, kHuge - 1});
        const Role role = static_cast<Role>(i);
        const bool is_input =
            role <= Role::kV || role == Role::kDo || (role >= Role::kOA && role <= Role::kStatsB);
        if (is_input && !p_.like_primals && chance(2))
          place.hostile_offset = words_.between(0, 40);  // cut, or another's rows
      }
    if (p_.page_size > 0 && chance(2)) p_.hostile_page = pick<int64_t>({-1, -kHuge, kHuge, 1000});
  }

  Words words_;
  ProblemSize size_;
  ProblemRows rows_;
  RandomProblem p_;
};

}  // namespace

bool RandomProblem::is_ragged(Side side) const {
  for (size_t i = 0; i < kNumRoles; ++i)
    if (side_of(static_cast<Role>(i)) == side && placement[i].ragged) return true;
  return false;
}

RandomProblem draw_problem(uint64_t seed, ProblemSize size, ProblemRows rows) {
  return Drawing(seed, size, rows).draw();
}

}  // namespace attngraph::cli
