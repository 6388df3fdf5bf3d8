#pragma once

#include "engine/reference/scratch.hpp"

namespace attngraph::reference {

/// o and stats of the slice. Source: contract sections 3 to 5.
void forward(const Launch& launch);

/// The requested gradients of the slice. Source: contract sections 4 to 6.
void backward(const Launch& launch);

/// o and stats of two sets of keys as of one, in the slice. Source: contract section 9.
void merge(const Launch& launch);

}  // namespace attngraph::reference
