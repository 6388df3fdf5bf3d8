#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/case.hpp"
#include "cli/output_bits.hpp"
#include "graph/role.hpp"

namespace attngraph::cli {

/// An output of a graph and how close it must be to the right answer.
struct OutputRule {
  Uid uid = 0;
  std::string name;
  DataType dtype = DataType::kF32;
  Tolerance tolerance;
  bool scales = false;  ///< `tolerance.abs` is in units of the answer's largest magnitude
};

/// t of the contract's section 8: absolute and relative error that a type is allowed.
double type_tolerance(DataType io, bool is_backward);

/// The rules of the contract's section 8, one for each output that the caller binds, in node order.
std::vector<OutputRule> output_rules(const Graph& graph);

/// The answer for element `index`.
using Answer = std::function<Wanted(int64_t index)>;

/// The elements that the engine wrote or left alone, as an answer.
Answer answer_of(const OutputBits& bits);

/// Compares an output with its answer.
///
/// Returns the first wrong element: "uid 4 "o" index 17: got 0.5, want 0.25 within ..."; empty when
/// there is none.
std::string first_mismatch(const OutputRule& rule, const OutputBits& got, const Answer& want);

/// Compares the two runs of an output: bit for bit, or within the tolerance when the plan is not
/// deterministic.
std::string first_disagreement(const OutputRule& rule, const OutputBits& got, bool deterministic);

/// Compares the bits of two outputs.
std::string first_difference(const OutputRule& rule, const OutputBits& got, const OutputBits& want);

}  // namespace attngraph::cli
