#include <string>
#include <utility>
#include <vector>

#include "capi/support.hpp"
#include "support/catch.hpp"

using namespace attngraph::test;

namespace {

using CRecording =
    std::unique_ptr<attngraph_recording, Destroy<attngraph_recording, attngraph_recording_destroy>>;

CRecording record(const attngraph_plan* plan, const attngraph_call& call) {
  attngraph_recording* recording = nullptr;
  if (attngraph_recording_create(plan, &call, &recording, nullptr) != ATTNGRAPH_OK) return nullptr;
  return CRecording(recording);
}

}  // namespace

TEST_CASE("a recorded call is launched again, after its arrays, its plan and its context are gone",
          "[capi]") {
  CContext context = make_context();
  CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  Storage storage(plan.get(), 0.5F);
  storage[3][0] = 0;
  const CRecording recording = record(plan.get(), storage.call);
  REQUIRE(recording);
  CHECK(storage[3][0] == 0);  // nothing ran
  for (int32_t slot = 0; slot < 4; ++slot) storage.pointer(slot) = nullptr;
  plan.reset();
  context.reset();
  for (const float value : {0.5F, 0.25F}) {
    storage[2].assign(storage[2].size(), value);  // v, read anew
    CHECK(attngraph_recording_launch(recording.get(), nullptr, nullptr) == ATTNGRAPH_OK);
    for (const float o : storage[3]) CHECK(o == Approx(value));
  }
}

TEST_CASE("a recording keeps the sizes of its call", "[capi]") {
  const CContext context = make_context();
  attngraph_plan_options options = ATTNGRAPH_PLAN_OPTIONS_INIT;
  options.varying = ATTNGRAPH_VARYING_BATCH;
  const CPlan plan = make_plan(context.get(), causal_graph(2, 1, 4, 8).get(), &options);
  Storage storage(plan.get(), 0.5F);
  storage.call.batch = 1;
  const CRecording recording = record(plan.get(), storage.call);
  REQUIRE(recording);
  storage.call.batch = 2;
  storage[3].assign(storage[3].size(), 0);
  REQUIRE(attngraph_recording_launch(recording.get(), nullptr, nullptr) == ATTNGRAPH_OK);
  CHECK(storage[3][31] == Approx(0.5F));
  CHECK(storage[3][32] == 0);  // of the second sequence
}

TEST_CASE("a recording is refused with execute's words, and nothing is made", "[capi]") {
  const CContext context = make_context();
  const CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  struct Row {
    void (*spoil)(Storage&);
    const char* words;
  };
  const Row row = GENERATE(values<Row>({
      {[](Storage& s) { s.call.num_pointers = 3; }, "pointers: are 3; must be 4, one a slot of the plan"},
      {[](Storage& s) { s.call.num_pointers = -1; }, "pointers: are -1; must be 4"},
      {[](Storage& s) { s.call.pointers = nullptr; }, "pointers: are 0; must be 4"},
      {[](Storage& s) { s.pointer(1) = nullptr; }, "is bound to null; needs 256 bytes"},
      {[](Storage& s) { s.pointer(3) = s.pointer(0); }, "overlaps q (uid 1)"},
      {[](Storage& s) { s.pointer(3) = s.call.workspace; }, "overlaps the workspace"},
      {[](Storage& s) { s.call.workspace_bytes = 1; }, "workspace: has 1 bytes; needs "},
      {[](Storage& s) { s.call.workspace_bytes = -1; }, "workspace: has -1 bytes; needs "},
      {[](Storage& s) { s.call.workspace = static_cast<char*>(s.call.workspace) + 64; },
       "workspace: lies 64 bytes past a multiple of 256"},
      {[](Storage& s) { s.call.batch = 0; }, "batch: is 0; the plan takes 1 alone"},
  }));
  INFO(row.words);
  Storage storage(plan.get(), 0.5F);
  row.spoil(storage);
  attngraph_recording* recording = nullptr;
  Message message;
  CHECK(attngraph_recording_create(plan.get(), &storage.call, &recording, message) == ATTNGRAPH_BAD_BINDING);
  INFO(message.text);
  CHECK(std::string(message.text).find(row.words) != std::string::npos);
  CHECK(recording == nullptr);
  Message of_execute;
  CHECK(attngraph_execute(plan.get(), &storage.call, of_execute) == ATTNGRAPH_BAD_BINDING);
  CHECK(std::string(of_execute.text) == message.text);
}

TEST_CASE("a recording brings its workspace, as it keeps it: the allocator is not asked", "[capi]") {
  attngraph_context_options options = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  int asked = 0;
  options.allocate = [](void* self, size_t, size_t, void*) -> void* {
    ++*static_cast<int*>(self);
    return nullptr;
  };
  options.free = [](void*, void*, size_t, void*) {};
  options.allocator_self = &asked;
  const CContext context = make_context(&options);
  const CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  Storage storage(plan.get(), 0.5F);
  storage.call.workspace = nullptr;
  storage.call.workspace_bytes = 0;
  attngraph_recording* recording = nullptr;
  Message message;
  CHECK(attngraph_recording_create(plan.get(), &storage.call, &recording, message) == ATTNGRAPH_BAD_BINDING);
  CHECK(std::string(message.text).find("workspace: has 0 bytes; needs ") == 0);
  CHECK(asked == 0);
}

TEST_CASE("arguments of a recording that are null or too small are named", "[capi]") {
  const CContext context = make_context();
  const CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  Storage storage(plan.get(), 0.5F);
  attngraph_recording* recording = nullptr;
  Message message;
  const auto refused = [&](const attngraph_plan* of, const attngraph_call* call, attngraph_recording** into) {
    CHECK(attngraph_recording_create(of, call, into, message) == ATTNGRAPH_INVALID_GRAPH);
    return std::string(message.text);
  };
  CHECK(refused(nullptr, &storage.call, &recording) == "plan: is null; must be a pointer");
  CHECK(refused(plan.get(), nullptr, &recording) == "call: is null; must be a pointer");
  CHECK(refused(plan.get(), &storage.call, nullptr) == "recording: is null; must be a pointer");
  storage.call.struct_size = 4;
  CHECK(refused(plan.get(), &storage.call, &recording) ==
        "call.struct_size: is 4; must be the sizeof of the caller's struct");
  CHECK(recording == nullptr);
  CHECK(attngraph_recording_launch(nullptr, nullptr, message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "recording: is null; must be a pointer");
  attngraph_recording_destroy(nullptr);
}
