#include <cmath>
#include <limits>

#include "unit/problem/refusal.hpp"

using namespace attngraph;
using namespace attngraph::test;
using enum Role;

namespace {
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kTwo61 = int64_t{1} << 61;
const double kNan = std::nan(""), kInf = std::numeric_limits<double>::infinity();
}  // namespace

TEST_CASE("a node without a tensor that it needs is refused", "[validate]") {
  check_refusals({
      {forward, [](Sample& s) { s.remove(kQ); }, "node 0, q: is missing; a forward needs it"},
      {forward, [](Sample& s) { s.remove(kK); }, "node 0, k: is missing"},
      {forward, [](Sample& s) { s.remove(kV); }, "node 0, v: is missing"},
      {forward, [](Sample& s) { s.remove(kO); }, "node 0, o: is missing"},
      {backward, [](Sample& s) { s.remove(kO); }, "node 0, o: is missing; every gradient needs it"},
      {backward, [](Sample& s) { s.remove(kDo); }, "node 0, do: is missing; every gradient needs it"},
      {backward, [](Sample& s) { s.remove(kStats); }, "node 0, stats: is missing; every gradient needs it"},
      {backward,
       [](Sample& s) {
         for (const Role role : {kDq, kDk, kDv, kDbias, kDsink, kDalibiSlopes}) s.remove(role);
       },
       "node 0, outputs: ask for no gradient; must be at least one of dq"},
      {backward, [](Sample& s) { s.remove(kBias); },
       "dbias (uid 18 \"dbias'\"): is asked for without bias; must come with it"},
      {backward, [](Sample& s) { s.remove(kSink); }, "is asked for without sink"},
      {backward, [](Sample& s) { s.remove(kAlibiSlopes); }, "is asked for without alibi_slopes"},
      {merge, [](Sample& s) { s.remove(kOB); }, "node 0, o_b: is missing; a merge needs it"},
      {merge, [](Sample& s) { s.remove(kO); }, "node 0, o: is missing; a merge needs it"},
      {forward, [](Sample& s) { s.remove(kDropoutSeed); },
       "dropout_seed: is missing; dropout_p 0.25 needs it"},
      {forward, [](Sample& s) { s.graph.nodes.clear(); }, "graph: has no nodes; must have at least one"},
  });
}

TEST_CASE("lengths and ragged tensors that do not fit together are refused", "[validate]") {
  check_refusals({
      {packed, [](Sample& s) { s.remove(kSeqLenQ); },
       "q (uid 1 \"q'\"): is ragged but its side has no lengths; must come with seq_len_q or cu_seq_len_q"},
      {packed, [](Sample& s) { s.remove(kSeqLenKv); },
       "k (uid 2 \"k'\"): is ragged but its side has no lengths; must come with seq_len_kv or cu_seq_len_kv"},
      {packed, [](Sample& s) { s.add(kCuSeqLenQ, DataType::kI32, dense({3})); },
       "seq_len_q (uid 6 \"seq_len_q'\"): is given beside cu_seq_len_q (uid 10 \"cu_seq_len_q'\"); must be "
       "one"},
      {packed, [](Sample& s) { s.add(kCuSeqLenKv, DataType::kI32, dense({3})); },
       "is given beside cu_seq_len_kv"},
      {forward, [](Sample& s) { s.pack({kBias}); },
       "bias (uid 5 \"bias'\"): is ragged; must be dense: only q, k, v, o, do, stats, dq, dk, dv may be"},
      {merge, [](Sample& s) { s.pack({kCuSeqLenQ}); },
       "is ragged; must be dense: only o_a, stats_a, o_b, stats_b, o, stats may be ragged"},
      {packed,
       [](Sample& s) {
         s.graph.find(s[kQ].ragged->offsets)->ragged = Ragged{1, 1};
       },
       "are ragged themselves; must be a plain vector"},
  });
}

