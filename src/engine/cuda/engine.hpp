#pragma once

#include <memory>

#include "plan/engine.hpp"

namespace attngraph {

/// In-house kernels for devices of sm_80 and newer.
std::unique_ptr<const Engine> make_cuda_engine();

}  // namespace attngraph
