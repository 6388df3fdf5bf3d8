#pragma once

/// cudnn-frontend's attention graphs on attngraph: code written for `cudnn_frontend::graph` compiles
/// unchanged against this header, and what attngraph cannot keep comes back as its error object with
/// attngraph's reason. docs/cudnn-frontend.md says what is translated how.
///
/// It includes no header of CUDA or cuDNN: whoever has a cudnnHandle_t has included <cudnn.h>.
#include "attngraph/attngraph.hpp"
#include "attngraph/compat/cudnn_frontend/graph.hpp"
#include "attngraph/compat/cudnn_frontend/score_modifiers.hpp"
