#include <algorithm>
#include <cstdlib>
#include <random>

#include "attngraph/context.hpp"
#include "plan/call.hpp"
#include "support/catch.hpp"
#include "support/stub_engine.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

/// Exactly `bytes` of 256-byte aligned memory, so that an address sanitizer sees the first byte beyond.
struct Scratch {
  explicit Scratch(int64_t size)
      : bytes(size), data(std::aligned_alloc(256, static_cast<size_t>((size + 256) / 256 * 256))) {}
  ~Scratch() { std::free(data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  operator Workspace() const { return {data, bytes}; }
  int64_t bytes;
  void* data;
};

constexpr int64_t kHeads = 2, kLen = 6, kDim = 4, kToken = kHeads * kDim;

/// A packed forward of up to `batch` sequences in `slots` token slots. Uids: q k v o, offsets, lengths.
Graph packed_graph(int64_t batch, int64_t slots) {
  Graph graph;
  const Uid offsets = graph.vector("offsets", DataType::kI32, batch + 1);
  const Uid lengths = graph.vector("lengths", DataType::kI32, batch);
  const Ragged ragged{offsets, kToken};
  SdpaForward node;
  node.q = graph.tensor("q", DataType::kF32, thd({batch, kHeads, kLen, kDim}), ragged);
  node.k = graph.tensor("k", DataType::kF32, thd({batch, kHeads, kLen, kDim}), ragged);
  node.v = graph.tensor("v", DataType::kF32, thd({batch, kHeads, kLen, kDim}), ragged);
  node.seq_len_q = node.seq_len_kv = lengths;
  node.attributes.band = Band::causal();
  node.attributes.max_total_q = node.attributes.max_total_kv = slots;
  graph.sdpa_forward(node);
  return graph;
}

/// A random packing: lengths, offsets with gaps, and the slots that they take.
struct Packing {
  std::vector<int32_t> lengths, offsets;
  int64_t slots = 0;

  Packing(std::mt19937& random, int64_t max_batch) {
    const int64_t batch = static_cast<int64_t>(random() % static_cast<unsigned>(max_batch + 1));
    for (int64_t b = 0; b < batch; ++b) {
      offsets.push_back(static_cast<int32_t>(slots));
      lengths.push_back(static_cast<int32_t>(random() % (kLen + 1)));
      slots += lengths.back() + static_cast<int64_t>(random() % 3);
    }
    offsets.push_back(static_cast<int32_t>(slots));
  }
};

std::vector<float> run_packing(const Plan& plan, const CallSizes& sizes, Packing& packing,
                               const std::vector<float>& data) {
  const size_t count = static_cast<size_t>(packing.slots * kToken);
  std::vector<float> q(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(count));
  std::vector<float> k = q, v = q, o(count, -7.0F);
  Bindings bindings(plan);
  const auto bind = [&](Uid uid, void* pointer, size_t bytes) {
    REQUIRE(bindings.set({uid, pointer, static_cast<int64_t>(bytes)}).ok());
  };
  bind(1, packing.offsets.data(), packing.offsets.size() * 4);
  bind(2, packing.lengths.data(), packing.lengths.size() * 4);
  Uid uid = 3;
  for (std::vector<float>* tensor : {&q, &k, &v, &o}) bind(uid++, tensor->data(), count * sizeof(float));
  const Scratch scratch(plan.workspace_bytes_for(sizes).value());
  const Status status = execute(plan, bindings, sizes, scratch);
  INFO(status.message());
  REQUIRE(status.ok());
  return o;
}

/// Three forward nodes, each but the first with the o before, a virtual tensor, as its q.
Program chain(int64_t batch) {
  Program program{{}, {false, false, false, true, true, false}};
  for (int n = 0; n < 3; ++n) {
    ProgramNode node = forward_node(batch, 1, 4, 8);
    if (n > 0) node.slots.data[static_cast<size_t>(Role::kQ)] = 2 + n;
    node.slots.data[static_cast<size_t>(Role::kO)] = 3 + n;
    program.nodes.push_back(node);
  }
  return program;
}

}  // namespace

TEST_CASE("1000 random packed batches run through one plan as through plans of their own", "[property]") {
  constexpr int64_t kBatch = 6, kSlots = kBatch * (kLen + 2);
  std::mt19937 random(5);
  std::vector<float> data(static_cast<size_t>(kSlots * kToken));
  std::normal_distribution<float> normal;
  for (float& value : data) value = normal(random);

  Context context, exact_context;
  PlanOptions options;
  options.varying.batch = options.varying.tokens = options.varying.lengths = true;
  options.validate_bindings = true;
  for (int trial = 0; trial < 1000; ++trial) {
    Packing packing(random, kBatch);
    const int64_t batch = static_cast<int64_t>(packing.lengths.size());
    CallSizes sizes;
    sizes.batch = batch;
    sizes.total_q = sizes.total_kv = packing.slots;
    const Plan plan = context.plan(packed_graph(kBatch, kSlots), options).value();
    CHECK(plan.workspace_bytes_for(sizes).value() <= plan.workspace_bytes());
    const Plan exact = exact_context.plan(packed_graph(batch, packing.slots)).value();
    const std::vector<float> got = run_packing(plan, sizes, packing, data);
    const std::vector<float> want = run_packing(exact, {}, packing, data);
    INFO("trial " << trial << ", batch " << batch << ", slots " << packing.slots);
    REQUIRE(got == want);
  }
  CHECK(context.cache_statistics().builds == 1);
}

TEST_CASE("a call's regions are apart, inside, and as large as its sizes ask", "[property]") {
  std::mt19937 random(6);
  for (int trial = 0; trial < 500; ++trial) {
    StubBehaviour behaviour;
    const unsigned seed = static_cast<unsigned>(random());
    behaviour.regions = [seed](const Problem&, const SliceShape& shape) {
      std::mt19937 local(seed);
      std::vector<Booking> bookings(1 + local() % 12);
      for (Booking& booking : bookings) {
        booking.name = "region";
        booking.bytes = static_cast<int64_t>(local() % 2000) * shape.batch;
        booking.lifetime.first = static_cast<int>(local() % 4);
        booking.lifetime.last = booking.lifetime.first + static_cast<int>(local() % 3);
      }
      return bookings;
    };
    PlanOptions options;
    options.varying.batch = true;
    const Plan plan = plan_program(chain(8), options, stub_engines({behaviour})).value();
    const PlanCore& core = *plan.state().core;
    const auto is_virtual = [&](size_t region) {
      return std::any_of(core.virtual_regions.begin(), core.virtual_regions.end(),
                         [&](RegionId id) { return id.index == static_cast<int>(region); });
    };
    int64_t last_bytes = 0;
    for (int64_t batch = 0; batch <= 8; ++batch) {
      CallSizes sizes;
      sizes.batch = batch;
      MovedRegions moved;
      const int64_t bytes = place_call(core, sizes, moved);
      CHECK(bytes >= last_bytes);
      last_bytes = bytes;
      for (size_t i = 0; i < core.workspace.entries().size(); ++i) {
        const Booking& a = core.workspace.entries()[i].booking;
        REQUIRE(moved[i].bytes == (is_virtual(i) ? a.bytes / 8 * batch : a.bytes));
        REQUIRE(moved[i].offset % a.alignment == 0);
        REQUIRE(moved[i].offset <= core.workspace.regions()[i].offset);
        REQUIRE(moved[i].offset + moved[i].bytes <= bytes);
        for (size_t j = 0; j < i; ++j) {
          const Booking& b = core.workspace.entries()[j].booking;
          const bool meet = a.lifetime.first <= b.lifetime.last && b.lifetime.first <= a.lifetime.last;
          const bool share = moved[i].offset < moved[j].offset + moved[j].bytes &&
                             moved[j].offset < moved[i].offset + moved[i].bytes;
          REQUIRE_FALSE((meet && share && moved[i].bytes > 0 && moved[j].bytes > 0));
        }
      }
    }
    CHECK(last_bytes == plan.workspace_bytes());
  }
}

TEST_CASE("sizes that a plan does not declare are refused with both numbers", "[property]") {
  Context context;
  PlanOptions options;
  options.varying.batch = true;
  const Plan plan = context.plan(packed_graph(4, 24), options).value();
  CallSizes tokens, batch;
  tokens.total_q = 8;
  batch.batch = 5;
  CHECK(plan.workspace_bytes_for(tokens).status().message() ==
        "total_q: is 8; the plan takes 24 alone, as its varying options do not name it");
  CHECK(plan.workspace_bytes_for(batch).status().message() == "batch: is 5; must be 0 to 4 as declared");
  options.varying.pages = true;
  CHECK(context.plan(packed_graph(4, 24), options).status().message() ==
        "varying: pages may vary, but node 0 has no page table; only what is bound can vary");
}
