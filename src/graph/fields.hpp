#pragma once

#include <utility>

#include "attngraph/graph.hpp"
#include "graph/role.hpp"

namespace attngraph {

/// The one list of a node's attributes; reading, printing, equality and explain all walk it.
/// A member added to the struct and not bound here does not compile.
template <class Attributes, class Visit>
void attribute_fields(Attributes& a, Visit&& visit) {
  auto& [scale, softcap, dropout_p, band, stats_base, max_total_q, max_total_kv, max_seq_len_kv,
         deterministic] = a;
  visit("scale", scale), visit("softcap", softcap), visit("band", band);
  visit("dropout_p", dropout_p), visit("stats_base", stats_base);
  visit("max_total_q", max_total_q), visit("max_total_kv", max_total_kv);
  visit("max_seq_len_kv", max_seq_len_kv), visit("deterministic", deterministic);
}

/// The one list of a node's ports, inputs then outputs: visit(role, port, is_output).
template <class Node, class Visit>
void forward_ports(Node& node, Visit&& visit) {
  auto& [name, q, k, v, bias, mask, alibi_slopes, sink, seq_len_q, seq_len_kv, cu_seq_len_q, cu_seq_len_kv,
         page_table_k, page_table_v, dropout_seed, dropout_offset, o, stats, attributes] = node;
  static_cast<void>(name), static_cast<void>(attributes);
  visit(Role::kQ, q, false), visit(Role::kK, k, false), visit(Role::kV, v, false);
  visit(Role::kBias, bias, false), visit(Role::kMask, mask, false);
  visit(Role::kAlibiSlopes, alibi_slopes, false), visit(Role::kSink, sink, false);
  visit(Role::kSeqLenQ, seq_len_q, false), visit(Role::kSeqLenKv, seq_len_kv, false);
  visit(Role::kCuSeqLenQ, cu_seq_len_q, false), visit(Role::kCuSeqLenKv, cu_seq_len_kv, false);
  visit(Role::kPageTableK, page_table_k, false), visit(Role::kPageTableV, page_table_v, false);
  visit(Role::kDropoutSeed, dropout_seed, false), visit(Role::kDropoutOffset, dropout_offset, false);
  visit(Role::kO, o, true), visit(Role::kStats, stats, true);
}

template <class Node, class Visit>
void backward_ports(Node& node, Visit&& visit) {
  auto& [name, q, k, v, o, dout, stats, bias, mask, alibi_slopes, sink, seq_len_q, seq_len_kv, cu_seq_len_q,
         cu_seq_len_kv, dropout_seed, dropout_offset, dq, dk, dv, dbias, dsink, dalibi_slopes, attributes] =
      node;
  static_cast<void>(name), static_cast<void>(attributes);
  visit(Role::kQ, q, false), visit(Role::kK, k, false), visit(Role::kV, v, false);
  visit(Role::kO, o, false), visit(Role::kDo, dout, false), visit(Role::kStats, stats, false);
  visit(Role::kBias, bias, false), visit(Role::kMask, mask, false);
  visit(Role::kAlibiSlopes, alibi_slopes, false), visit(Role::kSink, sink, false);
  visit(Role::kSeqLenQ, seq_len_q, false), visit(Role::kSeqLenKv, seq_len_kv, false);
  visit(Role::kCuSeqLenQ, cu_seq_len_q, false), visit(Role::kCuSeqLenKv, cu_seq_len_kv, false);
  visit(Role::kDropoutSeed, dropout_seed, false), visit(Role::kDropoutOffset, dropout_offset, false);
  visit(Role::kDq, dq, true), visit(Role::kDk, dk, true), visit(Role::kDv, dv, true);
  visit(Role::kDbias, dbias, true), visit(Role::kDsink, dsink, true);
  visit(Role::kDalibiSlopes, dalibi_slopes, true);
}

template <class Visit>
void ports(const SdpaForward& node, Visit&& visit) {
  forward_ports(node, visit);
}
template <class Visit>
void ports(SdpaForward& node, Visit&& visit) {
  forward_ports(node, visit);
}
template <class Visit>
void ports(const SdpaBackward& node, Visit&& visit) {
  backward_ports(node, visit);
}
template <class Visit>
void ports(SdpaBackward& node, Visit&& visit) {
  backward_ports(node, visit);
}

/// The one list of a tensor's fields.
template <class T, class Visit>
void tensor_fields(T& tensor, Visit&& visit) {
  auto& [uid, name, dtype, dims, strides, ragged, alignment, is_virtual] = tensor;
  visit("uid", uid), visit("name", name), visit("dtype", dtype), visit("dims", dims);
  visit("strides", strides), visit("ragged", ragged), visit("alignment", alignment);
  visit("virtual", is_virtual);
}

}  // namespace attngraph
