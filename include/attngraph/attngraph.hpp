#pragma once

/// The whole C++ interface: describe a Graph (graph.hpp, json.hpp), derive its backward
/// (training.hpp), plan it in a Context (context.hpp, plan.hpp), run it (execute.hpp, recording.hpp).
#include "attngraph/band.hpp"
#include "attngraph/context.hpp"
#include "attngraph/execute.hpp"
#include "attngraph/graph.hpp"
#include "attngraph/json.hpp"
#include "attngraph/layout.hpp"
#include "attngraph/plan.hpp"
#include "attngraph/recording.hpp"
#include "attngraph/status.hpp"
#include "attngraph/training.hpp"
#include "attngraph/types.hpp"
