#include "cli/graph_data.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"
#include "base/message.hpp"
#include "cli/random.hpp"
#include "graph/fields.hpp"
#include "problem/layout.hpp"

namespace attngraph::cli {
namespace {

constexpr uint64_t kLengthStream = 1, kGapStream = 2, kPageStream = 3, kMaskStream = 4;

Values integers(const std::vector<int64_t>& list) {
  Values values;
  for (const int64_t value : list) values.list.push_back({value});
  return values;
}

/// One side of one node: which tensor gives its lengths, and what bounds them.
struct SideOfNode {
  Side side = Side::kNone;
  std::optional<Uid> lengths;
  bool is_cumulative = false;
  int64_t batch = 0, len = 0;
  std::optional<int64_t> slots;  ///< of a ragged side
};

/// One ragged tensor's use of an offset tensor.
struct OffsetUse {
  Uid tensor = 0;
  int64_t token_stride = 0, multiplier = 1;
  size_t side = 0;  ///< in Drawing::sides_
};

class Drawing {
 public:
  Drawing(const Graph& graph, const Plan& plan, const DataOptions& options)
      : graph_(graph), plan_(plan), options_(options) {}

  Result<std::map<Uid, Source>> draw() {
    const Result<ValidatedGraph> validated = validate(graph_);
    ATTNGRAPH_RETURN_IF_ERROR(validated.status());
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      std::visit([&](const auto& node) { add_node(node, validated->program.nodes[i].problem); },
                 graph_.nodes[i]);
    for (const SideOfNode& side : sides_) ATTNGRAPH_RETURN_IF_ERROR(take_lengths(side));
    for (const SideOfNode& side : sides_) draw_lengths(side);
    for (const auto& [uid, uses] : offset_uses_) ATTNGRAPH_RETURN_IF_ERROR(draw_offsets(uid, uses));
    for (const auto& [uid, role] : inputs_) draw_input(uid, role);
    return std::move(sources_);
  }

 private:
  template <class Node>
  void add_node(const Node& node, const Problem& problem) {
    const PortTable table = ports_by_role(node);
    const auto port = [&](Role role) { return table[static_cast<size_t>(role)]; };
    const size_t first = sides_.size();
    for (const Side side : {Side::kQ, Side::kKv}) {
      const bool is_q = side == Side::kQ;
      const Port plain = port(is_q ? Role::kSeqLenQ : Role::kSeqLenKv);
      const Port sums = port(is_q ? Role::kCuSeqLenQ : Role::kCuSeqLenKv);
      sides_.push_back({side, plain ? plain : sums, sums.has_value(), problem.batch,
                        is_q ? problem.q_len : problem.kv_len, std::nullopt});
    }
    ports(node, [&](Role role, const Port& used, bool is_output) {
      if (!used) return;
      const Tensor& tensor = *graph_.find(*used);
      if (is_output)
        made_.push_back(*used);
      else if (std::find(made_.begin(), made_.end(), *used) == made_.end())
        inputs_.emplace(*used, role);
      if (!tensor.ragged) return;
      const size_t side = first + (side_of(role) == Side::kQ ? 0 : 1);
      sides_[side].slots = sides_[side].side == Side::kQ ? problem.q_slots : problem.kv_slots;
      offset_uses_[tensor.ragged->offsets].push_back(
          {*used, len_stride(problem[role]), tensor.ragged->multiplier, side});
    });
  }

  Status take_lengths(const SideOfNode& side) {
    const auto& given = side.side == Side::kQ ? options_.q_lengths : options_.kv_lengths;
    if (!side.lengths || !given) return {};
    ATTNGRAPH_RETURN_IF_ERROR(check_given(*given, side));
    if (lengths_.emplace(*side.lengths, *given).first->second != *given)
      return fail(Code::kInvalidGraph, "kv lengths: differ from the q lengths; must be equal, tensor ",
                  *side.lengths, " gives both");
    bind_lengths(*side.lengths, side.is_cumulative, *given);
    return {};
  }

  /// Lengths that fill three quarters of the slots on average.
  void draw_lengths(const SideOfNode& side) {
    if (!side.lengths || lengths_.contains(*side.lengths)) return;
    std::vector<int64_t>& list = lengths_[*side.lengths];
    Words words(options_.seed, kLengthStream + static_cast<uint64_t>(*side.lengths) * 16);
    int64_t free = side.slots.value_or(side.batch * side.len);
    for (int64_t b = 0; b < side.batch; ++b) {
      const int64_t fair = std::min(side.len, free / (side.batch - b));
      list.push_back(words.between(fair / 2, fair));
      free -= list.back();
    }
    bind_lengths(*side.lengths, side.is_cumulative, list);
  }

  static Status check_given(const std::vector<int64_t>& given, const SideOfNode& side) {
    const char* name = side.side == Side::kQ ? "q lengths" : "kv lengths";
    if (static_cast<int64_t>(given.size()) != side.batch)
      return fail(Code::kInvalidGraph, name, ": has ", given.size(), " entries; must have ", side.batch);
    int64_t sum = 0;
    for (const int64_t len : given) {
      if (len < 0 || len > side.len)
        return fail(Code::kInvalidGraph, name, ": has ", len, "; must be within 0 .. ", side.len);
      sum += len;
    }
    if (side.slots && sum > *side.slots)
      return fail(Code::kInvalidGraph, name, ": sum to ", sum, "; must be at most the capacity ",
                  *side.slots);
    return {};
  }

