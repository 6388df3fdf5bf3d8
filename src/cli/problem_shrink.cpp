#include <algorithm>

#include "cli/random_problem.hpp"

namespace attngraph::cli {
namespace {

using Change = void (*)(RandomProblem&);

void halve(int64_t& extent) { extent = (extent + 1) / 2; }
void less(int64_t& extent) { extent -= extent > 1 ? 1 : 0; }

void cut_lengths(Lengths& lengths, int64_t batch, int64_t len) {
  lengths.by_batch.resize(static_cast<size_t>(batch));
  for (int64_t& given : lengths.by_batch)
    if (given <= 1000) given = std::min(given, len);  // a hostile one stays
}

/// One member each to its simplest value, or an extent down; never back, so that shrinking ends. The
/// first change does the most.
constexpr Change kChanges[] = {
    [](RandomProblem& p) { halve(p.batch); },
    [](RandomProblem& p) { halve(p.kv_heads); },
    [](RandomProblem& p) { p.group = 1; },
    [](RandomProblem& p) { halve(p.q_len); },
    [](RandomProblem& p) { halve(p.kv_len); },
    [](RandomProblem& p) { halve(p.qk_dim); },
    [](RandomProblem& p) { halve(p.v_dim); },
    [](RandomProblem& p) {
      p.has.fill(false), p.has[static_cast<size_t>(Role::kDq)] = p.pass == Pass::kBackward;
    },
    [](RandomProblem& p) { p.placement.fill(Placement{}); },
    [](RandomProblem& p) { p.sharing = RandomProblem::Sharing::kNone; },
    [](RandomProblem& p) { p.shared_gradients = false; },
    [](RandomProblem& p) { p.attributes.band = Band{}; },
    [](RandomProblem& p) { p.attributes.softcap = 0; },
    [](RandomProblem& p) { p.attributes.scale.reset(); },
    [](RandomProblem& p) { p.attributes.dropout_p = 0; },
    [](RandomProblem& p) { p.attributes.stats_base = StatsBase::kE; },
    [](RandomProblem& p) { p.attributes.deterministic = false; },
    [](RandomProblem& p) { p.attributes.band.left.reset(); },
    [](RandomProblem& p) { p.attributes.band.right.reset(); },
    [](RandomProblem& p) { p.attributes.band.align = Align::kTopLeft; },
    [](RandomProblem& p) { p.io = p.bias_dtype = p.dbias_dtype = DataType::kF32; },
    [](RandomProblem& p) {
      p.page_size = 0;
      p.attributes.max_seq_len_kv.reset();
      p.has[static_cast<size_t>(Role::kPageTableK)] = p.has[static_cast<size_t>(Role::kPageTableV)] = false;
    },
    [](RandomProblem& p) { p.hostile_page = 0; },
    [](RandomProblem& p) { p.spare_slots = 0; },
    [](RandomProblem& p) { p.bias_full.fill(false); },
    [](RandomProblem& p) { p.mask_full.fill(false); },
    [](RandomProblem& p) { p.stats_rank3 = false; },
    [](RandomProblem& p) { p.slopes_rank = 1; },
    [](RandomProblem& p) { p.q_lengths.wide = p.kv_lengths.wide = p.wide_seed = false; },
    [](RandomProblem& p) { less(p.batch); },
    [](RandomProblem& p) { less(p.kv_heads); },
    [](RandomProblem& p) { less(p.q_len); },
    [](RandomProblem& p) { less(p.kv_len); },
    [](RandomProblem& p) { less(p.qk_dim); },
    [](RandomProblem& p) { less(p.v_dim); },
};

/// Lengths that no ragged tensor needs any more.
void drop_lengths(RandomProblem& p) {
  if (!p.is_ragged(Side::kQ)) p.q_lengths.form = Lengths::Form::kNone;
  if (!p.is_ragged(Side::kKv)) p.kv_lengths.form = Lengths::Form::kNone;
}

void make_consistent(RandomProblem& p) {
  if (p.page_size > 0 && !p.attributes.max_seq_len_kv)
    p.kv_len = (p.kv_len + p.page_size - 1) / p.page_size * p.page_size;
  if (p.attributes.max_seq_len_kv) p.attributes.max_seq_len_kv = p.kv_len;
  if (p.sharing == RandomProblem::Sharing::kQkv) p.kv_len = p.q_len = std::min(p.q_len, p.kv_len);
  cut_lengths(p.q_lengths, p.batch, p.q_len);
  cut_lengths(p.kv_lengths, p.batch, p.kv_len);
}

/// A draw that differs from `p`, appended.
void append(std::vector<RandomProblem>& list, const RandomProblem& p, RandomProblem changed) {
  make_consistent(changed);
  if (!(changed == p)) list.push_back(std::move(changed));
}

}  // namespace

std::vector<RandomProblem> simpler(const RandomProblem& problem) {
  std::vector<RandomProblem> list;
  const auto add = [&](auto&& change) {
    RandomProblem changed = problem;
    change(changed);
    append(list, problem, std::move(changed));
  };
  for (const Change change : kChanges) add(change);
  add(drop_lengths);
  for (size_t i = 0; i < kNumRoles; ++i) {
    add([i](RandomProblem& p) { p.has[i] = false; });
    add([i](RandomProblem& p) { p.placement[i] = Placement{}; });
    add([i](RandomProblem& p) { p.placement[i].by_lengths = false; });
    add([i](RandomProblem& p) { p.placement[i].padding = {}, p.placement[i].max_gap = 0; });
    add([i](RandomProblem& p) {
      p.placement[i].broadcast_axis.reset(), p.placement[i].hostile_offset.reset();
    });
  }
  return list;
}

}  // namespace attngraph::cli
