#include "problem/layout.hpp"

#include <algorithm>
#include <array>
#include <cassert>

#include "base/checked.hpp"

namespace attngraph {
namespace {

__extension__ typedef __int128 Wide;  // sums of products of int64 differences fit

/// An integer unknown in [low, high] times a positive coefficient.
struct Term {
  Wide coefficient = 0, low = 0, high = 0;
};

/// At most one term an axis of two tensors; an array, because execute must not allocate.
class Terms {
 public:
  /// Adds `coefficient * z` for z in [low, high]; terms of equal coefficient become one.
  void add(Wide coefficient, Wide low, Wide high) {
    if (coefficient == 0 || (low == 0 && high == 0)) return;  // always 0
    for (Term& term : *this) {
      if (term.coefficient != coefficient) continue;
      term.low += low;
      term.high += high;
      return;
    }
    assert(count_ < kMost);
    terms_[count_++] = {coefficient, low, high};
  }

  static constexpr size_t kMost = 8;
  size_t size() const { return count_; }
  Term* begin() { return terms_.data(); }
  Term* end() { return terms_.data() + count_; }
  const Term& operator[](size_t i) const { return terms_[i]; }

 private:
  std::array<Term, kMost> terms_;
  size_t count_ = 0;
};

Wide floor_div(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }
Wide ceil_div(Wide a, Wide b) { return -floor_div(-a, b); }

/// Whether some choice of the unknowns brings base + sum into [low, high]: depth-first over the
/// terms by falling coefficient, each level cut to what the smaller terms can still reach.
class BoxSearch {
 public:
  BoxSearch(const Terms& terms, Wide low, Wide high, int& budget)
      : terms_(terms), low_(low), high_(high), budget_(budget) {
    std::sort(terms_.begin(), terms_.end(),
              [](const Term& x, const Term& y) { return x.coefficient > y.coefficient; });
    for (size_t i = terms_.size(); i-- > 0;) {
      reach_[i].low = reach_[i + 1].low + terms_[i].coefficient * terms_[i].low;
      reach_[i].high = reach_[i + 1].high + terms_[i].coefficient * terms_[i].high;
    }
  }

  Overlap from(Wide base) { return level(0, base); }

 private:
  Overlap level(size_t i, Wide base) {
    if (--budget_ < 0) return Overlap::kTooIrregular;
    if (base + reach_[i].high < low_ || base + reach_[i].low > high_) return Overlap::kNone;
    if (i == terms_.size()) return Overlap::kSome;
    const Term& term = terms_[i];
    const Wide first = std::max(term.low, ceil_div(low_ - base - reach_[i + 1].high, term.coefficient));
    const Wide last = std::min(term.high, floor_div(high_ - base - reach_[i + 1].low, term.coefficient));
    for (Wide z = first; z <= last; ++z)
      if (const Overlap found = level(i + 1, base + term.coefficient * z); found != Overlap::kNone)
        return found;
    return Overlap::kNone;
  }

  Terms terms_;
  Wide low_, high_;
  int& budget_;
  struct Reach {
    Wide low = 0, high = 0;
  };
  std::array<Reach, Terms::kMost + 1> reach_;  ///< of terms i and later
};

constexpr int kSearchBudget = 1'000'000;

/// Extent of the first axis in one call: pages, batch + 1 for cu lengths, 1 when broadcast.
int64_t actual_batch(const Problem& problem, Role role, const Bounds& bounds) {
  const int64_t declared = batch(problem[role]);
  if (role == Role::kK && problem.has(Role::kPageTableK)) return bounds.k_pages;
  if (role == Role::kV && problem.has(Role::kPageTableV)) return bounds.v_pages;
  if (role == Role::kCuSeqLenQ || role == Role::kCuSeqLenKv) return bounds.batch + 1;
  return declared == problem.batch ? bounds.batch : declared;
}

/// Whether each stride steps over all that the smaller ones span, as in every ordinary layout: then
/// no two indices meet and no search is needed.
bool strides_nest(std::span<const Axis> axes) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].extent == 1) continue;
    Wide span = 0;
    for (size_t j = 0; j < axes.size(); ++j)
      if (axes[j].stride < axes[i].stride || (axes[j].stride == axes[i].stride && j < i))
        span += Wide{axes[j].extent - 1} * axes[j].stride;
    if (axes[i].stride <= span) return false;
  }
  return true;
}

