#pragma once

#include <memory>
#include <string>

#include "plan/engine.hpp"

namespace attngraph {

/// The engine over the cuDNN 9 backend API. It looks for the library when it is first needed: at `path`, or
/// where Library::find() looks when that is empty.
std::unique_ptr<const Engine> make_cudnn_engine(std::string path);

}  // namespace attngraph
