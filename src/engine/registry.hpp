#pragma once

#include <memory>

#include "engine/executor.hpp"
#include "plan/engine.hpp"

namespace attngraph {

/// The engines of this build and the order in which they are tried. `executor` must outlive them.
///
/// The environment variable ATTNGRAPH_ENGINE, read here and nowhere else, leaves one engine alone.
EngineSet make_engines(Executor& executor);

}  // namespace attngraph