bool is_empty(std::span<const Axis> axes) {
  return std::any_of(axes.begin(), axes.end(), [](const Axis& a) { return a.extent == 0; });
}

}  // namespace

Result<int64_t> footprint_elems(std::span<const Axis> axes) {
  int64_t last = 0;
  for (const Axis& axis : axes) {
    if (axis.extent < 0 || axis.stride < 0)
      return fail(Code::kInvalidGraph, "footprint: extent ", axis.extent, " with stride ", axis.stride,
                  "; neither may be negative");
  }
  if (is_empty(axes)) return int64_t{0};
  for (const Axis& axis : axes) {
    auto sum = checked_mul_add(axis.extent - 1, axis.stride, last, "footprint");
    if (!sum.ok()) return sum;
    last = *sum;
  }
  return checked_mul_add(1, last, 1, "footprint");
}

Bounds declared_bounds(const Problem& problem) {
  return {problem.batch, problem.q_slots, problem.kv_slots, batch(problem[Role::kK]),
          batch(problem[Role::kV])};
}

StorageAxes storage_axes(const Problem& problem, Role role) {
  return storage_axes(problem, role, declared_bounds(problem));
}

StorageAxes storage_axes(const Problem& problem, Role role, const Bounds& bounds) {
  const Operand& t = problem[role];
  if (t.ragged) {
    return {{Axis{heads(t), head_stride(t)}, Axis{bounds.slots(side_of(role)), len_stride(t)},
             Axis{dim(t), dim_stride(t)}},
            3};
  }
  return {{Axis{actual_batch(problem, role, bounds), batch_stride(t)}, Axis{heads(t), head_stride(t)},
           Axis{len(t), len_stride(t)}, Axis{dim(t), dim_stride(t)}},
          4};
}

int64_t footprint_elems(const Problem& problem, Role role) {
  return footprint_elems(storage_axes(problem, role).span()).value();
}

int64_t footprint_bytes(const Problem& problem, Role role) {
  return footprint_bytes(problem, role, declared_bounds(problem));
}

int64_t footprint_bytes(const Problem& problem, Role role, const Bounds& bounds) {
  return footprint_elems(storage_axes(problem, role, bounds).span()).value() *
         element_bytes(problem[role].dtype);
}

int64_t offsets_footprint_bytes(const Operand& tensor, int64_t batch) {
  return (batch * tensor.offsets_stride + 1) * element_bytes(tensor.offsets_dtype);
}

Overlap self_overlap(std::span<const Axis> axes) {
  if (is_empty(axes) || strides_nest(axes)) return Overlap::kNone;
  // Two indices collide iff a non-zero vector of index differences has the dot product 0 with the
  // strides. Its first non-zero entry can be taken as positive.
  int budget = kSearchBudget;
  for (size_t first = 0; first < axes.size(); ++first) {
    if (axes[first].extent == 1) continue;
    if (axes[first].stride == 0) return Overlap::kSome;
    Terms terms;
    terms.add(axes[first].stride, 1, axes[first].extent - 1);
    for (const Axis& axis : axes.subspan(first + 1))
      terms.add(axis.stride, -Wide{axis.extent - 1}, axis.extent - 1);
    const Overlap found = BoxSearch(terms, 0, 0, budget).from(0);
    if (found != Overlap::kNone) return found;
  }
  return Overlap::kNone;
}

Overlap mutual_overlap(const Extent& a, const Extent& b, int64_t b_offset_bytes) {
  if (is_empty(a.axes) || is_empty(b.axes)) return Overlap::kNone;
  // Elements of A at bytes A and of B at bytes B share one iff B - A is in [1 - size_b, size_a - 1].
  Terms terms;
  for (const Axis& axis : b.axes) terms.add(Wide{axis.stride} * b.element_bytes, 0, axis.extent - 1);
  for (const Axis& axis : a.axes) terms.add(Wide{axis.stride} * a.element_bytes, -Wide{axis.extent - 1}, 0);
  int budget = kSearchBudget;
  return BoxSearch(terms, 1 - b.element_bytes, a.element_bytes - 1, budget).from(b_offset_bytes);
}

}  // namespace attngraph
