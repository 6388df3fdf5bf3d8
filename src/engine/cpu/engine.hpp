#pragma once

#include <memory>

#include "engine/executor.hpp"
#include "plan/engine.hpp"

namespace attngraph {

/// The tiled engine for host memory. It takes everything that the contract describes, for any
/// instruction set; a plan for one that this machine lacks is refused when it runs.
///
/// `executor` must outlive the engine and its plans.
std::unique_ptr<Engine> make_cpu_engine(Executor& executor);

}  // namespace attngraph
