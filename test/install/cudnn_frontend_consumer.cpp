// Code written for cudnn-frontend, with the target attngraph::cudnn_frontend in its place: a causal graph,
// which its options put on the host. Exits 0 when the result is right.
#include <cudnn_frontend.h>

#include <cstdio>
#include <unordered_map>
#include <vector>

namespace fe = cudnn_frontend;

int main() {
  fe::graph::Graph graph;
  graph.set_io_data_type(fe::DataType_t::FLOAT).set_intermediate_data_type(fe::DataType_t::FLOAT);
  fe::graph::Attngraph_options options;
  options.target = attngraph::Target::cpu(1);
  graph.set_attngraph_options(options);
  const std::vector<int64_t> dims = {1, 2, 3, 4}, strides = {24, 12, 4, 1};
  const auto tensor = [&](int64_t uid) {
    return graph.tensor(fe::graph::Tensor_attributes().set_uid(uid).set_dim(dims).set_stride(strides));
  };
  const auto [o, stats] =
      graph.sdpa(tensor(1), tensor(2), tensor(3), fe::graph::SDPA_attributes().set_causal_mask(true));
  o->set_output(true).set_uid(4).set_dim(dims).set_stride(strides);
  if (const fe::error_t built = graph.build(nullptr, {fe::HeurMode_t::A}); built.is_bad())
    return std::fprintf(stderr, "%s\n", built.get_message().c_str()), 1;

  std::vector<float> q(24, 0.5F), k(24, 0.25F), v(24, 3.0F), result(24);
  std::unordered_map<int64_t, void*> pack = {{1, q.data()}, {2, k.data()}, {3, v.data()}, {4, result.data()}};
  alignas(256) static unsigned char workspace[1 << 16];
  if (graph.get_workspace_size() > static_cast<int64_t>(sizeof workspace)) return 1;
  if (const fe::error_t ran = graph.execute(nullptr, pack, workspace); ran.is_bad())
    return std::fprintf(stderr, "%s\n", ran.get_message().c_str()), 1;
  for (const float value : result)
    if (value < 2.9999F || value > 3.0001F) return 1;
  return 0;
}