  void bind_lengths(Uid uid, bool is_cumulative, const std::vector<int64_t>& list) {
    if (!is_cumulative) {
      sources_.insert_or_assign(uid, integers(list));
      return;
    }
    std::vector<int64_t> sums(list.size() + 1, 0);
    std::partial_sum(list.begin(), list.end(), sums.begin() + 1);
    sources_.insert_or_assign(uid, integers(sums));
  }

  /// Starts of sequences in units of the offsets, which all tensors that share them agree on.
  Status draw_offsets(Uid uid, const std::vector<OffsetUse>& uses) {
    if (sources_.contains(uid)) return {};  // cu lengths: the sequences lie without gaps
    const OffsetUse& first = uses.front();
    const SideOfNode& side = sides_[first.side];
    const std::vector<int64_t>& lengths = lengths_.at(*side.lengths);
    for (const OffsetUse& use : uses)
      if (use.multiplier * first.token_stride != first.multiplier * use.token_stride)
        return fail(Code::kInvalidGraph, "tensor ", use.tensor, ": has multiplier ", use.multiplier,
                    " and token stride ", use.token_stride, "; must have the ratio of tensor ", first.tensor,
                    ", which shares its offsets");
    // One token is `per_token / divisor` units; starts are multiples of `divisor` tokens.
    const int64_t common = std::gcd(first.token_stride, first.multiplier);
    const int64_t per_token = common == 0 ? 1 : first.token_stride / common;
    const int64_t divisor = common == 0 ? 1 : first.multiplier / common;
    Words words(options_.seed, kGapStream + static_cast<uint64_t>(uid) * 16);
    const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    int64_t free = *side.slots - total, end = 0;
    std::vector<int64_t> offsets;
    for (const int64_t len : lengths) {
      const int64_t gap = words.between(0, std::min(options_.max_gap, free));
      const int64_t start = round_up(end + gap, divisor);
      free -= start - end;
      if (free < 0)
        return fail(Code::kInvalidGraph, "tensor ", uid, ": sequences begin at multiples of ", divisor,
                    " tokens; the capacity ", *side.slots, " must leave room for that");
      offsets.push_back(start / divisor * per_token);
      end = start + len;
    }
    offsets.push_back(ceil_div(end, divisor) * per_token);
    sources_.insert_or_assign(uid, integers(offsets));
    return {};
  }

  void draw_input(Uid uid, Role role) {
    const Tensor& tensor = *graph_.find(uid);
    if (tensor.is_virtual || sources_.contains(uid)) return;
    const int64_t count = plan_.footprint_bytes(uid) / element_bytes(tensor.dtype);
    const uint64_t stream = static_cast<uint64_t>(uid) * 16;
    if (role == Role::kPageTableK || role == Role::kPageTableV) {
      sources_.insert_or_assign(uid, integers(draw_pages(role, count)));
    } else if (role == Role::kDropoutSeed || role == Role::kDropoutOffset) {
      sources_.insert_or_assign(uid,
                                integers(std::vector<int64_t>(static_cast<size_t>(count),
                                                              static_cast<int64_t>(options_.seed % 65'536))));
    } else if (role == Role::kMask) {
      Words words(options_.seed, kMaskStream + stream);
      std::vector<int64_t> bits(static_cast<size_t>(count));
      for (int64_t& keeps : bits) keeps = words.one_in(10) ? 0 : 1;
      sources_.insert_or_assign(uid, integers(bits));
    } else {
      sources_.insert_or_assign(uid, Random{options_.seed ^ stream << 40, count});
    }
  }

  /// Each page once, in random order; again from the start when the container has too few.
  std::vector<int64_t> draw_pages(Role role, int64_t count) const {
    const int64_t num_pages = pages_of(role);
    Words words(options_.seed, kPageStream);
    std::vector<int64_t> pages(static_cast<size_t>(num_pages));
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto other = static_cast<size_t>(words.below(static_cast<int64_t>(i) + 1));
      pages[i] = pages[other];
      pages[other] = static_cast<int64_t>(i);
    }
    std::vector<int64_t> table(static_cast<size_t>(count), 0);
    for (size_t i = 0; i < table.size() && !pages.empty(); ++i) table[i] = pages[i % pages.size()];
    return table;
  }

  int64_t pages_of(Role role) const {
    const Role container = role == Role::kPageTableK ? Role::kK : Role::kV;
    for (const auto& [uid, used_as] : inputs_)
      if (used_as == container) return graph_.find(uid)->dims[0];
    return 0;
  }

  const Graph& graph_;
  const Plan& plan_;
  const DataOptions& options_;
  std::vector<SideOfNode> sides_;
  std::map<Uid, std::vector<OffsetUse>> offset_uses_;
  std::map<Uid, std::vector<int64_t>> lengths_;
  std::map<Uid, Role> inputs_;
  std::vector<Uid> made_;  ///< by nodes before
  std::map<Uid, Source> sources_;
};

}  // namespace

Result<std::map<Uid, Source>> draw_data(const Graph& graph, const Plan& plan, const DataOptions& options) {
  return Drawing(graph, plan, options).draw();
}

}  // namespace attngraph::cli
