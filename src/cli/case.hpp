#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "attngraph/graph.hpp"
#include "base/enum_names.hpp"

namespace attngraph {
namespace cli {

/// A number of a case file: integers exact to 64 bits, everything else a double.
struct Number {
  std::variant<int64_t, double> value;

  double real() const {
    return std::visit([](auto exact) { return static_cast<double>(exact); }, value);
  }
};

/// What a binding's storage holds, in memory order from the tensor's base pointer.
struct Values {
  std::vector<Number> list;
};
struct Repeated {
  Number value;
  int64_t count = 0;
};
struct Random {
  uint64_t seed = 0;
  int64_t count = 0;
};
/// The storage of another uid from element `offset` on.
struct View {
  Uid of = 0;
  int64_t offset = 0;
};
struct NullPointer {};
using Source = std::variant<Values, Repeated, Random, View, NullPointer>;

/// The right answer for one element of an output.
struct Wanted {
  enum class Kind : uint8_t { kNumber, kAny, kUntouched } kind = Kind::kNumber;
  double value = 0;  ///< of kNumber
};
struct WantedList {
  std::vector<Wanted> list;
};
struct WantedEverywhere {
  Wanted value;
};
/// What the reference engine gives.
struct AsReference {};
/// The bits that this engine gave for `uid` in an earlier step.
struct SameAs {
  int64_t step = 0;  ///< counts from 0
  Uid uid = 0;
};
using Expectation = std::variant<WantedList, WantedEverywhere, AsReference, SameAs>;

/// |got - want| <= abs + rel * |want|
struct Tolerance {
  double abs = 0, rel = 0;
};

/// The stations of a step, in order.
enum class Stage : uint8_t { kParse, kValidate, kPlan, kBind, kExecute };

struct ExpectedError {
  Stage stage = Stage::kValidate;
  Code code = Code::kInvalidGraph;
  std::vector<std::string> words;  ///< each occurs in the message as a word of its own
};

/// How the workspace is spoiled on purpose.
struct WorkspaceFault {
  int64_t short_by_bytes = 0, misaligned_by_bytes = 0;
};

/// What the reader of graphs said.
struct GraphText {
  Graph graph;
  Status status;
};

/// One graph, its data and what must come of it.
struct Step {
  GraphText text;
  std::optional<std::map<Uid, Source>> bind;  ///< absent: planned only
  std::map<Uid, Expectation> expect;
  std::optional<Tolerance> tolerance;  ///< absent: the contract's, section 8
  std::optional<ExpectedError> expect_error;
  std::optional<int64_t> workspace_bytes_at_most;
  WorkspaceFault workspace;
  bool validate_bindings = false;
};

/// Steps that run in order in one context.
struct Case {
  std::string name, why;
  std::vector<Step> steps;
};

inline constexpr const char* kCaseFormat = "attngraph.case";
inline constexpr int64_t kCaseVersion = 1;

/// Reads a case file.
///
/// Errors: kInvalidGraph with the JSON path, the value there and what is accepted. A graph that does
///         not parse is an answer, kept in its step.
Result<Case> parse_case(const std::string& json);

/// Writes a case that parse_case() reads back to the same data and expectations.
std::string print_case(const Case& described);

}  // namespace cli

template <>
struct EnumNames<cli::Stage> {
  static constexpr std::array table = {
      std::pair{cli::Stage::kParse, "parse"}, std::pair{cli::Stage::kValidate, "validate"},
      std::pair{cli::Stage::kPlan, "plan"}, std::pair{cli::Stage::kBind, "bind"},
      std::pair{cli::Stage::kExecute, "execute"}};
};

}  // namespace attngraph
