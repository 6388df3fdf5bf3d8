#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <vector>

#include "attngraph/plan.hpp"

namespace attngraph {

/// The memory of one tensor.
struct Binding {
  Uid uid = 0;
  void* data = nullptr;
  int64_t bytes = -1;  ///< size of the storage behind `data`; -1: not told

  Binding() = default;
  Binding(Uid tensor, void* memory, int64_t memory_bytes = -1)
      : uid(tensor), data(memory), bytes(memory_bytes) {}
  /// The tensor lies in host memory from the first element of `storage` on.
  template <class T>
  Binding(Uid tensor, std::vector<T>& storage)
      : Binding(tensor, storage.data(), static_cast<int64_t>(storage.size() * sizeof(T))) {}
};

/// The memory of a plan's tensors by slot, in arrays of the caller: execute reads nothing else.
struct PointerTable {
  static constexpr int64_t kNotTold = -1;   ///< of a storage's size: not checked
  static constexpr int64_t kNotBound = -2;  ///< in place of a size: there is no pointer

  void* const* data = nullptr;     ///< those of virtual tensors are not read
  const int64_t* bytes = nullptr;  ///< sizes of the storages; null: none is told
  int count = 0;                   ///< Plan::num_slots()
};

/// A pointer table filled by uid, once, and reused.
class ATTNGRAPH_API Bindings {
 public:
  explicit Bindings(const Plan& plan);
  /// Errors: kBadBinding when the plan has no tensor with this uid, or keeps it in the workspace.
  Status set(const Binding& binding);
  PointerTable table() const { return {data_.data(), bytes_.data(), static_cast<int>(data_.size())}; }
  const Plan& plan() const { return plan_; }

 private:
  Plan plan_;
  std::vector<void*> data_;
  std::vector<int64_t> bytes_;
};

inline constexpr int64_t kWorkspaceAlign = 256;  ///< bytes; cuDNN and TMA ask for no more

/// Caller-owned scratch memory of `Plan::workspace_bytes()` bytes, aligned to kWorkspaceAlign.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

/// Host memory for the workspace of one execute at a time, freed with this object.
class HostWorkspace {
 public:
  explicit HostWorkspace(const Plan& plan)
      : bytes_(plan.workspace_bytes()), data_(::operator new(static_cast<std::size_t>(bytes_), kAlignment)) {}
  operator Workspace() const { return {data_.get(), bytes_}; }

 private:
  static constexpr std::align_val_t kAlignment{kWorkspaceAlign};
  struct Free {
    void operator()(void* data) const { ::operator delete(data, kAlignment); }
  };
  int64_t bytes_;
  std::unique_ptr<void, Free> data_;
};

/// Runs the plan: checks the bindings against the plan's footprints, then launches on `stream` (a
/// cudaStream_t for a cuda target, ignored on a host). Allocates nothing and takes no lock.
///
/// Errors: kBadBinding (missing, null, misaligned, too small, overlapping, short workspace).
ATTNGRAPH_API Status execute(const Plan& plan, const Bindings& bindings, Workspace workspace,
                             void* stream = nullptr);

/// The same for a call that brings less than the graph declares: storage and workspace need to hold
/// these sizes only.
///
/// Errors: also those of Plan::workspace_bytes_for.
ATTNGRAPH_API Status execute(const Plan& plan, const Bindings& bindings, const CallSizes& sizes,
                             Workspace workspace, void* stream = nullptr);

/// The same from a table of the caller's own.
ATTNGRAPH_API Status execute(const Plan& plan, const PointerTable& pointers, const CallSizes& sizes,
                             Workspace workspace, void* stream = nullptr);

/// The same from a list of uids; builds the pointer table at each call.
ATTNGRAPH_API Status execute(const Plan& plan, std::initializer_list<Binding> bindings, Workspace workspace,
                             void* stream = nullptr);

/// Looks at the guard patterns of a workspace after a run of a plan with `guard_bytes`; waits for the device
/// when the plan is for one.
///
/// Errors: kInternal naming the region that was overrun, by how many bytes and where.
ATTNGRAPH_API Status check_guards(const Plan& plan, Workspace workspace);

}  // namespace attngraph
