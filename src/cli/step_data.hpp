#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "attngraph/graph.hpp"
#include "cli/case.hpp"

namespace attngraph::cli {

/// Memory that one or more tensors of a step share.
struct Storage {
  Uid owner = 0;
  DataType dtype = DataType::kF32;
  int64_t alignment = 1;                          ///< bytes, of the storage's first byte
  std::optional<std::vector<std::byte>> content;  ///< absent: filled with the run's poison
  int64_t num_elems = kFootprint;                 ///< without content
  bool holds_output = false;

  static constexpr int64_t kFootprint = -1;  ///< as many as the plan says
};

/// A tensor's place in a storage.
struct BoundTensor {
  Uid uid = 0;
  std::optional<size_t> storage;  ///< absent: a null pointer
  int64_t offset_bytes = 0;
};

/// What a step binds, made once and copied into fresh memory for each run on each engine.
struct StepData {
  std::vector<Storage> storages;
  std::vector<BoundTensor> tensors;

  const BoundTensor* find(Uid uid) const;
};

/// Generates and encodes the step's data.
///
/// Errors: kInvalidGraph naming the uid whose data does not suit its tensor.
Result<StepData> make_step_data(const Graph& graph, const Step& step);

/// The tensors that nodes of the graph write and the caller binds, in node order.
std::vector<Uid> bound_outputs(const Graph& graph);

}  // namespace attngraph::cli
