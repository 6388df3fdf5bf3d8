#pragma once

#include "engine/reference/scratch.hpp"

namespace attngraph::reference {

/// o and stats of the slice. Source: contract sections 3 to 5.
void forward(const Launch& launch);

/// The requested gradients of the slice. Source: contract sections 4 to 6.
void backward(const Launch& launch);

}  // namespace attngraph::reference
