#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attngraph/graph.hpp"
#include "cli/cudnn_frontend_file.hpp"

namespace attngraph::cli {

/// What cudnn-frontend's JSON leaves out.
struct ImportOptions {
  std::optional<DataType> offsets;  ///< type of ragged offsets that are not among the tensors
  std::optional<double> scale;      ///< the value of an Attn_scale tensor
  bool packed = false;  ///< nodes with lengths: their tensors have offsets that the file leaves out
};

struct Imported {
  Graph graph;
  std::vector<std::string> notes;  ///< what whoever binds the graph must know
};

/// The graph that a cudnn-frontend graph means: their left bound counts the row's own key, a scale that is
/// not set is 1, offsets count elements, k and v may have been transposed in place when the graph was built.
///
/// Errors: kInvalidGraph naming what has no counterpart, what an option must give, and what validate()
/// refuses.
Result<Imported> import_graph(const frontend::File& file, const ImportOptions& options);

}  // namespace attngraph::cli
