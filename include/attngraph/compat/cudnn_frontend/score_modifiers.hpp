#pragma once

#include <memory>

#include "attngraph/compat/cudnn_frontend/graph.hpp"

namespace cudnn_frontend {
inline namespace attngraph_compat {
namespace graph::attn::score_modifiers {

inline std::shared_ptr<Tensor_attributes> bias(std::shared_ptr<Graph> graph,
                                               std::shared_ptr<Tensor_attributes> score,
                                               std::shared_ptr<Tensor_attributes> bias_tensor) {
  return graph->pointwise(score, bias_tensor,
                          Pointwise_attributes().set_name("bias").set_mode(PointwiseMode_t::ADD));
}

/// scalar * tanh(score / scalar), and its gradient.
class Softcap {
 public:
  using Tensor_t = std::shared_ptr<Tensor_attributes>;

  Tensor_t forward(std::shared_ptr<Graph> graph, Tensor_t score, Tensor_t scalar) {
    const auto named = [](const char* name, PointwiseMode_t mode) {
      return Pointwise_attributes().set_name(name).set_mode(mode);
    };
    quotient_ = graph->pointwise(score, scalar, named("softcap_quotient", PointwiseMode_t::DIV));
    const Tensor_t tanh = graph->pointwise(quotient_, named("softcap_tanh", PointwiseMode_t::TANH_FWD));
    return graph->pointwise(tanh, scalar, named("softcap_product", PointwiseMode_t::MUL));
  }
  Tensor_t backward(std::shared_ptr<Graph> graph, Tensor_t gradient, Tensor_t scalar) {
    const auto named = [](const char* name, PointwiseMode_t mode) {
      return Pointwise_attributes().set_name(name).set_mode(mode);
    };
    const Tensor_t product =
        graph->pointwise(gradient, scalar, named("softcap_gradient_product", PointwiseMode_t::MUL));
    const Tensor_t tanh =
        graph->pointwise(product, quotient_, named("softcap_gradient_tanh", PointwiseMode_t::TANH_BWD));
    return graph->pointwise(tanh, scalar, named("softcap_gradient_quotient", PointwiseMode_t::DIV));
  }

 private:
  Tensor_t quotient_;  ///< score / scalar, read by the gradient
};

}  // namespace graph::attn::score_modifiers
}  // namespace attngraph_compat
}  // namespace cudnn_frontend
