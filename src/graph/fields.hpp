#pragma once

#include <array>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "attngraph/graph.hpp"
#include "base/field.hpp"
#include "graph/role.hpp"

namespace attngraph {

template <class T, class Struct>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Struct>;

/// The one list of the members of each struct that a graph consists of, in the order of a file:
/// reading, printing, equality and explain all walk it. A member added to a struct and not bound
/// here does not compile.
template <MaybeConst<Band> T>
auto fields(T& band) {
  auto& [align, left, right] = band;
  return std::tuple{Field{"align", align}, Field{"left", left}, Field{"right", right}};
}
template <MaybeConst<SdpaAttributes> T>
auto fields(T& attributes) {
  auto& [scale, softcap, band, dropout_p, stats_base, max_total_q, max_total_kv, max_seq_len_kv,
         deterministic] = attributes;
  return std::tuple{Field{"scale", scale},
                    Field{"softcap", softcap},
                    Field{"band", band},
                    Field{"dropout_p", dropout_p},
                    Field{"stats_base", stats_base},
                    Field{"max_total_q", max_total_q},
                    Field{"max_total_kv", max_total_kv},
                    Field{"max_seq_len_kv", max_seq_len_kv},
                    Field{"deterministic", deterministic}};
}
template <MaybeConst<MergeAttributes> T>
auto fields(T& attributes) {
  auto& [stats_base, max_total_q] = attributes;
  return std::tuple{Field{"stats_base", stats_base}, Field{"max_total_q", max_total_q}};
}
template <MaybeConst<Ragged> T>
auto fields(T& ragged) {
  auto& [offsets, multiplier] = ragged;
  return std::tuple{Field{"offsets", offsets, Presence::kRequired}, Field{"multiplier", multiplier}};
}
template <MaybeConst<Tensor> T>
auto fields(T& tensor) {
  auto& [uid, name, dtype, dims, strides, ragged, alignment, is_virtual] = tensor;
  return std::tuple{Field{"uid", uid, Presence::kRequired},
                    Field{"name", name},
                    Field{"dtype", dtype, Presence::kRequired},
                    Field{"dims", dims, Presence::kRequired},
                    Field{"strides", strides},
                    Field{"ragged", ragged},
                    Field{"alignment", alignment},
                    Field{"virtual", is_virtual}};
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

template <class Node, class Visit>
void merge_ports(Node& node, Visit&& visit) {
  auto& [name, o_a, stats_a, o_b, stats_b, seq_len_q, cu_seq_len_q, o, stats, attributes] = node;
  static_cast<void>(name), static_cast<void>(attributes);
  visit(Role::kOA, o_a, false), visit(Role::kStatsA, stats_a, false);
  visit(Role::kOB, o_b, false), visit(Role::kStatsB, stats_b, false);
  visit(Role::kSeqLenQ, seq_len_q, false), visit(Role::kCuSeqLenQ, cu_seq_len_q, false);
  visit(Role::kO, o, true), visit(Role::kStats, stats, true);
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
template <class Visit>
void ports(const MergePartials& node, Visit&& visit) {
  merge_ports(node, visit);
}
template <class Visit>
void ports(MergePartials& node, Visit&& visit) {
  merge_ports(node, visit);
}

/// The node's name in files: what its "op" says.
constexpr const char* op_of(const SdpaForward&) { return "sdpa_forward"; }
constexpr const char* op_of(const SdpaBackward&) { return "sdpa_backward"; }
constexpr const char* op_of(const MergePartials&) { return "merge_partials"; }
/// A node of that op without tensors; nothing when there is none.
std::optional<Node> node_of(std::string_view op);
/// All ops, for messages.
std::string all_ops();

/// A node's ports by role; empty where the node has no port of that role.
using PortTable = std::array<Port, kNumRoles>;
template <class Node>
PortTable ports_by_role(const Node& node) {
  PortTable table;
  ports(node, [&](Role role, const Port& port, bool) { table[static_cast<size_t>(role)] = port; });
  return table;
}

}  // namespace attngraph
