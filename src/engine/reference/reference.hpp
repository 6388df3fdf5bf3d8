#pragma once

#include <memory>

#include "plan/engine.hpp"

namespace attngraph {

/// The contract as code: one thread, double precision, host memory, every feature. The oracle of
/// all other engines; it shares with them where an element lives and nothing else.
std::unique_ptr<Engine> make_reference_engine();

}  // namespace attngraph
