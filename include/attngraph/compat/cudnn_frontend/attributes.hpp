#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attngraph/compat/cudnn_frontend/tensor.hpp"
#include "attngraph/compat/frontend.hpp"

namespace cudnn_frontend {
inline namespace attngraph_compat {
namespace graph {

class Graph;

/// A port by its name and the tensor there; null where it was unset again.
using Ports = std::vector<std::pair<std::string, std::shared_ptr<Tensor_attributes>>>;
using AttentionScoreModifier_t = std::function<std::shared_ptr<Tensor_attributes>(
    std::shared_ptr<Graph>, std::shared_ptr<Tensor_attributes>)>;

inline void set_port(Ports& ports, const char* name, std::shared_ptr<Tensor_attributes> tensor) {
  for (auto& [known, old] : ports)
    if (known == name) return static_cast<void>(old = std::move(tensor));
  ports.emplace_back(name, std::move(tensor));
}

/// What was said to one node.
struct Said {
  std::string name;
  Ports inputs, outputs;
  attngraph::compat::FrontendAttributes attributes;
  AttentionScoreModifier_t score_mod, score_mod_bprop;
};

/// The setters that forward and backward share. What they mean, and what is refused, is the business of
/// attngraph::compat::translate().
template <class Derived>
class Attention_attributes {
 protected:
  using Tensor_t = std::shared_ptr<Tensor_attributes>;

 public:
  Derived& set_name(const std::string& value) { return said.name = value, self(); }
  /// Sums are in float32 whatever is asked for.
  Derived& set_compute_data_type(DataType_t) { return self(); }

  Derived& set_attn_scale(float value) { return said.attributes.attn_scale = value, self(); }
  Derived& set_attn_scale(Tensor_t value) { return input("Attn_scale", std::move(value)); }
  Derived& set_bias(Tensor_t value) { return input("Bias", std::move(value)); }
  Derived& set_sink_token(Tensor_t value) { return input("SINK_TOKEN", std::move(value)); }
  Derived& set_seq_len_q(Tensor_t value) { return input("SEQ_LEN_Q", std::move(value)); }
  Derived& set_seq_len_kv(Tensor_t value) { return input("SEQ_LEN_KV", std::move(value)); }
  Derived& set_alibi_mask(bool value) { return said.attributes.alibi_mask = value, self(); }
  Derived& set_padding_mask(bool value) { return said.attributes.padding_mask = value, self(); }
  Derived& set_rng_dump(Tensor_t value) { return output("RNG_DUMP", std::move(value)); }

  Derived& set_diagonal_alignment(DiagonalAlignment_t value) {
    said.attributes.diagonal_alignment =
        value == DiagonalAlignment_t::TOP_LEFT ? attngraph::Align::kTopLeft : attngraph::Align::kBottomRight;
    return self();
  }
  Derived& set_diagonal_band_left_bound(int value) { return said.attributes.left_bound = value, self(); }
  Derived& set_diagonal_band_right_bound(int value) { return said.attributes.right_bound = value, self(); }
  Derived& set_sliding_window_length(int value) { return set_diagonal_band_left_bound(value); }
  Derived& set_causal_mask(bool value) { return causal(value, DiagonalAlignment_t::TOP_LEFT); }
  Derived& set_causal_mask_bottom_right(bool value) {
    return causal(value, DiagonalAlignment_t::BOTTOM_RIGHT);
  }

  Derived& set_dropout(float probability, Tensor_t seed, Tensor_t offset) {
    said.attributes.dropout_probability = probability;
    return input("Seed", std::move(seed)), input("Offset", std::move(offset));
  }
  Derived& set_score_mod(AttentionScoreModifier_t value) { return said.score_mod = std::move(value), self(); }

  /// Token slots of ragged tensors, gaps included.
  Derived& set_max_total_seq_len_q(int64_t value) {
    return said.attributes.max_total_seq_len_q = value, self();
  }
  Derived& set_max_total_seq_len_kv(int64_t value) {
    return said.attributes.max_total_seq_len_kv = value, self();
  }

  Said said;

 protected:
  Derived& input(const char* name, Tensor_t tensor) {
    return set_port(said.inputs, name, std::move(tensor)), self();
  }
  Derived& output(const char* name, Tensor_t tensor) {
    return set_port(said.outputs, name, std::move(tensor)), self();
  }
  Derived& self() { return static_cast<Derived&>(*this); }

 private:
  /// False leaves the bounds as they are.
  Derived& causal(bool value, DiagonalAlignment_t alignment) {
    return value ? set_diagonal_alignment(alignment).set_diagonal_band_right_bound(0) : self();
  }
};

class SDPA_attributes : public Attention_attributes<SDPA_attributes> {
 public:
  using Attention_attributes::set_dropout;
  SDPA_attributes& set_dropout(Tensor_t mask, Tensor_t scale) {
    return input("Dropout_mask", std::move(mask)), input("Dropout_scale", std::move(scale));
  }
  SDPA_attributes& set_generate_stats(bool value) { return generate_stats = value, *this; }
  SDPA_attributes& set_is_inference(bool value) { return set_generate_stats(!value); }
  SDPA_attributes& set_logit_max(Tensor_t value) { return output("Max", std::move(value)); }
  SDPA_attributes& set_score_sum_exp(Tensor_t value) { return output("Sum_exp", std::move(value)); }
  SDPA_attributes& set_block_mask(Tensor_t value) { return input("Block_mask", std::move(value)); }
  SDPA_attributes& set_paged_attention_k_table(Tensor_t value) {
    return input("Page_table_K", std::move(value));
  }
  SDPA_attributes& set_paged_attention_v_table(Tensor_t value) {
    return input("Page_table_V", std::move(value));
  }
  SDPA_attributes& set_paged_attention_max_seq_len_kv(int value) {
    return said.attributes.max_seq_len_kv = value, *this;
  }
  /// Which of cuDNN's operations computes the result does not change it.
  SDPA_attributes& set_implementation(AttentionImplementation_t) { return *this; }
  SDPA_attributes& set_unfuse_fma(bool) { return *this; }

  bool generate_stats = false;
};
using SDPA_fp8_attributes = SDPA_attributes;

class SDPA_backward_attributes : public Attention_attributes<SDPA_backward_attributes> {
 public:
  using Attention_attributes::set_dropout;
  SDPA_backward_attributes& set_dropout(Tensor_t mask, Tensor_t scale, Tensor_t scale_inv) {
    input("Dropout_mask", std::move(mask)), input("Dropout_scale", std::move(scale));
    return input("Dropout_scale_inv", std::move(scale_inv));
  }
  SDPA_backward_attributes& set_dbias(Tensor_t value) { return output("dBias", std::move(value)); }
  SDPA_backward_attributes& set_dsink_token(Tensor_t value) {
    return output("DSINK_TOKEN", std::move(value));
  }
  SDPA_backward_attributes& set_deterministic_algorithm(bool value) {
    return said.attributes.deterministic = value, *this;
  }
  SDPA_backward_attributes& set_score_mod_bprop(AttentionScoreModifier_t value) {
    return said.score_mod_bprop = std::move(value), *this;
  }
};
using SDPA_fp8_backward_attributes = SDPA_backward_attributes;

/// An operation of a score modifier.
class Pointwise_attributes {
 public:
  Pointwise_attributes& set_name(const std::string& value) { return name = value, *this; }
  Pointwise_attributes& set_compute_data_type(DataType_t) { return *this; }
  Pointwise_attributes& set_mode(PointwiseMode_t value) { return mode = value, *this; }
  Pointwise_attributes& set_axis(int64_t) { return *this; }

  std::string name;
  PointwiseMode_t mode = PointwiseMode_t::NOT_SET;
};

}  // namespace graph
}  // namespace attngraph_compat
}  // namespace cudnn_frontend