TEST_CASE("pages that cannot hold the sequences are refused", "[validate]") {
  check_refusals({
      {paged, [](Sample& s) { s.attributes().max_seq_len_kv = 13; },
       "page_table_k (uid 5 \"page_table_k'\"): columns are 3; must be at least 4, max_seq_len_kv 13 / page "
       "size 4"},
      {paged,
       [](Sample& s) {
         s.reshape(kPageTableV, {2, 2});
       },
       "page_table_v (uid 6 \"page_table_v'\"): columns are 2; must be at least 3"},
      {paged,
       [](Sample& s) {
         s.reshape(kPageTableK, {3, 3});
       },
       "batch is 3; must be 2, the batch of q"},
      {paged,
       [](Sample& s) {
         s.reshape(kK, {7, 2, 0, 8});
       },
       "page size (len) is 0; must be positive"},
      {paged, [](Sample& s) { s.attributes().max_seq_len_kv = -1; },
       "node 0, max_seq_len_kv: is -1; must be at least 0 and below 2^61"},
      {paged, [](Sample& s) { s.attributes().max_seq_len_kv = kTwo61; }, "must be at least 0 and below 2^61"},
      {forward, [](Sample& s) { s.attributes().max_seq_len_kv = 6; },
       "max_seq_len_kv: is 6; must be 5, the len of k, which is not paged"},
      {paged, [](Sample& s) { s.remove(kPageTableV); }, "is 10; must be 4, the len of v, which is not paged"},
      {paged,
       [](Sample& s) {
         s.attributes().max_seq_len_kv = std::nullopt;
         s.reshape(kPageTableV, {2, 4});
       },
       "v (uid 3 \"v'\"): len is 16; must be 12, the len of k (uid 2 \"k'\"): pages count columns * page "
       "size"},
      {paged,
       [](Sample& s) {
         s.attributes().max_seq_len_kv = std::nullopt;
         s.reshape(kPageTableK, {2, kTwo61 / 4});
       },
       "columns * page size is 2305843009213693952; must be below 2^61"},
      {paged,
       [](Sample& s) {
         s.reshape(kK, {7, 2, 8, 8});
         s[kPageTableK].dims[1] = kTwo61 - 1;
       },
       "keys of a row: 2305843009213693951 * 8 + 0 exceeds int64; must fit int64"},
      {paged,
       [](Sample& s) {
         s.add(kSeqLenKv, DataType::kI32, dense({2}));
         s.pack({kK});
       },
       "k (uid 2 \"k'\"): is ragged and paged; must be one of the two"},
  });
}

TEST_CASE("attributes outside their range are refused", "[validate]") {
  check_refusals({
      {forward, [](Sample& s) { s.attributes().scale = kNan; }, "node 0, scale: is nan; must be finite"},
      {forward, [](Sample& s) { s.attributes().scale = -kInf; }, "scale: is -inf; must be finite"},
      {plain_forward,
       [](Sample& s) {
         s.reshape(kQ, {2, 4, 3, 0}), s.reshape(kK, {2, 2, 5, 0});
       },
       "scale: is absent with dim 0 of q; must be given"},
      {forward, [](Sample& s) { s.attributes().softcap = -2; },
       "softcap: is -2; must be finite and at least 0"},
      {forward, [](Sample& s) { s.attributes().softcap = kInf; }, "softcap: is inf; must be finite"},
      {forward, [](Sample& s) { s.attributes().softcap = kNan; }, "softcap: is nan; must be finite"},
      {forward, [](Sample& s) { s.attributes().dropout_p = 1.5; },
       "dropout_p: is 1.5; must be between 0 and 1"},
      {forward, [](Sample& s) { s.attributes().dropout_p = 1.0000000000000002; },
       "dropout_p: is 1.0000000000000002; must be between 0 and 1"},
      {forward, [](Sample& s) { s.attributes().dropout_p = -0.25; }, "dropout_p: is -0.25; must be between"},
      {forward, [](Sample& s) { s.attributes().dropout_p = kNan; }, "dropout_p: is nan; must be between"},
      {forward, [](Sample& s) { s.attributes().band.left = kTwo61; },
       "band.left: is 2305843009213693952; must have a magnitude below 2^61"},
      {forward, [](Sample& s) { s.attributes().band.right = -kTwo61; },
       "band.right: is -2305843009213693952"},
      {forward, [](Sample& s) { s.attributes().max_total_q = -1; },
       "max_total_q: is -1; must not be negative"},
      {packed, [](Sample& s) { s.attributes().max_total_kv = -7; }, "max_total_kv: is -7; must not be"},
  });
}

TEST_CASE("storage beyond int64 is refused", "[validate]") {
  check_refusals({
      {plain_forward, [](Sample& s) { s[kQ].strides[0] = kMax; }, "q (uid 1 \"q'\"): footprint: "},
      {plain_forward, [](Sample& s) { s[kQ].strides[0] = kMax / 2; },
       "q (uid 1 \"q'\"): footprint in bytes: 4611686018427387999 * 2 + 0 exceeds int64; must fit int64"},
      {packed, [](Sample& s) { s.attributes().max_total_q = kMax; },
       "footprint: 9223372036854775806 * 32 + "},
      {packed, [](Sample& s) { s.graph.find(s[kQ].ragged->offsets)->strides = {kMax / 2}; },
       "q (uid 1 \"q'\"): bytes of the offsets: 9223372036854775807 * 4 + 0 exceeds int64"},
      {packed, [](Sample& s) { s.graph.find(s[kQ].ragged->offsets)->strides = {kMax}; },
       "footprint of the offsets: 2 * 9223372036854775807 + 1 exceeds int64"},
      {packed,
       [](Sample& s) {
         for (const Role role : {kQ, kO, kStats}) s[role].dims[2] = kTwo61 - 1;
         for (const Role role : {kQ, kK, kV, kO, kStats, kSeqLenQ, kSeqLenKv}) s[role].dims[0] = 8;
         for (const Role role : {kQ, kK}) s.graph.find(s[role].ragged->offsets)->dims[0] = 9;
       },
       "max_total_q: is absent, and the default capacity batch * len: 8 * 2305843009213693951 + 0 exceeds "
       "int64"},
      {packed,
       [](Sample& s) {
         for (const Role role : {kK, kV}) s[role].dims[2] = kTwo61 - 1;
         for (const Role role : {kQ, kK, kV, kO, kStats, kSeqLenQ, kSeqLenKv}) s[role].dims[0] = 8;
         for (const Role role : {kQ, kK}) s.graph.find(s[role].ragged->offsets)->dims[0] = 9;
       },
       "max_total_kv: is absent, and the default capacity batch * len: 8 * "},
      {plain_forward,
       [](Sample& s) {
         s[kO].strides.clear();
         for (const Role role : {kQ, kO}) s[role].dims[2] = kTwo61 - 1, s[role].dims[1] = 8;
       },
       "o (uid 4 \"o'\"): dense strides: "},
  });
}

