#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attngraph/status.hpp"

namespace attngraph::cli {

/// One option of a verb. `value` names what follows it in the help; null: a flag.
struct Option {
  const char* name;
  const char* value;
  const char* help;
};

/// What followed a verb on the command line.
class Arguments {
 public:
  /// Errors: kInvalidGraph naming an option that the table lacks, that misses its value or that has
  ///         one too many.
  static Result<Arguments> parse(std::span<const Option> options, std::span<const char* const> words);

  const std::vector<std::string>& positional() const { return positional_; }
  bool has(std::string_view option) const { return values_.find(option) != values_.end(); }
  std::optional<std::string> value(std::string_view option) const;
  /// The option as an integer of at least `minimum`, or `fallback` without it.
  ///
  /// Errors: kInvalidGraph naming the option and what it has.
  Result<int64_t> integer(std::string_view option, int64_t fallback, int64_t minimum) const;

 private:
  std::vector<std::string> positional_;
  std::map<std::string, std::string, std::less<>> values_;
};

/// The whole of `text` as a decimal integer.
std::optional<int64_t> parse_integer(std::string_view text);

}  // namespace attngraph::cli
