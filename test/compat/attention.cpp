#include "compat/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace attngraph::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Of 3 heads: 2^(-8 * 1/2), 2^(-8 * 2/2), then half a step before the first.
constexpr double kSlopesOfThree[] = {1.0 / 16, 1.0 / 256, 1.0 / 4};

struct Row {
  int64_t b, h, i;
};

double score(const Attention& a, Row r, int64_t j) {
  const int64_t kv_head = r.h / (a.heads / a.kv_heads);
  const int64_t nq = a.q_lengths.empty() ? a.q_len : a.q_lengths[static_cast<size_t>(r.b)];
  const int64_t nk = a.kv_lengths.empty() ? a.kv_len : a.kv_lengths[static_cast<size_t>(r.b)];
  const int64_t i = r.i + (a.bottom_right ? nk - nq : 0);
  if (r.i >= nq || j >= nk) return -kInfinity;
  if (a.right && j > i + *a.right) return -kInfinity;
  if (a.left && j + *a.left <= i) return -kInfinity;
  double x = 0;
  for (int64_t d = 0; d < a.dim; ++d)
    x += double{a.q[static_cast<size_t>(((r.b * a.heads + r.h) * a.q_len + r.i) * a.dim + d)]} *
         double{a.k[static_cast<size_t>(((r.b * a.kv_heads + kv_head) * a.kv_len + j) * a.dim + d)]};
  x *= double{a.scale.value_or(1.0F)};
  if (a.softcap > 0) x = double{a.softcap} * std::tanh(x / double{a.softcap});
  if (!a.bias.empty()) x += double{a.bias[static_cast<size_t>((r.h * a.q_len + r.i) * a.kv_len + j)]};
  if (a.alibi) x += kSlopesOfThree[r.h] * static_cast<double>(j - r.i);
  return x;
}

/// The logarithm of the row's sum, and o through `add`.
template <class Add>
double attend(const Attention& a, Row row, Add&& add) {
  double most = a.sink.empty() ? -kInfinity : double{a.sink[static_cast<size_t>(row.h)]};
  const int64_t nq = a.q_lengths.empty() ? a.q_len : a.q_lengths[static_cast<size_t>(row.b)];
  if (row.i >= nq) return -kInfinity;
  for (int64_t j = 0; j < a.kv_len; ++j) most = std::max(most, score(a, row, j));
  if (most == -kInfinity) return most;
  double sum = a.sink.empty() ? 0 : std::exp(double{a.sink[static_cast<size_t>(row.h)]} - most);
  for (int64_t j = 0; j < a.kv_len; ++j) sum += std::exp(score(a, row, j) - most);
  for (int64_t j = 0; j < a.kv_len; ++j) add(j, std::exp(score(a, row, j) - most) / sum);
  return most + std::log(sum);
}

/// o and stats in double.
struct Exact {
  std::vector<double> o, stats;
};
Exact exact(const Attention& a) {
  Exact made;
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t h = 0; h < a.heads; ++h)
      for (int64_t i = 0; i < a.q_len; ++i) {
        std::vector<double> o(static_cast<size_t>(a.dim));
        const int64_t kv_head = h / (a.heads / a.kv_heads);
        made.stats.push_back(attend(a, {b, h, i}, [&](int64_t j, double p) {
          for (int64_t d = 0; d < a.dim; ++d)
            o[static_cast<size_t>(d)] +=
                p * double{a.v[static_cast<size_t>(((b * a.kv_heads + kv_head) * a.kv_len + j) * a.dim + d)]};
        }));
        made.o.insert(made.o.end(), o.begin(), o.end());
      }
  return made;
}

double loss(const Attention& a) {
  const Exact made = exact(a);
  double sum = 0;
  for (size_t at = 0; at < made.o.size(); ++at) sum += made.o[at] * double{a.o_gradient[at]};
  return sum;
}

std::vector<int64_t> packed(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t axis = dims.size(); axis-- > 0;) strides[axis] = stride, stride *= dims[axis];
  return strides;
}

}  // namespace

void Attention::draw(uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& values, int64_t count) {
    values.resize(static_cast<size_t>(count));
    for (float& value : values) value = normal(generator);
  };
  fill(q, batch * heads * q_len * dim), fill(o_gradient, batch * heads * q_len * dim);
  fill(k, batch * kv_heads * kv_len * dim), fill(v, batch * kv_heads * kv_len * dim);
}

Output documented(const Attention& a) {
  const Exact made = exact(a);
  return {{made.o.begin(), made.o.end()}, {made.stats.begin(), made.stats.end()}};
}

double slope(Attention a, std::vector<float> Attention::*of, size_t at) {
  const float middle = (a.*of)[at], step = 1e-2F;
  (a.*of)[at] = middle + step;
  const double above = loss(a), up = double{(a.*of)[at]};
  (a.*of)[at] = middle - step;
  return (above - loss(a)) / (up - double{(a.*of)[at]});
}

Tensor_t add(fe::graph::Graph& graph, int64_t uid, const std::vector<int64_t>& dims, fe::DataType_t type) {
  return graph.tensor(
      fe::graph::Tensor_attributes().set_uid(uid).set_dim(dims).set_stride(packed(dims)).set_data_type(type));
}

