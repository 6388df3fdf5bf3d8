#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "attngraph/plan.hpp"

namespace attngraph {

/// The memory of one tensor.
struct Binding {
  Uid uid = 0;
  void* data = nullptr;
  int64_t bytes = -1;  ///< size of the storage behind `data`; -1: not told, not checked
};

/// Pointers by slot, filled once and reused: execute reads nothing else.
class ATTNGRAPH_API Bindings {
 public:
  struct Entry {
    void* data = nullptr;
    int64_t bytes = -1;
    bool is_set = false;
  };

  explicit Bindings(const Plan& plan);
  /// Errors: kBadBinding when the plan has no tensor with this uid.
  Status set(const Binding& binding);
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  Plan plan_;
  std::vector<Entry> entries_;
};

/// Caller-owned scratch memory of `Plan::workspace_bytes()` bytes, 256-byte aligned.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

/// Runs the plan: checks the bindings against the plan's footprints, then launches on `stream` (a
/// cudaStream_t for a cuda target, ignored on a host). Allocates nothing and takes no lock.
///
/// Errors: kBadBinding (missing, null, misaligned, too small, overlapping, short workspace).
ATTNGRAPH_API Status execute(const Plan& plan, const Bindings& bindings, Workspace workspace,
                             void* stream = nullptr);

/// The same from a list of uids; builds the pointer table at each call.
ATTNGRAPH_API Status execute(const Plan& plan, std::initializer_list<Binding> bindings, Workspace workspace,
                             void* stream = nullptr);

/// Looks at the guard patterns of a host workspace after a run of a plan with `guard_bytes`.
///
/// Errors: kInternal naming the region that was overrun, by how many bytes and where.
ATTNGRAPH_API Status check_guards(const Plan& plan, Workspace workspace);

}  // namespace attngraph
