#include "exec/guards.hpp"

#include <algorithm>

#include "base/message.hpp"

namespace attngraph {
namespace {

/// Neighbouring bytes differ, so that a copied or shifted guard is seen, too.
std::byte pattern(int64_t offset) { return static_cast<std::byte>((offset * 37 + 0xA5) & 0xFF); }

/// The bytes between two guarded regions; -1 where the workspace begins or ends.
struct Gap {
  int64_t begin = 0, end = 0;
  int before = -1, after = -1;
};

/// Guarded regions lie in the order of booking; gap `index` lies before region `index`.
Gap gap_at(const WorkspaceLayout& layout, int index) {
  const auto regions = layout.regions();
  const int count = static_cast<int>(regions.size());
  Gap gap{0, layout.bytes(), index - 1, index < count ? index : -1};
  if (gap.before >= 0) {
    const Region& region = regions[static_cast<size_t>(gap.before)];
    gap.begin = region.offset + region.bytes;
  }
  if (gap.after >= 0) gap.end = regions[static_cast<size_t>(gap.after)].offset;
  return gap;
}

Status describe_overrun(const WorkspaceLayout& layout, const Gap& gap, int64_t first, int64_t last) {
  const int64_t past_end = gap.before < 0 ? layout.bytes() : first - gap.begin;
  const int64_t before_begin = gap.after < 0 ? layout.bytes() : gap.end - 1 - last;
  const bool is_past_end = past_end <= before_begin;
  const WorkspaceLayout::Entry& entry =
      layout.entries()[static_cast<size_t>(is_past_end ? gap.before : gap.after)];
  const int64_t reach = is_past_end ? last - gap.begin + 1 : gap.end - first;
  return fail(Code::kInternal, "workspace region ", entry.booking.name, " of node ", entry.node,
              ": was overrun by ", reach, " bytes ", is_past_end ? "past its end" : "before its begin",
              ", at workspace bytes ", first, " to ", last, "; nothing outside a region may be written");
}

}  // namespace

void write_guards(const WorkspaceLayout& layout, std::byte* base) {
  for (int i = 0; i <= static_cast<int>(layout.regions().size()); ++i) {
    const Gap gap = gap_at(layout, i);
    for (int64_t at = gap.begin; at < gap.end; ++at) base[at] = pattern(at);
  }
}

Status find_overrun(const WorkspaceLayout& layout, const std::byte* base) {
  for (int i = 0; i <= static_cast<int>(layout.regions().size()); ++i) {
    const Gap gap = gap_at(layout, i);
    const auto changed = [&](int64_t at) { return base[at] != pattern(at); };
    int64_t first = gap.begin;
    while (first < gap.end && !changed(first)) ++first;
    if (first == gap.end) continue;
    int64_t last = gap.end - 1;
    while (!changed(last)) --last;
    return describe_overrun(layout, gap, first, last);
  }
  return {};
}

}  // namespace attngraph
