#include "cli/arguments.hpp"

#include <algorithm>
#include <charconv>

#include "base/message.hpp"

namespace attngraph::cli {

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<Arguments> Arguments::parse(std::span<const Option> options, std::span<const char* const> words) {
  Arguments arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i];
    if (!word.starts_with("--")) {
      arguments.positional_.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto option =
        std::find_if(options.begin(), options.end(), [&](const Option& known) { return known.name == name; });
    if (option == options.end()) return fail(Code::kInvalidGraph, name, ": unknown option; see --help");
    std::string value;
    if (option->value == nullptr) {
      if (equals != std::string::npos)
        return fail(Code::kInvalidGraph, word, ": has a value; ", name, " takes none");
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (++i < words.size()) {
      value = words[i];
    } else {
      return fail(Code::kInvalidGraph, name, ": has no value; must be followed by ", option->value);
    }
    arguments.values_[name] = value;
  }
  return arguments;
}

std::optional<std::string> Arguments::value(std::string_view option) const {
  const auto entry = values_.find(option);
  return entry == values_.end() ? std::nullopt : std::optional(entry->second);
}

Result<int64_t> Arguments::integer(std::string_view option, int64_t fallback, int64_t minimum) const {
  const std::optional<std::string> given = value(option);
  if (!given) return fallback;
  const std::optional<int64_t> number = parse_integer(*given);
  if (!number || *number < minimum)
    return fail(Code::kInvalidGraph, option, ": is ", *given, "; must be an integer of at least ", minimum);
  return *number;
}

}  // namespace attngraph::cli
