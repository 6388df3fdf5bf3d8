#include "exec/check.hpp"

#include <algorithm>

#include "base/message.hpp"
#include "plan/call.hpp"
#include "plan/planner.hpp"

namespace attngraph {
namespace {

uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

bool intervals_meet(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  return address(a) < address(b) + static_cast<uintptr_t>(b_bytes) &&
         address(b) < address(a) + static_cast<uintptr_t>(a_bytes);
}

class Checker {
 public:
  Checker(const PlanState& state, const PointerTable& pointers, const CallSizes& sizes)
      : state_(state), core_(*state.core), pointers_(pointers), sizes_(sizes) {}

  Status slot(size_t index) const {
    const SlotFacts& facts = core_.slots[index];
    if (facts.is_virtual) return {};
    const void* data = pointers_.data[index];
    const int64_t bytes = pointers_.bytes == nullptr ? PointerTable::kNotTold : pointers_.bytes[index];
    if (bytes == PointerTable::kNotBound) return bad(index, "is not bound; execute needs its pointer");
    const int64_t needed = footprint_bytes(index);
    if (needed == 0) return {};  // nothing is read or written
    if (data == nullptr) return bad(index, "is bound to null; needs ", needed, " bytes");
    if (bytes >= 0 && bytes < needed) return bad(index, "has ", bytes, " bytes; needs ", needed);
    const uintptr_t past = address(data) % static_cast<uintptr_t>(facts.alignment);
    if (past != 0)
      return bad(index, "lies ", past, " bytes past a multiple of ", facts.alignment,
                 "; must be aligned to it");
    return {};
  }

  Status workspace(const Workspace& workspace, int64_t needed) const {
    if (needed == 0) return {};
    if (workspace.bytes < needed)
      return fail(Code::kBadBinding, "workspace: has ", workspace.bytes, " bytes; needs ", needed);
    if (workspace.data == nullptr)
      return fail(Code::kBadBinding, "workspace: is null; needs ", needed, " bytes");
    const uintptr_t past = address(workspace.data) % uintptr_t{kWorkspaceAlign};
    if (past != 0)
      return fail(Code::kBadBinding, "workspace: lies ", past, " bytes past a multiple of ", kWorkspaceAlign,
                  "; must be aligned to it");
    const StorageAxes bytes{{Axis{needed, 1}}, 1};
    for (size_t index = 0; index < core_.slots.size(); ++index) {
      const SlotFacts& facts = core_.slots[index];
      if (facts.is_virtual ||
          !intervals_meet(workspace.data, needed, pointers_.data[index], footprint_bytes(index)))
        continue;
      for (const SlotUse& use : facts.uses)
        ATTNGRAPH_RETURN_IF_ERROR(apart(index, use, {bytes, 1}, workspace.data, "the workspace"));
    }
    return {};
  }

  Status pair(const SlotPair& pair) const {
    const size_t written = static_cast<size_t>(pair.written), other = static_cast<size_t>(pair.other);
    const void* a = pointers_.data[written];
    const void* b = pointers_.data[other];
    if (!intervals_meet(a, footprint_bytes(written), b, footprint_bytes(other))) return {};
    for (const SlotUse& use : core_.slots[written].uses)
      for (const SlotUse& other_use : core_.slots[other].uses)
        ATTNGRAPH_RETURN_IF_ERROR(apart(written, use, lattice(other_use), b,
                                        describe_slot(core_.slots[other], state_.names[other])));
    return {};
  }

 private:
  const Problem& problem(const SlotUse& use) const {
    return core_.program.nodes[static_cast<size_t>(use.node)].problem;
  }
  UseLattice lattice(const SlotUse& use) const {
    return use_lattice(problem(use), use, call_bounds(problem(use), sizes_));
  }
  int64_t footprint_bytes(size_t index) const {
    if (is_whole(sizes_)) return core_.slots[index].footprint_bytes;
    int64_t bytes = 0;
    for (const SlotUse& use : core_.slots[index].uses)
      bytes = std::max(bytes, use_bytes(problem(use), use, call_bounds(problem(use), sizes_)));
    return bytes;
  }

  /// Whether a use of slot `index` shares no element with other memory at `data`.
  template <class Name>
  Status apart(size_t index, const SlotUse& use, const UseLattice& other, const void* data,
               const Name& name) const {
    const UseLattice own = lattice(use);
    const int64_t distance =
        static_cast<int64_t>(address(data)) - static_cast<int64_t>(address(pointers_.data[index]));
    switch (mutual_overlap({own.axes.span(), own.element_bytes}, {other.axes.span(), other.element_bytes},
                           distance)) {
      case Overlap::kNone:
        return {};
      case Overlap::kSome:
        return bad(index, "overlaps ", name, "; they must share no element");
      case Overlap::kTooIrregular:
        break;
    }
    return bad(index, "is interleaved with ", name,
               " in strides too irregular to prove apart; bind them to separate buffers");
  }

  template <class... Parts>
  Status bad(size_t index, const Parts&... parts) const {
    return fail(Code::kBadBinding, describe_slot(core_.slots[index], state_.names[index]), ": ", parts...);
  }

  const PlanState& state_;
  const PlanCore& core_;
  const PointerTable& pointers_;
  const CallSizes& sizes_;
};

}  // namespace

Status check_bindings(const PlanState& state, const PointerTable& pointers, const CallSizes& sizes) {
  const PlanCore& core = *state.core;
  if (pointers.count != core.program.num_slots() || (pointers.count > 0 && pointers.data == nullptr))
    return fail(Code::kBadBinding, "pointers: are ", pointers.data == nullptr ? 0 : pointers.count,
                "; must be ", core.program.num_slots(), ", one a slot of the plan");
  const Checker checker(state, pointers, sizes);
  for (size_t index = 0; index < core.slots.size(); ++index) ATTNGRAPH_RETURN_IF_ERROR(checker.slot(index));
  for (const SlotPair& pair : core.keep_apart) ATTNGRAPH_RETURN_IF_ERROR(checker.pair(pair));
  return {};
}

Status check_workspace(const PlanState& state, const PointerTable& pointers, const CallSizes& sizes,
                       const Workspace& workspace, int64_t needed_bytes) {
  return Checker(state, pointers, sizes).workspace(workspace, needed_bytes);
}

}  // namespace attngraph
