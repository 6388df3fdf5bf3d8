#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/element.hpp"
#include "base/message.hpp"
#include "cli/problem_layout.hpp"
#include "problem/host_rows.hpp"
#include "problem/layout.hpp"
#include "problem/program.hpp"

namespace attngraph::cli {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Values integers(const std::vector<int64_t>& list) {
  Values values;
  for (const int64_t value : list) values.list.push_back({value});
  return values;
}

// --- integer data --------------------------------------------------------------------------------
std::vector<int64_t> lengths_data(const Lengths& lengths) {
  if (lengths.form != Lengths::Form::kCumulative) return lengths.by_batch;
  std::vector<int64_t> sums = {0};
  for (const int64_t len : lengths.by_batch) sums.push_back(sums.back() + len);
  return sums;
}

std::vector<int64_t> offsets_data(const RandomProblem& p, const Tensor& tensor, Role owner) {
  std::vector<int64_t> offsets = token_starts(p, owner);
  const int64_t scale = p[owner].token_offsets ? 1 : tensor.strides[2];
  for (int64_t& offset : offsets) offset *= scale;
  if (p[owner].hostile_offset) offsets.front() = *p[owner].hostile_offset;
  return offsets;
}

/// Pages in random order; columns that no token needs hold junk as often as a page.
std::vector<int64_t> page_table_data(const RandomProblem& p, Role role) {
  Words words(p.seed, kPageStream + static_cast<uint64_t>(role));
  std::vector<int64_t> pages = shuffled(num_pages(p), words);
  const int64_t columns = num_page_columns(p);
  pages.resize(static_cast<size_t>(p.batch * columns));
  for (size_t b = 0; b < p.kv_lengths.by_batch.size(); ++b) {
    if (p.kv_lengths.form == Lengths::Form::kNone) break;
    for (int64_t column = 0; column < columns; ++column)
      if (column * p.page_size >= p.kv_lengths.by_batch[b] && words.one_in(2))
        pages[b * static_cast<size_t>(columns) + static_cast<size_t>(column)] =
            words.one_in(2) ? -5 : 1'000'000;
  }
  if (p.hostile_page != 0 && !pages.empty()) pages.front() = p.hostile_page;
  return pages;
}

/// Integer tensors as the case binds them and as host memory for the addressing functions.
class Integers {
 public:
  explicit Integers(const Graph& graph) : graph_(graph) {}

  void add(Uid uid, const std::vector<int64_t>& list) {
    const Tensor* tensor = graph_.find(uid);
    if (tensor == nullptr) return;
    std::vector<std::byte>& bytes = bytes_[uid];
    bytes.resize(list.size() * static_cast<size_t>(element_bytes(tensor->dtype)));
    for (size_t i = 0; i < list.size(); ++i) {
      const auto narrow = static_cast<int32_t>(list[i]);
      if (tensor->dtype == DataType::kI32) std::memcpy(&bytes[i * sizeof narrow], &narrow, sizeof narrow);
      if (tensor->dtype == DataType::kI64) std::memcpy(&bytes[i * sizeof list[i]], &list[i], sizeof list[i]);
    }
    values_.emplace(uid, integers(list));
  }

  std::byte* data(Uid uid) {
    const auto found = bytes_.find(uid);
    return found == bytes_.end() ? nullptr : found->second.data();
  }
  const std::map<Uid, Values>& values() const { return values_; }

