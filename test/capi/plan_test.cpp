#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "capi/support.hpp"
#include "support/catch.hpp"

using namespace attngraph::test;

namespace {

/// Bytes lent and given back.
struct Lender {
  int lent = 0, returned = 0;
  size_t bytes = 0;
  void* stream = nullptr;
  bool refuses = false;
};

void* lend(void* self, size_t bytes, size_t alignment, void* stream) {
  Lender& lender = *static_cast<Lender*>(self);
  if (lender.refuses) return nullptr;
  ++lender.lent;
  lender.bytes = bytes;
  lender.stream = stream;
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void take_back(void* self, void* data, size_t bytes, void* stream) {
  Lender& lender = *static_cast<Lender*>(self);
  lender.returned += bytes == lender.bytes && stream == lender.stream ? 1 : 0;
  std::free(data);
}

void run_in_turn(void* self, int64_t num_tasks, void (*task)(void*, int64_t), void* arg) {
  ++*static_cast<int*>(self);
  for (int64_t index = num_tasks; index-- > 0;) task(arg, index);
}

void write_line(void* self, attngraph_log_level level, const char* line) {
  if (level == ATTNGRAPH_LOG_INFO) *static_cast<std::string*>(self) += line;
}

std::string explained(const attngraph_plan* plan, attngraph_format format) {
  std::string text(1 << 16, '\0');
  attngraph_text out = {text.data(), text.size(), 0};
  CHECK(attngraph_plan_explain(plan, format, &out, nullptr) == ATTNGRAPH_OK);
  text.resize(out.length);
  return text;
}

}  // namespace

TEST_CASE("a plan made in C runs", "[capi]") {
  const CContext context = make_context();
  const CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  REQUIRE(plan);
  Storage storage(plan.get(), 0.5F);
  storage[attngraph_plan_slot_by_name(plan.get(), "v")].assign(64, 3.0F);
  Message message;
  REQUIRE(attngraph_execute(plan.get(), &storage.call, message) == ATTNGRAPH_OK);
  CHECK(message.message.length == 0);
  for (const float o : storage[attngraph_plan_slot(plan.get(), 4)]) CHECK(o == Approx(3.0F));
  storage.call.bytes = nullptr;  // none is told
  CHECK(attngraph_execute(plan.get(), &storage.call, nullptr) == ATTNGRAPH_OK);
}

TEST_CASE("slots are found by uid and by a name that one tensor bears", "[capi]") {
  const CContext context = make_context();
  const CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  CHECK(attngraph_plan_num_slots(plan.get()) == 4);
  CHECK(attngraph_plan_slot(plan.get(), 3) == attngraph_plan_slot_by_name(plan.get(), "v"));
  CHECK(attngraph_plan_slot(plan.get(), 9) == -1);
  CHECK(attngraph_plan_slot_by_name(plan.get(), "w") == -1);
  attngraph_slot info = ATTNGRAPH_SLOT_INIT;
  REQUIRE(attngraph_plan_slot_info(plan.get(), attngraph_plan_slot(plan.get(), 4), &info, nullptr) ==
          ATTNGRAPH_OK);
  CHECK(info.uid == 4);
  CHECK(std::string(info.name) == "o");
  CHECK(info.bytes == 256);
  CHECK(info.alignment == 16);
  CHECK(info.is_output == 1);
  CHECK(info.is_virtual == 0);
  Message message;
  CHECK(attngraph_plan_slot_info(plan.get(), 4, &info, message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "slot: is 4; must be 0 to 3");

  attngraph_graph* twice = nullptr;
  const char json[] = R"({"format": "attngraph.graph", "version": 1, "tensors": [
    {"uid": 1, "name": "x", "dtype": "f32", "dims": [1, 1, 4, 8], "strides": [32, 32, 8, 1]},
    {"uid": 2, "name": "x", "dtype": "f32", "dims": [1, 1, 4, 8]}], "nodes": [
    {"op": "sdpa_forward", "inputs": {"q": 1, "k": 1, "v": 1}, "outputs": {"o": 2}}]})";
  REQUIRE(attngraph_graph_from_json(json, std::strlen(json), &twice, nullptr) == ATTNGRAPH_OK);
  const CGraph owner(twice);
  CHECK(attngraph_plan_slot_by_name(make_plan(context.get(), twice).get(), "x") == -1);
}

