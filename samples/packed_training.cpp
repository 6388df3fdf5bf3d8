// A training step over packed sequences with gaps between them: K and V are two views of one
// interleaved buffer, so are their gradients, and stats lie head by head. Then each sequence alone,
// as a dense step over the same memory, gives the same. graphs/packed_training.json is this graph.
#include "support.hpp"

using namespace attngraph;

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 16;
constexpr int64_t kSlots = 24;  // token slots of every buffer, gaps included

struct Buffers {
  std::vector<float> q = random_floats(kSlots * kHeads * kDim, 1),
                     dout = random_floats(kSlots * kHeads * kDim, 2);
  std::vector<float> kv = random_floats(kSlots * 2 * kKvHeads * kDim, 3);
  std::vector<float> o = std::vector<float>(q.size()), dq = o, dkv = std::vector<float>(kv.size());
  std::vector<float> stats = std::vector<float>(kHeads * kSlots);
};

/// One step over sequences of at most `longest` tokens, packed as `lengths` and `offsets` say; without
/// lengths over a single one, `longest` tokens from slot `offsets[0]` on.
void run_step(Context& context, Buffers& memory, int64_t longest, std::vector<int> lengths,
              std::vector<int> offsets) {
  const bool packed = !lengths.empty();
  const int64_t batch = packed ? static_cast<int64_t>(lengths.size()) : 1, first = packed ? 0 : offsets[0];
  Graph graph;
  SdpaForward forward;
  const Uid token_offsets = graph.vector("token_offsets", DataType::kI32, batch + 1);
  if (packed) forward.seq_len_q = forward.seq_len_kv = graph.vector("seq_len", DataType::kI32, batch);
  if (packed) forward.attributes.max_total_q = forward.attributes.max_total_kv = kSlots;
  forward.attributes.band = Band::causal();
  const auto add = [&](const char* name, const Layout& layout) {
    return packed ? graph.tensor(name, DataType::kF32, layout, Ragged{token_offsets, layout.token_stride()})
                  : graph.tensor(name, DataType::kF32, layout);
  };
  const Layout q = thd({batch, kHeads, longest, kDim});
  const Layout k = interleaved({batch, kKvHeads, longest, kDim}, 2, 0);
  const Layout v = interleaved({batch, kKvHeads, longest, kDim}, 2, 1);
  const Layout stats = stats_head_major(batch, kHeads, longest, kSlots);
  forward.q = add("q", q), forward.k = add("k", k), forward.v = add("v", v),
  forward.stats = add("stats", stats);
  graph.sdpa_forward(forward);

  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  const TrainingPair pair = require(training_pair(graph, wanted));
  const SdpaBackward& step = std::get<SdpaBackward>(pair.backward.nodes[0]);
  const auto view = [&](Port tensor, std::vector<float>& buffer, const Layout& layout) {
    return Binding(*tensor, buffer.data() + layout.offset + first * layout.token_stride());
  };
  std::vector<Binding> bindings = {view(step.q, memory.q, q),   view(step.k, memory.kv, k),
                                   view(step.v, memory.kv, v),  view(step.stats, memory.stats, stats),
                                   view(step.o, memory.o, q),   view(step.dout, memory.dout, q),
                                   view(step.dq, memory.dq, q), view(step.dk, memory.dkv, k),
                                   view(step.dv, memory.dkv, v)};
  if (packed) bindings.emplace_back(token_offsets, offsets), bindings.emplace_back(*step.seq_len_q, lengths);
  for (const Graph* pass : {&pair.forward, &pair.backward}) {
    const Plan plan = require(context.plan(*pass));
    Bindings table(plan);
    for (const Binding& binding : bindings)
      if (plan.slot(binding.uid) >= 0) require(table.set(binding));
    require(execute(plan, table, HostWorkspace(plan)));
  }
}

int main() {
  // Offsets are multiples of 4 because the views of single sequences must be 16-byte aligned, too.
  const std::vector<int> lengths = {7, 0, 4, 5}, offsets = {4, 12, 12, 16, 24};
  Context context;
  Buffers packed, alone;
  run_step(context, packed, 7, lengths, offsets);
  for (size_t b = 0; b < lengths.size(); ++b) run_step(context, alone, lengths[b], {}, {offsets[b]});

  // Gaps were zero and nobody wrote to them, so whole buffers compare.
  require_close("o", packed.o, alone.o, 1e-4), require_close("stats", packed.stats, alone.stats, 1e-4);
  require_close("dq", packed.dq, alone.dq, 1e-4), require_close("dkv", packed.dkv, alone.dkv, 1e-4);
  std::puts("packed_training: each sequence alone gives the same");
}
