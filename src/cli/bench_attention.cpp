#include "cli/bench_attention.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/element.hpp"
#include "base/message.hpp"
#include "cli/random.hpp"
#include "plan/planner.hpp"

namespace attngraph::cli {
namespace {

Band band_of(const AttentionCase& problem) {
  if (problem.mask == BenchMask::kFull) return {};
  Band band = Band::causal();
  if (problem.mask == BenchMask::kWindow) band.left = kWindowKeys - 1;
  return band;
}

int64_t gap_slots(const AttentionCase& problem) {
  return problem.packing == BenchPacking::kPackedWithGaps ? kGapSlots : 0;
}

std::span<const int64_t> packed_lens(const AttentionCase& problem) {
  if (problem.packing == BenchPacking::kOneLong) return kOneLongLens;
  return kPackedLens;
}

int64_t capacity(const AttentionCase& problem) {
  const std::span<const int64_t> lens = packed_lens(problem);
  return std::accumulate(lens.begin(), lens.end(), int64_t{0}) +
         gap_slots(problem) * static_cast<int64_t>(lens.size());
}

std::vector<int32_t> packed_offsets(const AttentionCase& problem) {
  const int64_t gap = gap_slots(problem);
  std::vector<int32_t> offsets;
  int64_t end = 0;
  for (const int64_t len : packed_lens(problem)) {
    offsets.push_back(static_cast<int32_t>(end + gap));
    end += gap + len;
  }
  offsets.push_back(static_cast<int32_t>(end));
  return offsets;
}

std::vector<int32_t> kv_lens(const AttentionCase& problem) {
  if (is_packed(problem)) {
    const std::span<const int64_t> lens = packed_lens(problem);
    return {lens.begin(), lens.end()};
  }
  std::vector<int32_t> lens(static_cast<size_t>(problem.batch), static_cast<int32_t>(problem.kv_len));
  if (problem.packing != BenchPacking::kUnequal) return lens;
  for (size_t i = 0; i < lens.size(); ++i)
    lens[i] = static_cast<int32_t>(problem.kv_len / problem.batch * static_cast<int64_t>(i + 1));
  Words words(/*seed=*/1, /*stream=*/1);
  std::vector<int32_t> mixed;
  for (const int64_t i : shuffled(problem.batch, words)) mixed.push_back(lens[static_cast<size_t>(i)]);
  return mixed;
}

double kept_elements(const AttentionCase& problem) {
  const Band band = band_of(problem);
  int64_t kept = 0;
  for (const int64_t kv_len : kv_lens(problem)) {
    const int64_t q_len = is_packed(problem) ? kv_len : problem.q_len;
    for (int64_t row = 0; row < q_len; ++row) {
      const KeyRange keys = band.keys(row, q_len, kv_len);
      kept += keys.end - keys.begin;
    }
  }
  return static_cast<double>(kept * problem.q_heads);
}

/// Workspace of the plan that runs in `chunks` chunks, if a budget of so many bytes leads to it.
Result<int64_t> bytes_in_chunks(const Plan& plan, int64_t chunks) {
  const Result<std::vector<CurvePoint>> curve = workspace_curve(*plan.state().core);
  ATTNGRAPH_RETURN_IF_ERROR(curve.status());
  int64_t fewer = std::numeric_limits<int64_t>::max();
  for (const CurvePoint& point : *curve) {
    if (point.slices == chunks && point.bytes < fewer) return point.bytes;
    fewer = std::min(fewer, point.bytes);
  }
  return fail(Code::kUnsupported, "chunks: are ", chunks, "; no smaller workspace leads to as many");
}

/// N(0,1), of bools and integers whether it is positive, repeated with a period that no extent divides.
void fill_random(std::byte* data, DataType dtype, int64_t bytes, uint64_t seed) {
  constexpr int64_t kPeriod = 65'521;  // prime
  const int64_t size = element_bytes(dtype), count = std::min(kPeriod, bytes / size);
  for (int64_t i = 0; i < count; ++i) {
    const double x = normal(seed, static_cast<uint64_t>(i));
    if (dtype == DataType::kBool || dtype == DataType::kI64)
      std::memset(data + i * size, x > 0 ? 1 : 0, static_cast<size_t>(size));
    else
      write_real(data, dtype, i, x);
  }
  for (int64_t done = count * element_bytes(dtype); done < bytes;) {
    const int64_t block = std::min(done, bytes - done);
    std::memcpy(data + done, data, static_cast<size_t>(block));
    done += block;
  }
}

/// Containers that hold just the keys of all sequences.
void add_pages(const AttentionCase& problem, SdpaForward& node, BenchGraph& made) {
  const int64_t columns = problem.kv_len / problem.page_size, pages = problem.batch * columns;
  const auto add = [&](const char* name, int64_t dim) {
    return made.graph.tensor(name, problem.dtype, bshd({pages, problem.kv_heads, problem.page_size, dim}));
  };
  node.k = add("k", problem.dim), node.v = add("v", problem.v_dim);
  made.page_table = made.graph.tensor("page_table", DataType::kI32, dense({problem.batch, columns}));
  node.page_table_k = node.page_table_v = made.page_table;
  Words words(/*seed=*/1, /*stream=*/0);
  for (const int64_t page : shuffled(pages, words)) made.pages.push_back(static_cast<int32_t>(page));
}

void add_scores(const AttentionCase& problem, Graph& graph, SdpaForward& node) {
  const int64_t q_len = problem.q_len, kv_len = problem.kv_len;
  switch (problem.scores) {
    case BenchScores::kPlain:
      return;
    case BenchScores::kSoftcap:
      node.attributes.softcap = kCap;
      return;
    case BenchScores::kMask:
      node.mask = graph.tensor("mask", DataType::kBool, bhsd({problem.batch, 1, q_len, kv_len}));
      return;
    case BenchScores::kBias:
    case BenchScores::kDbias:
      node.bias = graph.tensor("bias", problem.dtype, bhsd({1, problem.q_heads, q_len, kv_len}));
      return;
    case BenchScores::kDropout:
      node.attributes.dropout_p = kDroppedShare;
      node.dropout_seed = graph.vector("seed", DataType::kI64, 1);
      return;
  }
}

}  // namespace

BenchGraph forward_graph(const AttentionCase& problem) {
  BenchGraph made;
  SdpaForward node;
  std::optional<Uid> offsets;
  node.attributes.band = band_of(problem);
  node.attributes.deterministic = problem.deterministic;
  if (is_packed(problem) || problem.packing == BenchPacking::kUnequal) {
    made.lengths = made.graph.vector("seq_len", DataType::kI32, problem.batch);
    made.length_values = kv_lens(problem);
    node.seq_len_kv = made.lengths;
  }
  if (is_packed(problem)) {
    made.offsets = made.graph.vector("token_offsets", DataType::kI32, problem.batch + 1);
    offsets = made.offsets;
    made.offset_values = packed_offsets(problem);
    node.seq_len_q = made.lengths;
    node.attributes.max_total_q = node.attributes.max_total_kv = capacity(problem);
  }
  const auto ragged = [&](int64_t multiplier) {
    return offsets ? std::optional(Ragged{*offsets, multiplier}) : std::nullopt;
  };
  const auto add = [&](const char* name, int64_t heads, int64_t len, int64_t dim) {
    const Shape shape{problem.batch, heads, len, dim};
    const Layout layout = problem.packing == BenchPacking::kHeadsFirst ? bhsd(shape) : bshd(shape);
    return made.graph.tensor(name, problem.dtype, layout, ragged(layout.token_stride()));
  };
  node.q = add("q", problem.q_heads, problem.q_len, problem.dim);
  if (problem.page_size > 0) {
    add_pages(problem, node, made);
  } else {
    node.k = add("k", problem.kv_heads, problem.kv_len, problem.dim);
    node.v = add("v", problem.kv_heads, problem.kv_len, problem.v_dim);
  }
  if (problem.packing == BenchPacking::kPackedWithGaps && problem.pass == Pass::kBackward)
    node.stats = made.graph.tensor(
        "stats", DataType::kF32,
        stats_head_major(problem.batch, problem.q_heads, problem.q_len, capacity(problem)), ragged(1));
  add_scores(problem, made.graph, node);
  made.graph.sdpa_forward(node);
  return made;
}

Result<TrainingPair> bench_pair(const AttentionCase& problem, const Graph& forward) {
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  wanted.bias = problem.scores == BenchScores::kDbias;
  return training_pair(forward, wanted);
}

double attention_flops(const AttentionCase& problem) {
  const int64_t columns =
      problem.pass == Pass::kForward ? problem.dim + problem.v_dim : 3 * problem.dim + 2 * problem.v_dim;
  return 2 * static_cast<double>(columns) * kept_elements(problem);
}

double kv_bytes(const AttentionCase& problem) {
  const std::vector<int32_t> lens = kv_lens(problem);
  return static_cast<double>(std::accumulate(lens.begin(), lens.end(), int64_t{0}) * problem.kv_heads *
                             (problem.dim + problem.v_dim) * element_bytes(problem.dtype));
}

Result<std::byte*> AttentionBench::allocate(const Tensor& tensor, const Plan& plan,
                                            const BenchGraph& source) {
  if (const auto known = memory_.find(tensor.uid); known != memory_.end()) return known->second.data();
  const int64_t bytes = plan.footprint_bytes(tensor.uid);
  Result<MirroredMemory> made = MirroredMemory::allocate(plan.state().core->target.memory, bytes);
  ATTNGRAPH_RETURN_IF_ERROR(made.status());
  MirroredMemory& memory = memory_[tensor.uid] = std::move(made).value();
  std::vector<int32_t> integers;
  if (tensor.uid == source.lengths) integers = source.length_values;
  if (tensor.uid == source.offsets) integers = source.offset_values;
  if (tensor.uid == source.page_table) integers = source.pages;
  if (integers.empty())
    fill_random(memory.host().data(), tensor.dtype, bytes, static_cast<uint64_t>(tensor.uid));
  else
    std::memcpy(memory.host().data(), integers.data(), static_cast<size_t>(bytes));
  ATTNGRAPH_RETURN_IF_ERROR(memory.upload());
  return memory.data();
}

Status AttentionBench::bind(const Graph& graph, const Plan& plan, const BenchGraph& source) {
  auto bindings = std::make_unique<Bindings>(plan);
  for (const Tensor& tensor : graph.tensors) {
    if (plan.slot(tensor.uid) < 0) continue;
    const Result<std::byte*> data = allocate(tensor, plan, source);
    ATTNGRAPH_RETURN_IF_ERROR(data.status());
    ATTNGRAPH_RETURN_IF_ERROR(bindings->set({tensor.uid, *data, plan.footprint_bytes(tensor.uid)}));
  }
  Result<MirroredMemory> workspace =
      MirroredMemory::allocate(plan.state().core->target.memory, plan.workspace_bytes());
  ATTNGRAPH_RETURN_IF_ERROR(workspace.status());
  ATTNGRAPH_RETURN_IF_ERROR(wait_for(plan.state().core->target.memory));  // the old one may be in use
  workspace_ = std::move(workspace).value();
  bindings_ = std::move(bindings);
  return {};
}

Status AttentionBench::autotune(const Graph& graph, Context& context, const BenchGraph& source) {
  constexpr int64_t kSpareBytes = int64_t{256} << 20;  // for ways that take more than the first one
  const Plan plan = bindings_->plan();
  const int64_t bytes = plan.workspace_bytes() + kSpareBytes;
  const Result<MirroredMemory> workspace = MirroredMemory::allocate(plan.state().core->target.memory, bytes);
  ATTNGRAPH_RETURN_IF_ERROR(workspace.status());
  const Result<Plan> tuned = context.autotune(plan, *bindings_, {workspace->data(), bytes});
  ATTNGRAPH_RETURN_IF_ERROR(tuned.status());
  return bind(graph, *tuned, source);
}

Result<std::shared_ptr<const AttentionBench>> AttentionBench::make(const AttentionCase& problem,
                                                                   const BenchSetup& setup, int64_t chunks) {
  const BenchGraph source = forward_graph(problem);
  auto made = std::make_shared<AttentionBench>();
  PlanOptions options;
  options.engine = setup.engine;
  Graph timed = source.graph;
  if (problem.pass == Pass::kBackward) {
    Result<TrainingPair> pair = bench_pair(problem, source.graph);
    ATTNGRAPH_RETURN_IF_ERROR(pair.status());
    const Result<Plan> forward = setup.context.plan(pair->forward, setup.target, options);
    ATTNGRAPH_RETURN_IF_ERROR(forward.status());
    ATTNGRAPH_RETURN_IF_ERROR(made->bind(pair->forward, *forward, source));
    ATTNGRAPH_RETURN_IF_ERROR(made->run());
    timed = std::move(pair->backward);
  }
  Result<Plan> plan = setup.context.plan(timed, setup.target, options);
  if (plan.ok() && chunks > 1) {
    const Result<int64_t> budget = bytes_in_chunks(*plan, chunks);
    ATTNGRAPH_RETURN_IF_ERROR(budget.status());
    options.max_workspace_bytes = *budget;
    plan = setup.context.plan(timed, setup.target, options);
  }
  ATTNGRAPH_RETURN_IF_ERROR(plan.status());
  ATTNGRAPH_RETURN_IF_ERROR(made->bind(timed, *plan, source));
  if (setup.autotunes) ATTNGRAPH_RETURN_IF_ERROR(made->autotune(timed, setup.context, source));
  return std::shared_ptr<const AttentionBench>(std::move(made));
}

Result<Timing> time_attention(const AttentionCase& problem, const BenchSetup& setup, int64_t chunks) {
  auto bench = AttentionBench::make(problem, setup, chunks);
  ATTNGRAPH_RETURN_IF_ERROR(bench.status());
  Timing timing;
  const bool is_decode = problem.q_len == 1;
  timing.unit = is_decode ? "GB/s" : "GFLOP/s";
  timing.work = is_decode ? kv_bytes(problem) : attention_flops(problem);
  const auto run = [bench = std::move(bench).value()] { return bench->run(); };
  constexpr int64_t kBackToBack = 5;  // launches a sample: the gaps between them are the device's own
  timing.seconds =
      setup.target.memory == MemoryKind::kHost ? average_of(1, run) : device_average_of(kBackToBack, run);
  return timing;
}

}  // namespace attngraph::cli
