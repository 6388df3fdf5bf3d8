/// Writes docs/support.md from the engines' answers, or compares a file with them:
/// `attngraph_support_doc FILE`, `attngraph_support_doc --compare FILE`.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "attngraph/context.hpp"
#include "attngraph/training.hpp"
#include "plan/engine.hpp"

namespace attngraph {
namespace {

/// One row of the tables: a graph that uses a feature.
struct Feature {
  const char* name;
  void (*change)(Graph& graph, SdpaForward& node);  ///< null: a merge
  Gradients gradients = {};
};

SdpaForward plain_node(Graph& graph, DataType type, int64_t qk_dim = 64, int64_t v_dim = 64) {
  SdpaForward node;
  node.q = graph.tensor("q", type, bhsd({2, 8, 128, qk_dim}));
  node.k = graph.tensor("k", type, bhsd({2, 2, 256, qk_dim}));
  node.v = graph.tensor("v", type, bhsd({2, 2, 256, v_dim}));
  return node;
}

void add_lengths(Graph& graph, SdpaForward& node) {
  node.seq_len_q = graph.vector("seq_len_q", DataType::kI32, 2);
  node.seq_len_kv = graph.vector("seq_len_kv", DataType::kI32, 2);
}

void add_bias(Graph& graph, SdpaForward& node) {
  node.bias = graph.tensor("bias", DataType::kF32, bhsd({1, 8, 128, 256}));
}

void add_sink(Graph& graph, SdpaForward& node) { node.sink = graph.vector("sink", DataType::kF32, 8); }

void add_slopes(Graph& graph, SdpaForward& node) {
  node.alibi_slopes = graph.vector("alibi_slopes", DataType::kF32, 8);
}

void make_packed(Graph& graph, SdpaForward& node) {
  add_lengths(graph, node);
  const Uid offsets = graph.vector("offsets", DataType::kI32, 3);
  for (const Port& port : {node.q, node.k, node.v}) {
    Tensor& tensor = *graph.find(*port);
    const Layout layout = thd({tensor.dims[0], tensor.dims[1], tensor.dims[2], tensor.dims[3]});
    tensor.strides = layout.strides;
    tensor.ragged = Ragged{offsets, layout.strides[2]};
  }
}

void make_paged(Graph& graph, SdpaForward& node) {
  add_lengths(graph, node);
  for (const Port& port : {node.k, node.v}) {
    Tensor& tensor = *graph.find(*port);
    tensor.dims = {32, 2, 16, 64};
    tensor.strides = bhsd({32, 2, 16, 64}).strides;
  }
  node.page_table_k = node.page_table_v = graph.tensor("pages", DataType::kI32, dense({2, 16}));
}

void make_wide(Graph& graph, SdpaForward& node) {
  graph = Graph();
  node = plain_node(graph, DataType::kBf16, 192, 128);
}

Gradients qkv() {
  Gradients wanted;
  wanted.q = wanted.k = wanted.v = true;
  return wanted;
}
Gradients of(bool Gradients::*member) {
  Gradients wanted = qkv();
  wanted.*member = true;
  return wanted;
}

const std::vector<Feature>& features() {
  static const std::vector<Feature> kFeatures = {
      {"forward, bf16", [](Graph&, SdpaForward&) {}},
      {"forward, f16",
       [](Graph& graph, SdpaForward& node) { graph = Graph(), node = plain_node(graph, DataType::kF16); }},
      {"forward, f32",
       [](Graph& graph, SdpaForward& node) { graph = Graph(), node = plain_node(graph, DataType::kF32); }},
      {"dims 192 and 128", make_wide},
      {"causal, top left", [](Graph&, SdpaForward& node) { node.attributes.band = Band::causal(); }},
      {"causal, bottom right",
       [](Graph&, SdpaForward& node) { node.attributes.band = Band::causal(Align::kBottomRight); }},
      {"window",
       [](Graph&, SdpaForward& node) {
         node.attributes.band = {Align::kTopLeft, 63, 0};
       }},
      {"padded lengths", add_lengths},
      {"packed (ragged)", make_packed},
      {"paged k and v", make_paged},
      {"bias", add_bias},
      {"mask",
       [](Graph& graph, SdpaForward& node) {
         node.mask = graph.tensor("mask", DataType::kBool, bhsd({2, 1, 128, 256}));
       }},
      {"ALiBi", add_slopes},
      {"sink", add_sink},
      {"softcap", [](Graph&, SdpaForward& node) { node.attributes.softcap = 30; }},
      {"dropout",
       [](Graph& graph, SdpaForward& node) {
         node.attributes.dropout_p = 0.1;
         node.dropout_seed = graph.vector("dropout_seed", DataType::kI64, 1);
       }},
      {"stats to base 2", [](Graph&, SdpaForward& node) { node.attributes.stats_base = StatsBase::k2; }},
      {"backward", [](Graph&, SdpaForward&) {}, qkv()},
      {"backward, packed", make_packed, qkv()},
      {"backward, deterministic", [](Graph&, SdpaForward& node) { node.attributes.deterministic = true; },
       qkv()},
      {"gradient of the bias", add_bias, of(&Gradients::bias)},
      {"gradient of the sink", add_sink, of(&Gradients::sink)},
      {"gradient of the slopes", add_slopes, of(&Gradients::alibi_slopes)},
      {"merge of partial results", nullptr},
  };
  return kFeatures;
}

/// What has no SdpaForward to change.
Graph merge_graph() {
  Graph graph;
  MergePartials node;
  node.o_a = node.o_b = graph.tensor("o", DataType::kBf16, bhsd({2, 8, 128, 64}));
  node.stats_a = node.stats_b = graph.tensor("stats", DataType::kF32, stats_padded(2, 8, 128));
  graph.merge_partials(node, true);
  return graph;
}

Graph graph_of(const Feature& feature) {
  if (feature.change == nullptr) return merge_graph();
  Graph graph;
  SdpaForward node = plain_node(graph, DataType::kBf16);
  feature.change(graph, node);
  const bool is_backward = feature.gradients.q;
  graph.sdpa_forward(node, is_backward);
  return is_backward ? training_pair(graph, feature.gradients).value().backward : graph;
}

struct Device {
  const char* name;
  Target target;
};

/// A device whose machine has the oldest cuDNN that the cudnn engine takes.
Target with_cudnn(Target target) {
  target.cudnn_version = 91900;
  return target;
}

const std::vector<Device>& devices() {
  static const std::vector<Device> kDevices = {{"cpu", Target::cpu(8, CpuIsa::kAvx2)},
                                               {"a100", with_cudnn(Target::a100())},
                                               {"h100", with_cudnn(Target::h100())},
                                               {"h200", with_cudnn(Target::h200())},
                                               {"b200", with_cudnn(Target::b200())}};
  return kDevices;
}

std::string answer_of(const EngineSupport& engine) {
  std::string words;
  for (const Reason& reason : engine.reasons) words += (words.empty() ? "no: " : "; ") + describe(reason);
  return words.empty() ? "yes" : words;
}

std::string section_of(const Context& context, size_t index) {
  std::ostringstream out;
  out << "\n## " << context.engines()[index] << "\n\n";
  const auto answer = [&](const Feature& feature, const Device& device) {
    return answer_of(context.support(graph_of(feature), device.target).value()[index]);
  };
  const Device* home = nullptr;  // the first with the most features
  int64_t most = 0;
  for (const Device& device : devices()) {
    out << "- " << device.name << ": " << answer(features().front(), device) << '\n';
    const int64_t taken = std::count_if(features().begin(), features().end(), [&](const Feature& feature) {
      return answer(feature, device) == "yes";
    });
    if (taken > most) home = &device, most = taken;
  }
  if (home == nullptr) return std::move(out).str();
  out << "\n| feature | on " << home->name << " |\n|---|---|\n";
  for (const Feature& feature : features())
    out << "| " << feature.name << " | " << answer(feature, *home) << " |\n";
  return std::move(out).str();
}

/// The sections of `old` on engines that this build lacks.
std::string sections_of_others(const Context& context, const std::string& old) {
  const std::vector<std::string> built = context.engines();
  const std::string mark = "\n## ";
  std::string kept;
  for (size_t at = old.find(mark); at != std::string::npos;) {
    const size_t next = old.find(mark, at + 1), name = at + mark.size();
    if (std::find(built.begin(), built.end(), old.substr(name, old.find('\n', name) - name)) == built.end())
      kept += old.substr(at, next == std::string::npos ? next : next - at);
    at = next;
  }
  return kept;
}

/// What the engines of this build answer now, and what `old` says of others.
std::string document(const std::string& old) {
  const Context context;
  std::ostringstream out;
  out << "# What the engines support\n\n"
         "Written by `ninja support_doc` from `Context::support`, the code that plans; a test fails when it "
         "is\n"
         "stale. A plan takes the first engine of this order that says yes.\n";
  for (size_t i = 0; i < context.engines().size(); ++i) out << section_of(context, i);
  out << sections_of_others(context, old);
  return std::move(out).str();
}

std::string read(const char* path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  return std::move(content).str();
}

}  // namespace
}  // namespace attngraph

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--compare") == 0) {
    const std::string old = attngraph::read(argv[2]);
    if (old == attngraph::document(old)) return 0;
    std::cerr << argv[2] << ": is stale; run `ninja support_doc`\n";
    return 1;
  }
  if (argc != 2) {
    std::cerr << "usage: attngraph_support_doc [--compare] FILE\n";
    return 1;
  }
  const std::string old = attngraph::read(argv[1]);
  std::ofstream file(argv[1]);
  file << attngraph::document(old);
  return file.good() ? 0 : 1;
}