TEST_CASE("a call that does not fit its plan is a bad binding with the numbers", "[capi]") {
  const CContext context = make_context();
  const CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  const auto refused = [&](auto&& spoil, const char* words) {
    Storage storage(plan.get(), 0.5F);
    spoil(storage);
    Message message;
    CHECK(attngraph_execute(plan.get(), &storage.call, message) == ATTNGRAPH_BAD_BINDING);
    INFO(message.text);
    CHECK(std::string(message.text).find(words) != std::string::npos);
  };
  refused([](Storage& s) { s.call.num_pointers = 3; }, "pointers: are 3; must be 4, one a slot of the plan");
  refused([](Storage& s) { s.call.pointers = nullptr; }, "pointers: are 0; must be 4");
  refused([](Storage& s) { s.pointer(1) = nullptr; }, "is bound to null; needs 256 bytes");
  refused([](Storage& s) { s.pointer(3) = s.pointer(0); }, "overlaps q (uid 1)");
  refused([](Storage& s) { s.pointer(2) = static_cast<char*>(s.pointer(2)) + 4; }, "lies 4 bytes past");
  refused([](Storage& s) { s.call.workspace_bytes = 1; }, "workspace: has 1 bytes; needs ");
  refused([](Storage& s) { s.call.workspace = nullptr, s.call.workspace_bytes = 0; },
          "workspace: has 0 bytes; needs ");
  refused([](Storage& s) { s.call.batch = 0; }, "batch: is 0; the plan takes 1 alone");
}

TEST_CASE("a call without a workspace borrows one from the caller's allocator", "[capi]") {
  Lender lender;
  attngraph_context_options options = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  options.allocate = lend;
  options.free = take_back;
  options.allocator_self = &lender;
  const CContext context = make_context(&options);
  const CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  REQUIRE(attngraph_plan_workspace_bytes(plan.get()) > 0);
  Storage storage(plan.get(), 0.5F);
  int stream = 0;
  storage.call.stream = &stream;
  REQUIRE(attngraph_execute(plan.get(), &storage.call, nullptr) == ATTNGRAPH_OK);
  CHECK(lender.lent == 0);
  storage.call.workspace = nullptr;
  storage.call.workspace_bytes = 0;
  REQUIRE(attngraph_execute(plan.get(), &storage.call, nullptr) == ATTNGRAPH_OK);
  CHECK(lender.lent == 1);
  CHECK(lender.returned == 1);
  CHECK(static_cast<int64_t>(lender.bytes) == attngraph_plan_workspace_bytes(plan.get()));
  CHECK(lender.stream == &stream);

  storage.pointer(0) = nullptr;  // a refused call gives back, too
  CHECK(attngraph_execute(plan.get(), &storage.call, nullptr) == ATTNGRAPH_BAD_BINDING);
  CHECK(lender.lent == 2);
  CHECK(lender.returned == 2);

  lender.refuses = true;
  Message message;
  CHECK(attngraph_execute(plan.get(), &storage.call, message) == ATTNGRAPH_BACKEND);
  CHECK(std::string(message.text).find("allocate: gave null for a workspace of ") == 0);
}

TEST_CASE("a plan runs on the caller's threads and tells the caller's log", "[capi]") {
  int runs = 0;
  std::string log;
  attngraph_context_options options = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  options.num_threads = 3;
  options.executor = run_in_turn;
  options.executor_self = &runs;
  options.log = write_line;
  options.log_self = &log;
  CContext context = make_context(&options);
  const CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  CHECK(log == "planned f32 forward b1 h2:2 s4:4 d8:8 band(top_left right 0) on cpu");
  Storage storage(plan.get(), 0.5F);
  context.reset();  // a plan outlives its context
  REQUIRE(attngraph_execute(plan.get(), &storage.call, nullptr) == ATTNGRAPH_OK);
  CHECK(runs > 0);
}

