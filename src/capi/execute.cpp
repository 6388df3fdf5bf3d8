#include "capi/boundary.hpp"
#include "capi/handles.hpp"

using namespace attngraph;
using namespace attngraph::capi;

namespace {

/// Reads the arguments that every call has. Nothing here allocates unless it fails.
Status read_call(const attngraph_plan* plan, const attngraph_call* given, attngraph_call& call) {
  ATTNGRAPH_RETURN_IF_ERROR(require(plan, "plan"));
  ATTNGRAPH_RETURN_IF_ERROR(require(given, "call"));
  return read_struct(given, "call", call);
}

CallSizes sizes_of(const attngraph_call& call) {
  return {optional_of(call.batch), optional_of(call.total_q), optional_of(call.total_kv),
          optional_of(call.pages)};
}

/// The call's workspace, or one lent by the caller's allocator for as long as this object lives.
class CallWorkspace {
 public:
  CallWorkspace(const Allocator& allocator, const attngraph_call& call)
      : allocator_(allocator), stream_(call.stream), workspace_{call.workspace, call.workspace_bytes} {}
  ~CallWorkspace() {
    if (is_lent_)
      allocator_.free(allocator_.self, workspace_.data, static_cast<size_t>(workspace_.bytes), stream_);
  }
  CallWorkspace(const CallWorkspace&) = delete;
  CallWorkspace& operator=(const CallWorkspace&) = delete;

  /// Asks the allocator when the call brings nothing and needs something.
  Status provide(const Plan& plan, const CallSizes& sizes) {
    if (allocator_.allocate == nullptr || workspace_.data != nullptr || workspace_.bytes != 0) return {};
    const auto needed = plan.workspace_bytes_for(sizes);
    ATTNGRAPH_RETURN_IF_ERROR(needed.status());
    if (*needed == 0) return {};
    workspace_.data =
        allocator_.allocate(allocator_.self, static_cast<size_t>(*needed), size_t{kWorkspaceAlign}, stream_);
    if (workspace_.data == nullptr)
      return fail(Code::kBackend, "allocate: gave null for a workspace of ", *needed,
                  " bytes; must give memory");
    workspace_.bytes = *needed;
    is_lent_ = true;
    return {};
  }

  Workspace get() const { return workspace_; }

 private:
  const Allocator& allocator_;
  void* stream_;
  Workspace workspace_;
  bool is_lent_ = false;
};

}  // namespace

attngraph_status attngraph_execute(const attngraph_plan* plan, const attngraph_call* call,
                                   attngraph_message* message) {
  return guard(message, [&]() -> Status {
    attngraph_call given = ATTNGRAPH_CALL_INIT;
    ATTNGRAPH_RETURN_IF_ERROR(read_call(plan, call, given));
    const CallSizes sizes = sizes_of(given);
    CallWorkspace workspace(plan->allocator, given);
    ATTNGRAPH_RETURN_IF_ERROR(workspace.provide(plan->plan, sizes));
    const PointerTable pointers{given.pointers, given.bytes, given.num_pointers};
    return execute(plan->plan, pointers, sizes, workspace.get(), given.stream);
  });
}

attngraph_status attngraph_plan_autotune(attngraph_context* context, const attngraph_plan* plan,
                                         const attngraph_call* call, attngraph_plan** tuned,
                                         attngraph_message* message) {
  return guard(message, [&]() -> Status {
    attngraph_call given = ATTNGRAPH_CALL_INIT;
    ATTNGRAPH_RETURN_IF_ERROR(require(context, "context"));
    ATTNGRAPH_RETURN_IF_ERROR(require(tuned, "tuned"));
    ATTNGRAPH_RETURN_IF_ERROR(read_call(plan, call, given));
    const CallSizes sizes = sizes_of(given);
    CallWorkspace workspace(plan->allocator, given);
    ATTNGRAPH_RETURN_IF_ERROR(workspace.provide(plan->plan, sizes));
    const PointerTable pointers{given.pointers, given.bytes, given.num_pointers};
    const auto made = context->context.autotune(plan->plan, pointers, sizes, workspace.get(), given.stream);
    ATTNGRAPH_RETURN_IF_ERROR(made.status());
    *tuned = new attngraph_plan{*made, plan->allocator, plan->engines};
    return {};
  });
}

attngraph_status attngraph_recording_create(const attngraph_plan* plan, const attngraph_call* call,
                                            attngraph_recording** recording, attngraph_message* message) {
  return guard(message, [&]() -> Status {
    attngraph_call given = ATTNGRAPH_CALL_INIT;
    ATTNGRAPH_RETURN_IF_ERROR(read_call(plan, call, given));
    ATTNGRAPH_RETURN_IF_ERROR(require(recording, "recording"));
    const PointerTable pointers{given.pointers, given.bytes, given.num_pointers};
    auto made =
        Recording::make(plan->plan, pointers, sizes_of(given), {given.workspace, given.workspace_bytes});
    ATTNGRAPH_RETURN_IF_ERROR(made.status());
    *recording = new attngraph_recording{std::move(*made)};
    return {};
  });
}

attngraph_status attngraph_recording_launch(const attngraph_recording* recording, void* stream,
                                            attngraph_message* message) {
  return guard(message, [&]() -> Status {
    ATTNGRAPH_RETURN_IF_ERROR(require(recording, "recording"));
    return recording->recording.launch(stream);
  });
}

void attngraph_recording_destroy(attngraph_recording* recording) { delete recording; }

attngraph_status attngraph_call_workspace_bytes(const attngraph_plan* plan, const attngraph_call* call,
                                                int64_t* bytes, attngraph_message* message) {
  return guard(message, [&]() -> Status {
    attngraph_call given = ATTNGRAPH_CALL_INIT;
    ATTNGRAPH_RETURN_IF_ERROR(read_call(plan, call, given));
    ATTNGRAPH_RETURN_IF_ERROR(require(bytes, "bytes"));
    const auto needed = plan->plan.workspace_bytes_for(sizes_of(given));
    if (needed.ok()) *bytes = *needed;
    return needed.status();
  });
}

attngraph_status attngraph_call_check_guards(const attngraph_plan* plan, const attngraph_call* call,
                                             attngraph_message* message) {
  return guard(message, [&]() -> Status {
    attngraph_call given = ATTNGRAPH_CALL_INIT;
    ATTNGRAPH_RETURN_IF_ERROR(read_call(plan, call, given));
    return check_guards(plan->plan, {given.workspace, given.workspace_bytes});
  });
}
