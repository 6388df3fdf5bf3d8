#pragma once

#include <memory>

#include "engine/executor.hpp"
#include "plan/engine.hpp"

namespace attngraph {

/// The engines of this build and the order in which they are tried. `executor` must outlive them.
///
/// Environment variables are read here and nowhere else: ATTNGRAPH_ENGINE leaves one engine alone,
/// ATTNGRAPH_CUDNN is the path of the cuDNN library.
EngineSet make_engines(Executor& executor);

}  // namespace attngraph