TEST_CASE("equal graphs share a plan, and the cache's statistics tell", "[capi]") {
  const CContext context = make_context();
  const CPlan first = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  const CPlan second = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  const CPlan other = make_plan(context.get(), causal_graph(1, 2, 5, 8).get());
  attngraph_cache_statistics statistics = ATTNGRAPH_CACHE_STATISTICS_INIT;
  REQUIRE(attngraph_context_cache_statistics(context.get(), &statistics, nullptr) == ATTNGRAPH_OK);
  CHECK(statistics.hits == 1);
  CHECK(statistics.misses == 2);
  CHECK(statistics.builds == 2);
  CHECK(statistics.evictions == 0);
  CHECK(statistics.entries == 2);
}

TEST_CASE("two contexts know nothing of each other", "[capi]") {
  attngraph_context_options options = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  options.cache_entries = 0;
  const CContext one = make_context(), other = make_context(&options);
  const CPlan plan = make_plan(one.get(), causal_graph(1, 2, 4, 8).get());
  const CPlan again = make_plan(other.get(), causal_graph(1, 2, 4, 8).get());
  attngraph_cache_statistics statistics = ATTNGRAPH_CACHE_STATISTICS_INIT;
  REQUIRE(attngraph_context_cache_statistics(other.get(), &statistics, nullptr) == ATTNGRAPH_OK);
  CHECK(statistics.misses == 1);
  CHECK(statistics.entries == 0);
  Storage storage(plan.get(), 0.5F), storage_again(again.get(), 0.5F);
  CHECK(attngraph_execute(plan.get(), &storage.call, nullptr) == ATTNGRAPH_OK);
  CHECK(attngraph_execute(again.get(), &storage_again.call, nullptr) == ATTNGRAPH_OK);
  CHECK(storage[3] == storage_again[3]);
}