TEST_CASE("outputs that write an element twice are refused", "[validate]") {
  check_refusals({
      {forward, [](Sample& s) { s[kO].strides[2] = 0; },
       "o (uid 4 \"o'\"): elements overlap (2 at stride 72, 4 at stride 6, 3 at stride 0, 6 at stride 1); "
       "must be"},
      {forward, [](Sample& s) { s[kStats].strides[1] = 2; }, "stats (uid 13 \"stats'\"): elements overlap"},
      {backward, [](Sample& s) { s[kDq].strides[0] = 0; }, "dq (uid 15 \"dq'\"): elements overlap"},
      {backward, [](Sample& s) { s[kDk].strides[1] = 7; }, "dk (uid 16 \"dk'\"): elements overlap"},
      {backward, [](Sample& s) { s[kDv].strides[3] = 0; }, "dv (uid 17 \"dv'\"): elements overlap"},
      {backward, [](Sample& s) { s[kDbias].strides[1] = 0; }, "dbias (uid 18 \"dbias'\"): elements overlap"},
      {backward, [](Sample& s) { s[kDsink].strides[0] = 0; }, "dsink (uid 19 \"dsink'\"): elements overlap"},
      {backward, [](Sample& s) { s[kDalibiSlopes].strides[1] = 0; }, "elements overlap (1 at stride 0, 4"},
      {packed, [](Sample& s) { s[kO].strides[2] = 5; }, "o (uid 4 \"o'\"): elements overlap (4 at stride 6"},
      {packed,
       [](Sample& s) {  // head-major, 4 slots apart, where the storage holds 5
         s[kStats].strides = {1, 4, 1, 1};
         s.attributes().max_total_q = 5;
       },
       "stats (uid 5 \"stats'\"): elements overlap (4 at stride 4, 5 at stride 1, 1 at stride 0)"},
      {plain_forward,
       [](Sample& s) {
         for (const Role role : {kQ, kK, kV, kO}) s[role].dims = {400, 400, 400, 400};
         s[kO].strides = {1125899906842597, 1125899906842679, 1125899839733759, 1125908496777233};
       },
       "o (uid 4 \"o'\"): strides are too irregular to prove that no elements overlap (400 at stride "
       "1125899906842597"},
  });
}

TEST_CASE("tensors that are wired wrongly are refused", "[validate]") {
  check_refusals({
      {forward, [](Sample& s) { s.port(kK) = 77; },
       "node 0, k: uid 77 is no tensor of the graph; must be the uid of one"},
      {forward, [](Sample& s) { s.graph.tensors[1].uid = 1; },
       "tensors: uid 1 is borne by tensors 0 and 1; must be unique"},
      {backward, [](Sample& s) { s.port(kDv) = s.port(kDk); },
       "dv (uid 16 \"dk'\"): is two outputs of the node; each must be a tensor of its own"},
      {forward, [](Sample& s) { s.port(kO) = s.port(kQ); },
       "q (uid 1 \"q'\"): is input and output of the node; must be two tensors"},
      {forward, [](Sample& s) { s.graph.nodes.push_back(s.graph.nodes[0]); },
       "node 1, o (uid 4 \"o'\"): is made by node 0 already; must have one maker"},
      {forward, [](Sample& s) { s.graph.find(*s.port(kQ))->is_virtual = true; },
       "tensor (uid 1 \"q'\"): is virtual but no node makes it; must be the output of a node"},
      {forward, [](Sample& s) { s[kO].is_virtual = true; },
       "tensor (uid 4 \"o'\"): is virtual but no node reads it"},
      {forward,
       [](Sample& s) {
         SdpaForward later = std::get<SdpaForward>(s.graph.nodes[0]);
         later.name = "later";
         later.o = s.port(kQ);
         later.q = s.port(kO);
         later.stats = std::nullopt;
         s.graph.nodes.push_back(later);
       },
       "node 0, q (uid 1 \"q'\"): is made by node 1 \"later\", which runs later; must be made before it is "
       "read"},
  });
}
