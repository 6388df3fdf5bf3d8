#include "engine/reference/summed_gradient.hpp"

#include <algorithm>

namespace attngraph::reference {
namespace {

bool has_every_head(const Problem& problem, Role role) {
  return batch(problem[role]) == problem.batch && heads(problem[role]) == problem.q_heads;
}

}  // namespace

std::array<int64_t, 4> SummedGradient::accumulators(const Problem& problem, Role role) {
  const Operand& t = problem[role];
  if (!t.present) return {0, 0, 0, 0};
  if (has_every_head(problem, role)) return {1, 1, len(t), dim(t)};
  const bool summed_over_batch = batch(t) == 1 && problem.batch != 1;
  return {batch(t), summed_over_batch ? std::max<int64_t>(problem.q_heads, 1) : heads(t), len(t), dim(t)};
}

SummedGradient::SummedGradient(const Launch& launch, Role role, RegionId region)
    : launch_(launch),
      role_(role),
      wanted_(launch.problem.has(role)),
      complete_with_head_(has_every_head(launch.problem, role)),
      extent_(accumulators(launch.problem, role)),
      sums_(launch.doubles(region)) {}

double* SummedGradient::tile(int64_t batch, int64_t head) const {
  const int64_t at_batch = extent_[0] == 1 ? 0 : batch, at_head = extent_[1] == 1 ? 0 : head;
  return sums_ + (at_batch * extent_[1] + at_head) * extent_[2] * extent_[3];
}

void SummedGradient::begin_slice() {
  if (wanted_ && launch_.slice.is_first)
    std::fill_n(sums_, extent_[0] * extent_[1] * extent_[2] * extent_[3], 0.0);
}

void SummedGradient::begin_head(int64_t batch, int64_t head) {
  if (!wanted_) return;
  tile_ = tile(batch, head);
  if (complete_with_head_) std::fill_n(tile_, extent_[2] * extent_[3], 0.0);
}

void SummedGradient::add(Place at, double term) {
  if (!wanted_) return;
  tile_[(extent_[2] == 1 ? 0 : at.row) * extent_[3] + (extent_[3] == 1 ? 0 : at.key)] += term;
}

void SummedGradient::end_head(int64_t batch, int64_t head) {
  if (wanted_ && complete_with_head_) write_tile(batch, head);
}

void SummedGradient::end_slice() {
  if (!wanted_ || complete_with_head_ || !launch_.slice.is_last) return;
  const StorageAxes storage = storage_axes(launch_.problem, role_, launch_.buffers.bounds);
  for (int64_t b = 0; b < storage.axes[0].extent; ++b)
    for (int64_t h = 0; h < storage.axes[1].extent; ++h) {
      if (heads(launch_.problem[role_]) == 1)
        for (int64_t other = 1; other < extent_[1]; ++other)
          for (int64_t i = 0; i < extent_[2] * extent_[3]; ++i) tile(b, 0)[i] += tile(b, other)[i];
      write_tile(b, h);
    }
}

void SummedGradient::write_tile(int64_t batch, int64_t head) {
  const Rows gradient(launch_.problem, launch_.buffers, role_, batch);
  for (int64_t i = 0; i < extent_[2]; ++i) gradient.write_row(head, i, tile(batch, head) + i * extent_[3]);
}

}  // namespace attngraph::reference