TEST_CASE("support gives every engine's reasons, for devices that are not here, too", "[capi]") {
  const CContext context = make_context();
  const CGraph graph = causal_graph(1, 2, 4, 8);
  attngraph_target h200 = ATTNGRAPH_TARGET_INIT;
  REQUIRE(attngraph_target_preset("h200", &h200, nullptr) == ATTNGRAPH_OK);
  CHECK(h200.sm_version == 90);
  CHECK(h200.memory == ATTNGRAPH_CUDA);
  attngraph_support* answer = nullptr;
  REQUIRE(attngraph_support_query(context.get(), graph.get(), &h200, &answer, nullptr) == ATTNGRAPH_OK);
  const CSupport support(answer);
  size_t engine = 0;
  while (attngraph_support_engine(answer, engine) != nullptr &&
         std::string(attngraph_support_engine(answer, engine)) != "cpu")
    ++engine;
  CHECK(attngraph_context_engine(context.get(), engine) == std::string("cpu"));
  REQUIRE(attngraph_support_num_reasons(answer, engine) == 1);
  attngraph_reason reason = ATTNGRAPH_REASON_INIT;
  REQUIRE(attngraph_support_reason(answer, engine, 0, &reason, nullptr) == ATTNGRAPH_OK);
  CHECK(std::string(reason.subject) == "target");
  CHECK(std::string(reason.has) == "sm_90");
  CHECK(std::string(reason.wants) == "host memory");
  CHECK(std::string(reason.since).empty());
  Message message;
  CHECK(attngraph_support_reason(answer, engine, 1, &reason, message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "index: is 1; must be below 1, the reasons of cpu");
  CHECK(attngraph_support_reason(answer, 99, 0, &reason, message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text).find("engine: is 99; must be below ") == 0);

  attngraph_support* here = nullptr;
  REQUIRE(attngraph_support_query(context.get(), graph.get(), nullptr, &here, nullptr) == ATTNGRAPH_OK);
  const CSupport owner(here);
  CHECK(attngraph_support_num_reasons(here, engine) == 0);
}

TEST_CASE("planning refuses with all reasons what no engine takes", "[capi]") {
  const CContext context = make_context();
  attngraph_target target = ATTNGRAPH_TARGET_INIT;
  REQUIRE(attngraph_context_target(context.get(), nullptr, &target, nullptr) == ATTNGRAPH_OK);
  CHECK(target.memory == ATTNGRAPH_HOST);
  CHECK(target.num_threads >= 1);
  attngraph_plan* plan = nullptr;
  Message message;
  attngraph_plan_options options = ATTNGRAPH_PLAN_OPTIONS_INIT;
  options.engine = "abacus";
  CHECK(attngraph_plan_create(context.get(), causal_graph(1, 2, 4, 8).get(), &target, &options, &plan,
                              message) == ATTNGRAPH_UNSUPPORTED);
  CHECK(std::string(message.text).find("engine: is abacus; this build has ") == 0);
  CHECK(plan == nullptr);
  CHECK(std::string(attngraph_status_name(ATTNGRAPH_UNSUPPORTED)) == "unsupported");
}

TEST_CASE("options that make no sense are refused by name and value", "[capi]") {
  const CContext context = make_context();
  Message message;
  attngraph_plan* plan = nullptr;
  attngraph_plan_options options = ATTNGRAPH_PLAN_OPTIONS_INIT;
  options.varying = 16;
  CHECK(attngraph_plan_create(context.get(), causal_graph(1, 2, 4, 8).get(), nullptr, &options, &plan,
                              message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "options.varying: is 16; must be a sum of bits up to 15");

  attngraph_context* made = nullptr;
  attngraph_context_options bad = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  bad.num_threads = -1;
  CHECK(attngraph_context_create(&bad, &made, message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "options.num_threads: is -1; must not be negative");
  bad = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  bad.allocate = lend;
  CHECK(attngraph_context_create(&bad, &made, message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "options.allocate: is given alone; must come with free");
  bad = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  bad.free = take_back;
  CHECK(attngraph_context_create(&bad, &made, message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "options.free: is given alone; must come with allocate");
  attngraph_target target = ATTNGRAPH_TARGET_INIT;
  CHECK(attngraph_target_preset("h300", &target, message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "name: is h300; must be one of a100, h100, h200, b200");
  attngraph_text text = {nullptr, 0, 0};
  const CPlan made_plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  CHECK(attngraph_plan_explain(made_plan.get(), 3, &text, message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "format: is 3; must be a number of text, json, svg");
}

TEST_CASE("a plan explains itself as text, as JSON and as a picture", "[capi]") {
  const CContext context = make_context();
  const CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get());
  CHECK(explained(plan.get(), ATTNGRAPH_TEXT).find("engine cpu") != std::string::npos);
  CHECK(explained(plan.get(), ATTNGRAPH_JSON).find("\"format\": \"attngraph.plan\"") != std::string::npos);
  CHECK(explained(plan.get(), ATTNGRAPH_SVG).find("<svg") != std::string::npos);
  CHECK(attngraph_plan_engine(plan.get(), 0) == std::string("cpu"));
  CHECK(attngraph_plan_engine(plan.get(), 1) == nullptr);
  CHECK(attngraph_plan_is_deterministic(plan.get()) == 1);
}

TEST_CASE("a call of fewer sequences than declared needs less, where the plan lets the batch vary",
          "[capi]") {
  attngraph_context_options few = ATTNGRAPH_CONTEXT_OPTIONS_INIT;
  few.num_threads = 1;
  const CContext context = make_context(&few);
  attngraph_plan_options options = ATTNGRAPH_PLAN_OPTIONS_INIT;
  options.varying = ATTNGRAPH_VARYING_BATCH;
  const CPlan plan = make_plan(context.get(), causal_graph(3, 2, 4, 8).get(), &options);
  REQUIRE(plan);
  Storage storage(plan.get(), 0.5F);
  storage[3].assign(storage[3].size(), -1.0F);
  storage.call.batch = 2;
  int64_t bytes = -1;
  REQUIRE(attngraph_call_workspace_bytes(plan.get(), &storage.call, &bytes, nullptr) == ATTNGRAPH_OK);
  CHECK(bytes <= attngraph_plan_workspace_bytes(plan.get()));
  REQUIRE(attngraph_execute(plan.get(), &storage.call, nullptr) == ATTNGRAPH_OK);
  CHECK(storage[3][0] == Approx(0.5F));
  CHECK(storage[3].back() == -1.0F);
  storage.call.batch = 4;
  Message message;
  CHECK(attngraph_call_workspace_bytes(plan.get(), &storage.call, &bytes, message) == ATTNGRAPH_BAD_BINDING);
  CHECK(std::string(message.text) == "batch: is 4; must be 0 to 3 as declared");
}

TEST_CASE("an overrun workspace region is found by its guards", "[capi]") {
  const CContext context = make_context();
  attngraph_plan_options options = ATTNGRAPH_PLAN_OPTIONS_INIT;
  options.guard_bytes = 64;
  const CPlan plan = make_plan(context.get(), causal_graph(1, 2, 4, 8).get(), &options);
  Storage storage(plan.get(), 0.5F);
  REQUIRE(attngraph_execute(plan.get(), &storage.call, nullptr) == ATTNGRAPH_OK);
  CHECK(attngraph_call_check_guards(plan.get(), &storage.call, nullptr) == ATTNGRAPH_OK);
  static_cast<char*>(storage.call.workspace)[0] ^= 1;
  Message message;
  CHECK(attngraph_call_check_guards(plan.get(), &storage.call, message) == ATTNGRAPH_INTERNAL);
  CHECK(std::string(message.text).find("was overrun by") != std::string::npos);
}

TEST_CASE("a plan is autotuned on the memory of a call, and who plans the same has it then", "[capi]") {
  const CContext context = make_context();
  const CGraph graph = causal_graph(1, 2, 4, 8);
  const CPlan plan = make_plan(context.get(), graph.get());
  Storage storage(plan.get(), 0.5F);
  attngraph_plan* made = nullptr;
  Message message;
  REQUIRE(attngraph_plan_autotune(context.get(), plan.get(), &storage.call, &made, message) == ATTNGRAPH_OK);
  const CPlan tuned(made);
  CHECK(storage[3][0] == Approx(0.5F));
  CHECK(std::string(attngraph_plan_engine(tuned.get(), 0)) == attngraph_plan_engine(plan.get(), 0));
  const std::string words = "autotuned: the engine has one way to run it";
  const CPlan again = make_plan(context.get(), graph.get());
  CHECK(explained(again.get(), ATTNGRAPH_TEXT).find(words) != std::string::npos);
  storage.call.workspace_bytes = 1;
  CHECK(attngraph_plan_autotune(context.get(), plan.get(), &storage.call, &made, message) ==
        ATTNGRAPH_BAD_BINDING);
  CHECK(std::string(message.text).find("workspace: has 1 bytes; needs ") != std::string::npos);
  CHECK(attngraph_plan_autotune(context.get(), plan.get(), &storage.call, nullptr, message) ==
        ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "tuned: is null; must be a pointer");
}

TEST_CASE("null handles are answered, not followed", "[capi]") {
  attngraph_context_destroy(nullptr);
  attngraph_graph_destroy(nullptr);
  attngraph_plan_destroy(nullptr);
  attngraph_support_destroy(nullptr);
  CHECK(attngraph_context_engine(nullptr, 0) == nullptr);
  CHECK(attngraph_graph_num_nodes(nullptr) == 0);
  CHECK(attngraph_graph_port(nullptr, 0, "q") == ATTNGRAPH_NONE);
  CHECK(attngraph_support_engine(nullptr, 0) == nullptr);
  CHECK(attngraph_support_num_reasons(nullptr, 0) == 0);
  CHECK(attngraph_plan_workspace_bytes(nullptr) == 0);
  CHECK(attngraph_plan_num_slots(nullptr) == 0);
  CHECK(attngraph_plan_slot(nullptr, 1) == -1);
  CHECK(attngraph_plan_slot_by_name(nullptr, "q") == -1);
  CHECK(attngraph_plan_engine(nullptr, 0) == nullptr);
  CHECK(attngraph_plan_is_deterministic(nullptr) == 0);
  Message message;
  CHECK(attngraph_execute(nullptr, nullptr, message) == ATTNGRAPH_INVALID_GRAPH);
  CHECK(std::string(message.text) == "plan: is null; must be a pointer");
}

TEST_CASE("the loaded library tells its versions", "[capi]") {
  CHECK(attngraph_abi_version() == ATTNGRAPH_ABI_VERSION);
  CHECK(std::string(attngraph_version()).find('.') != std::string::npos);
  CHECK(std::string(attngraph_status_name(77)) == "?");
}
