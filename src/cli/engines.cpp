#include "cli/engines.hpp"

#include <algorithm>

#include "base/message.hpp"

namespace attngraph::cli {

Result<std::vector<std::string>> chosen_engines(const Context& context, const Arguments& arguments) {
  std::vector<std::string> all = context.engines();
  const std::optional<std::string> name = arguments.value("--engine");
  if (!name) {
    std::erase_if(all, [&](const std::string& engine) { return !context.target_of(engine).ok(); });
    return all;
  }
  if (std::find(all.begin(), all.end(), *name) != all.end()) return std::vector{*name};
  std::string names;
  for (const std::string& engine : all) names += (names.empty() ? "" : ", ") + engine;
  return fail(Code::kInvalidGraph, "--engine: is ", *name, "; must be one of ", names);
}

Result<int64_t> chosen_multiprocessors(const Arguments& arguments) {
  return arguments.integer("--multiprocessors", 0, 1);
}

}  // namespace attngraph::cli
