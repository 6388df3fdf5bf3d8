#include <array>
#include <charconv>
#include <cmath>

#include "attngraph/json.hpp"
#include "base/message.hpp"
#include "cli/files.hpp"
#include "cli/import.hpp"
#include "cli/program.hpp"

namespace attngraph::cli {
namespace {

constexpr std::array kOptions = {
    Option{"--graph", "N", "take graph N of a log that has several, from 0"},
    Option{"--offsets", "TYPE", "type of ragged offsets, which the file leaves out: i32 or i64"},
    Option{"--packed", nullptr,
           "tensors of nodes with lengths are packed, which cudnn-frontend 1.18 leaves out"},
    Option{"--scale", "X", "value of an Attn_scale tensor, which the file leaves out"},
    Option{"--out", "FILE", "write the graph to FILE instead of the output"},
};

Result<ImportOptions> read_options(const Arguments& arguments) {
  ImportOptions options;
  if (const auto offsets = arguments.value("--offsets")) {
    options.offsets = value_of<DataType>(*offsets);
    if (options.offsets != DataType::kI32 && options.offsets != DataType::kI64)
      return fail(Code::kInvalidGraph, "--offsets: is ", *offsets, "; must be i32 or i64");
  }
  options.packed = arguments.has("--packed");
  if (options.packed && !options.offsets)
    return fail(Code::kInvalidGraph, "--packed: is given alone; must come with --offsets");
  if (const auto scale = arguments.value("--scale")) {
    double value = 0;
    const char* end = scale->data() + scale->size();
    const auto [at, error] = std::from_chars(scale->data(), end, value);
    if (error != std::errc() || at != end || !std::isfinite(value))
      return fail(Code::kInvalidGraph, "--scale: is ", *scale, "; must be a finite number");
    options.scale = value;
  }
  return options;
}

/// The graph of the text that the options choose.
Result<Imported> convert(const std::string& content, const Arguments& arguments) {
  const auto options = read_options(arguments);
  ATTNGRAPH_RETURN_IF_ERROR(options.status());
  const auto graphs = frontend::find_graphs(content);
  ATTNGRAPH_RETURN_IF_ERROR(graphs.status());
  const Result<int64_t> index = arguments.integer("--graph", 0, 0);
  ATTNGRAPH_RETURN_IF_ERROR(index.status());
  const int64_t count = static_cast<int64_t>(graphs->size());
  if (*index >= count || (count > 1 && !arguments.has("--graph")))
    return fail(Code::kInvalidGraph, "holds ", count, " graphs; must be one of them, --graph 0 .. ",
                count - 1);
  const Result<JsonDocument> document = JsonDocument::parse((*graphs)[static_cast<size_t>(*index)]);
  ATTNGRAPH_RETURN_IF_ERROR(document.status());
  frontend::File file;
  ATTNGRAPH_RETURN_IF_ERROR(read(document->root(), file));
  return import_graph(file, *options);
}

Result<int> run(const Arguments& arguments, Io& io) {
  if (arguments.positional().size() != 1)
    return fail(Code::kInvalidGraph, "operands: are ", arguments.positional().size(), "; must be one file");
  const std::string& path = arguments.positional().front();
  const Result<std::string> content = read_file(path);
  ATTNGRAPH_RETURN_IF_ERROR(content.status());
  const Result<Imported> imported = convert(*content, arguments);
  if (!imported.ok()) return fail(imported.status().code(), path, ": ", imported.status().message());
  for (const std::string& note : imported->notes) io.err << path << ": " << note << '\n';
  const std::string graph = print(imported->graph) + "\n";
  if (const auto out = arguments.value("--out")) {
    ATTNGRAPH_RETURN_IF_ERROR(write_file(*out, graph));
  } else {
    io.out << graph << std::flush;
  }
  return int{kSuccess};
}

}  // namespace

const Verb kConvert = {
    "convert",
    "FILE",
    "turn a graph of cudnn-frontend, or a log that holds one, into a graph file",
    "Reads cudnn-frontend's JSON, or a log written with CUDNN_FRONTEND_LOG_INFO=1, and prints our\n"
    "JSON. Meanings are translated: their left bound counts the row's own key, a scale that is\n"
    "not set is 1, offsets count elements. What has no counterpart is an error that names it.\n\n"
    "example: attngraph convert frontend.log --graph 2 --offsets i32 --out graph.json",
    kOptions,
    run};

}  // namespace attngraph::cli