fe::graph::Graph host_graph() {
  fe::graph::Graph graph;
  graph.set_io_data_type(fe::DataType_t::FLOAT)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  fe::graph::Attngraph_options options;
  options.target = Target::cpu(1);
  graph.set_attngraph_options(options);
  return graph;
}

void mark_output(const Tensor_t& tensor, int64_t uid, const std::vector<int64_t>& dims) {
  tensor->set_output(true).set_uid(uid).set_dim(dims).set_stride(packed(dims));
}

std::vector<int64_t> dims_q(const Attention& a) { return {a.batch, a.heads, a.q_len, a.dim}; }
std::vector<int64_t> dims_kv(const Attention& a) { return {a.batch, a.kv_heads, a.kv_len, a.dim}; }

template <class Options>
Options options_of(const Attention& a, fe::graph::Graph& graph) {
  Options options;
  options.set_name("attention").set_alibi_mask(a.alibi);
  if (a.scale) options.set_attn_scale(*a.scale);
  if (a.left) options.set_diagonal_band_left_bound(*a.left);
  if (a.right) options.set_diagonal_band_right_bound(*a.right);
  if (a.bottom_right) options.set_diagonal_alignment(fe::DiagonalAlignment_t::BOTTOM_RIGHT);
  if (!a.q_lengths.empty())
    options.set_padding_mask(true)
        .set_seq_len_q(add(graph, kLenQ, {a.batch, 1, 1, 1}, fe::DataType_t::INT32))
        .set_seq_len_kv(add(graph, kLenKv, {a.batch, 1, 1, 1}, fe::DataType_t::INT32));
  if (!a.bias.empty()) options.set_bias(add(graph, kBias, {1, a.heads, a.q_len, a.kv_len}));
  if (!a.sink.empty()) options.set_sink_token(add(graph, kSink, {1, a.heads, 1, 1}));
  if (a.softcap > 0) {
    const Tensor_t scalar = graph.tensor(a.softcap);
    const auto softcap = std::make_shared<fe::graph::attn::score_modifiers::Softcap>();
    options.set_score_mod([=](std::shared_ptr<fe::graph::Graph> recorder, Tensor_t score) {
      return softcap->forward(recorder, score, scalar);
    });
    if constexpr (std::is_same_v<Options, fe::graph::SDPA_backward_attributes>)
      options.set_score_mod_bprop([=](std::shared_ptr<fe::graph::Graph> recorder, Tensor_t gradient) {
        return softcap->backward(recorder, gradient, scalar);
      });
  }
  return options;
}
template fe::graph::SDPA_attributes options_of(const Attention&, fe::graph::Graph&);
template fe::graph::SDPA_backward_attributes options_of(const Attention&, fe::graph::Graph&);

fe::graph::Graph forward(const Attention& a) {
  fe::graph::Graph graph = host_graph();
  const auto options = options_of<fe::graph::SDPA_attributes>(a, graph).set_generate_stats(true);
  const auto [o, stats] =
      graph.sdpa(add(graph, kQ, dims_q(a)), add(graph, kK, dims_kv(a)), add(graph, kV, dims_kv(a)), options);
  mark_output(o, kO, dims_q(a));
  stats->set_output(true).set_uid(kStats).set_data_type(fe::DataType_t::FLOAT);
  return graph;
}

fe::graph::Graph backward(const Attention& a) {
  fe::graph::Graph graph = host_graph();
  auto options = options_of<fe::graph::SDPA_backward_attributes>(a, graph);
  if (!a.bias.empty()) options.set_dbias(add(graph, kDbias, {1, a.heads, a.q_len, a.kv_len}));
  if (!a.sink.empty()) options.set_dsink_token(add(graph, kDsink, {1, a.heads, 1, 1}));
  const auto [dq, dk, dv] =
      graph.sdpa_backward(add(graph, kQ, dims_q(a)), add(graph, kK, dims_kv(a)), add(graph, kV, dims_kv(a)),
                          add(graph, kO, dims_q(a)), add(graph, kDo, dims_q(a)),
                          add(graph, kStats, {a.batch, a.heads, a.q_len, 1}), options);
  mark_output(dq, kDq, dims_q(a)), mark_output(dk, kDk, dims_kv(a)), mark_output(dv, kDv, dims_kv(a));
  return graph;
}

Scratch::Scratch(const fe::graph::Graph& graph)
    : storage_(static_cast<size_t>(graph.get_workspace_size()) + kWorkspaceAlign), data_(storage_.data()) {
  size_t space = storage_.size();
  std::align(kWorkspaceAlign, storage_.size() - kWorkspaceAlign, data_, space);
}

Pack pack_of(Attention& a) {
  Pack pack = {{kQ, a.q.data()}, {kK, a.k.data()}, {kV, a.v.data()}};
  if (!a.q_lengths.empty()) pack[kLenQ] = a.q_lengths.data(), pack[kLenKv] = a.kv_lengths.data();
  if (!a.bias.empty()) pack[kBias] = a.bias.data();
  if (!a.sink.empty()) pack[kSink] = a.sink.data();
  return pack;
}

}  // namespace attngraph::test
