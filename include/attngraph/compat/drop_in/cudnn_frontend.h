#pragma once

/// In cudnn-frontend's place on the include path. Its users see <cudnn.h> through it, too.
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif

#include <cassert>
#include <iostream>
#include <memory>
#include <sstream>
#include <unordered_map>

#include "attngraph/compat/cudnn_frontend.h"
