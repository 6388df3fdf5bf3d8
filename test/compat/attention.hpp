#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attngraph/compat/cudnn_frontend.h"

/// One attention in float32 on the host: described with cudnn-frontend's interface, and computed as cuDNN
/// documents it.
namespace attngraph::test {

namespace fe = cudnn_frontend;
using Tensor_t = std::shared_ptr<fe::graph::Tensor_attributes>;

inline constexpr int64_t kQ = 1, kK = 2, kV = 3, kO = 4, kStats = 5, kLenQ = 6, kLenKv = 7, kBias = 8,
                         kSink = 9, kDo = 11, kDq = 12, kDk = 13, kDv = 14, kDbias = 15, kDsink = 16;

/// What is computed. Shapes: q [batch, heads, q_len, dim], k and v [batch, kv_heads, kv_len, dim], bias
/// [1, heads, q_len, kv_len], sink [heads], lengths [batch]; the vectors are empty where it does without.
struct Attention {
  int64_t batch = 2, heads = 3, kv_heads = 3, q_len = 5, kv_len = 7, dim = 4;
  std::optional<float> scale;
  std::optional<int> left, right;
  bool bottom_right = false, alibi = false;
  float softcap = 0;
  std::vector<int32_t> q_lengths, kv_lengths;
  std::vector<float> bias, sink;
  std::vector<float> q, k, v, o_gradient;

  /// Random q, k, v and gradient of o, from `seed`.
  void draw(uint32_t seed);
};

struct Output {
  std::vector<float> o, stats;
};
/// By the formulas of cuDNN's documentation, in double: a key j is kept where it is below the length,
/// j <= i + right and j + left > i, i counted from the diagonal.
Output documented(const Attention& a);
/// The gradient of sum(o * o_gradient) by element `at` of `of`, a member of `a`, by central differences.
double slope(Attention a, std::vector<float> Attention::*of, size_t at);

Tensor_t add(fe::graph::Graph& graph, int64_t uid, const std::vector<int64_t>& dims,
             fe::DataType_t type = fe::DataType_t::FLOAT);
/// Types set, and the host as the target.
fe::graph::Graph host_graph();
void mark_output(const Tensor_t& tensor, int64_t uid, const std::vector<int64_t>& dims);

std::vector<int64_t> dims_q(const Attention& a);
std::vector<int64_t> dims_kv(const Attention& a);
/// Everything of `a` that forward and backward say alike.
template <class Options>
Options options_of(const Attention& a, fe::graph::Graph& graph);
/// Graphs of `a`, ready to be built.
fe::graph::Graph forward(const Attention& a);
fe::graph::Graph backward(const Attention& a);

/// 256-byte aligned.
class Scratch {
 public:
  explicit Scratch(const fe::graph::Graph& graph);
  void* data() { return data_; }

 private:
  std::vector<unsigned char> storage_;
  void* data_;
};

using Pack = std::unordered_map<int64_t, void*>;
/// The inputs of `a`.
Pack pack_of(Attention& a);

}  // namespace attngraph::test
