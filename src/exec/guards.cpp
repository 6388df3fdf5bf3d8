#include "exec/guards.hpp"

#include <vector>

#include "base/message.hpp"
#include "device/device.hpp"

namespace attngraph {
namespace {

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

Status write_guards(const WorkspaceLayout& layout, MemoryKind memory, std::byte* base, void* stream) {
  for (int i = 0; i <= static_cast<int>(layout.regions().size()); ++i) {
    const Gap gap = gap_at(layout, i);
    if (memory == MemoryKind::kCuda)
      ATTNGRAPH_RETURN_IF_ERROR(device::write_guard(base, gap.begin, gap.end, stream));
    else
      for (int64_t at = gap.begin; at < gap.end; ++at) base[at] = guard_byte(at);
  }
  return {};
}

Status find_overrun(const WorkspaceLayout& layout, MemoryKind memory, const std::byte* base) {
  for (int i = 0; i <= static_cast<int>(layout.regions().size()); ++i) {
    const Gap gap = gap_at(layout, i);
    std::vector<std::byte> copy;
    const std::byte* bytes = base + gap.begin;
    if (memory == MemoryKind::kCuda) {
      copy.resize(static_cast<size_t>(gap.end - gap.begin));
      ATTNGRAPH_RETURN_IF_ERROR(device::read(bytes, copy));
      bytes = copy.data();
    }
    const auto changed = [&](int64_t at) { return bytes[at - gap.begin] != guard_byte(at); };
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