 private:
  const Graph& graph_;
  std::map<Uid, std::vector<std::byte>> bytes_;
  std::map<Uid, Values> values_;
};

void add_all(const RandomProblem& p, const Graph& graph, Integers& all) {
  all.add(uid_of(Role::kSeqLenQ), lengths_data(p.q_lengths));
  all.add(uid_of(Role::kCuSeqLenQ), lengths_data(p.q_lengths));
  all.add(uid_of(Role::kSeqLenKv), lengths_data(p.kv_lengths));
  all.add(uid_of(Role::kCuSeqLenKv), lengths_data(p.kv_lengths));
  all.add(uid_of(Role::kPageTableK), page_table_data(p, Role::kPageTableK));
  all.add(uid_of(Role::kPageTableV), page_table_data(p, Role::kPageTableV));
  all.add(uid_of(Role::kDropoutSeed), {static_cast<int64_t>(p.seed % 100'000)});
  all.add(uid_of(Role::kDropoutOffset), {static_cast<int64_t>(p.seed % 17)});
  for (size_t i = 0; i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    const Tensor* tensor = graph.find(uid_of(role));
    if (tensor == nullptr || !tensor->ragged) continue;
    const Role owner = offsets_owner(p, role);
    if (!p[owner].by_lengths) all.add(tensor->ragged->offsets, offsets_data(p, *tensor, owner));
  }
}

// --- real data -----------------------------------------------------------------------------------
/// Writes the elements of one graph's real inputs that the contract reads into storages of NaN.
class Filler {
 public:
  Filler(const RandomProblem& p, const Graph& graph, const Problem& problem)
      : p_(p), problem_(problem), integers_(graph) {
    add_all(p, graph, integers_);
    for (size_t i = 0; i < kNumRoles; ++i) {
      const Role role = static_cast<Role>(i);
      buffers_.data[i] = integers_.data(uid_of(role));
      buffers_.offsets[i] = integers_.data(offsets_uid_of(p, offsets_owner(p, role)));
    }
    buffers_.bounds = declared_bounds(problem);
    for (int64_t b = 0; b < problem.batch; ++b) lengths_.push_back(host_lengths(problem, buffers_, b));
  }

  std::map<Uid, Source> integer_sources() const {
    std::map<Uid, Source> sources;
    for (const auto& [uid, values] : integers_.values()) sources.emplace(uid, values);
    return sources;
  }

  /// Where the contract reads, every element has a number; NaN elsewhere.
  std::vector<double> fill(Role role) const {
    std::vector<double> storage(static_cast<size_t>(footprint_elems(problem_, role)), kNan);
    if (role == Role::kBias || role == Role::kMask)
      fill_scores(role, storage);
    else if (side_of(role) == Side::kNone)
      fill_all(role, storage);
    else
      fill_rows(role, storage);
    return storage;
  }

 private:
  double draw(Role role, int64_t address) const {
    const uint64_t seed = p_.seed ^ (static_cast<uint64_t>(role) + 1) << 56;
    const double value = normal(seed, static_cast<uint64_t>(address));
    if (role == Role::kAlibiSlopes) return value / 8;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    Words words(~seed, static_cast<uint64_t>(address));
    switch (role) {
      case Role::kMask:
        return words.one_in(4) ? 0 : 1;
      case Role::kBias:
        return words.one_in(12) ? -kInfinity : value;
      case Role::kStatsA:
      case Role::kStatsB:  // spread wide, and rows that saw nothing
        return words.one_in(6) ? (words.one_in(3) ? kInfinity : -kInfinity) : 8 * value;
      default:
        return value;
    }
  }

  void put(Role role, std::vector<double>& storage, int64_t address) const {
    storage[static_cast<size_t>(address)] = draw(role, address);
  }

  void fill_all(Role role, std::vector<double>& storage) const {
    const Operand& t = problem_[role];
    for (int64_t b = 0; b < batch(t); ++b)
      for (int64_t h = 0; h < heads(t); ++h) put(role, storage, b * batch_stride(t) + h * head_stride(t));
  }

  void fill_rows(Role role, std::vector<double>& storage) const {
    const Operand& t = problem_[role];
    for (int64_t b = 0; b < problem_.batch; ++b) {
      const auto& lengths = lengths_[static_cast<size_t>(b)];
      const int64_t rows = side_of(role) == Side::kQ ? lengths.q : lengths.kv;
      const HostRows at = host_rows(problem_, buffers_, role, b);
      for (int64_t h = 0; h < heads(t); ++h)
        for (int64_t i = 0; i < rows; ++i)
          if (const int64_t start = at.row(h, i); start >= 0)
            for (int64_t d = 0; d < dim(t); ++d) put(role, storage, start + d * at.dim_stride);
    }
  }

  /// Bias and mask are read where the band and the lengths leave a key.
  void fill_scores(Role role, std::vector<double>& storage) const {
    const Operand& t = problem_[role];
    if (role == Role::kMask)  // a bool has no NaN
      for (size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<double>(i % 2);
    for (int64_t b = 0; b < problem_.batch; ++b) {
      const auto& lengths = lengths_[static_cast<size_t>(b)];
      for (int64_t i = 0; i < lengths.q; ++i) {
        const KeyRange keys = problem_.band.keys(i, lengths.q, lengths.kv);
        for (int64_t j = keys.begin; j < keys.end; ++j)
          for (int64_t h = 0; h < problem_.q_heads; ++h)
            put(role, storage,
                b * batch_stride(t) + h * head_stride(t) + i * len_stride(t) + j * dim_stride(t));
      }
    }
  }

  const RandomProblem& p_;
  const Problem& problem_;
  Integers integers_;
  Buffers buffers_;
  std::vector<SequenceLengths> lengths_;
};

// --- the case ------------------------------------------------------------------------------------
Values values_of(DataType dtype, const std::vector<double>& storage) {
  Values values;
  for (const double value : storage) {
    if (dtype == DataType::kBool) {
      values.list.push_back({static_cast<int64_t>(value)});
      continue;
    }
    std::array<std::byte, 4> rounded = {};
    write_real(rounded.data(), dtype, 0, value);
    values.list.push_back({read_real(rounded.data(), dtype, 0)});
  }
  return values;
}

/// One graph of a random problem with its data.
class CaseBuilder {
 public:
  explicit CaseBuilder(const RandomProblem& p) : p_(p) {}

  Result<Step> build(Pass pass, const std::map<Uid, Source>& given) const {
    Step step;
    step.text.graph = graph_of(p_, pass);
    const Graph& graph = step.text.graph;
    const Result<ValidatedGraph> validated = validate(graph);
    ATTNGRAPH_RETURN_IF_ERROR(validated.status());
    const Problem& problem = validated->program.nodes.front().problem;
    const Filler filler(p_, graph, problem);
    step.bind = filler.integer_sources();
    for (size_t i = 0; i < kNumRoles; ++i) {
      const Role role = static_cast<Role>(i);
      const Tensor* tensor = graph.find(uid_of(role));
      if (tensor == nullptr || step.bind->contains(tensor->uid)) continue;
      if (is_output(problem, role)) {
        step.expect.emplace(tensor->uid, AsReference{});
        share_output(problem, role, *step.bind);
      } else if (const auto source = given.find(tensor->uid); source != given.end()) {
        step.bind->emplace(*source);
      } else {
        bind_input(filler, *tensor, role, *step.bind);
      }
    }
    return step;
  }

 private:
  void bind_input(const Filler& filler, const Tensor& tensor, Role role, std::map<Uid, Source>& bind) const {
    const std::vector<double> filled = filler.fill(role);
    const std::optional<SharedBuffer> buffer = shared_buffer(p_, role);
    if (!buffer || buffer->owner == role) {
      bind.emplace(tensor.uid, values_of(tensor.dtype, filled));
      return;
    }
    // The owner is bound already: roles ascend. Its storage grows to hold this part.
    std::vector<Number>& storage = std::get<Values>(bind.at(uid_of(buffer->owner))).list;
    const std::vector<Number> part = values_of(tensor.dtype, filled).list;
    const size_t offset = static_cast<size_t>(buffer->offset);
    storage.resize(std::max(storage.size(), offset + part.size()), Number{kNan});
    for (size_t i = 0; i < part.size(); ++i)
      if (!std::isnan(part[i].real())) storage[offset + i] = part[i];
    bind.emplace(tensor.uid, View{uid_of(buffer->owner), buffer->offset});
  }

  void share_output(const Problem& problem, Role role, std::map<Uid, Source>& bind) const {
    const std::optional<SharedBuffer> buffer = shared_buffer(p_, role);
    if (!buffer) return;
    if (buffer->owner != role) {
      bind.emplace(uid_of(role), View{uid_of(buffer->owner), buffer->offset});
      return;
    }
    int64_t count = 0;
    for (size_t i = 0; i < kNumRoles; ++i)
      if (const auto part = shared_buffer(p_, static_cast<Role>(i)); part && part->owner == role)
        count = std::max(count, part->offset + footprint_elems(problem, static_cast<Role>(i)));
    bind.emplace(uid_of(role), Repeated{Number{kNan}, count});
  }

  const RandomProblem& p_;
};

/// An output of the forward as an input of the backward; what was not written stays NaN.
Values values_of(const OutputBits& bits) {
  Values values;
  for (int64_t i = 0; i < bits.num_elems(); ++i) {
    const bool untouched = bits.untouched[static_cast<size_t>(i)];
    values.list.push_back({untouched ? kNan : read_real(bits.bytes.data(), bits.dtype, i)});
  }
  return values;
}

}  // namespace

Result<Case> case_of(const RandomProblem& problem, const Library& library) {
  const CaseBuilder builder(problem);
  Result<Step> step = builder.build(problem.pass == Pass::kMerge ? Pass::kMerge : Pass::kForward, {});
  ATTNGRAPH_RETURN_IF_ERROR(step.status());
  if (problem.pass == Pass::kBackward) {
    std::optional<StepData> data;
    const StepOutcome forward = run_step(library, kReferenceEngine, *step, data);
    if (forward.stop) return forward.stop->why;
    std::map<Uid, Source> given = *step->bind;
    for (const Role role : {Role::kO, Role::kStats})
      given.insert_or_assign(uid_of(role), values_of(forward.outputs.at(uid_of(role))));
    step = builder.build(Pass::kBackward, given);
    ATTNGRAPH_RETURN_IF_ERROR(step.status());
  }
  Case made;
  made.name = text("random problem of seed ", problem.seed);
  made.why = "Found by attngraph sweep.";
  made.steps.push_back(std::move(step).value());
  return made;
}

}  // namespace attngraph::cli
